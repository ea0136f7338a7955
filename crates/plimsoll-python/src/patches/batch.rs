//! A batch that a stream lends.

use plimsoll_data::{Batch, BatchShape, LoaderConfig, SampleShape};
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::Failure;

/// A batch of patches or of images. Its buffers belong to the loader, which fills them again once the batch is dropped.
pub struct PatchBatch {
    batch: Batch,
    labels: Labels,
    /// `true` if samples are whole images with classes.
    is_of_images: bool,
    cases: Vec<String>,
}

/// The labels of a batch.
enum Labels {
    /// Labels of 8 bits, which the loader holds.
    Bytes,
    /// Labels of 64 bits.
    Words(Mapped<i64>),
    /// The share of each class, `[sample][class]`.
    Shares(Mapped<f32>),
}

/// The address of the labels of a batch in their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelBuffer {
    /// Labels of 8 bits.
    Bytes(*mut u8),
    /// Labels of 64 bits.
    Words(*mut i64),
    /// The share of each class.
    Shares(*mut f32),
}

/// The form of the labels of all batches, and the memory of what the loader does not hold.
pub(super) enum LabelForm {
    Bytes,
    Words(Budget),
    Shares(Budget),
}

impl LabelForm {
    /// Labels of 64 bits for all batches of a loader.
    pub(super) fn words(
        config: &LoaderConfig,
        sample: SampleShape,
        budget: &Budget,
    ) -> Result<LabelForm, Failure> {
        let labels = sample.labels.iter().fold(config.batch_size, |all, size| all.saturating_mul(*size));
        let bytes = all_slots(config, Mapped::<i64>::bytes(labels))?;
        Ok(LabelForm::Words(budget.part("labels of 64 bits", bytes).map_err(Failure::OverLimit)?))
    }

    /// Shares of classes for all batches of a loader.
    pub(super) fn shares(
        config: &LoaderConfig,
        sample: SampleShape,
        budget: &Budget,
    ) -> Result<LabelForm, Failure> {
        let shares = Mapped::<f32>::bytes(sample.soft.saturating_mul(config.batch_size));
        let bytes = all_slots(config, shares)?;
        Ok(LabelForm::Shares(budget.part("shares of classes", bytes).map_err(Failure::OverLimit)?))
    }
}

/// The bytes of a buffer for each batch of a loader.
fn all_slots(config: &LoaderConfig, bytes: Result<Bytes, MapError>) -> Result<Bytes, Failure> {
    Ok(Bytes(bytes?.0.saturating_mul(config.slots as u64)))
}

impl PatchBatch {
    /// Takes over a batch of the loader. `names` are of all cases.
    pub(super) fn new(
        batch: Batch,
        names: &[String],
        form: &LabelForm,
        is_of_images: bool,
    ) -> Result<PatchBatch, Failure> {
        let labels = match form {
            LabelForm::Bytes => Labels::Bytes,
            LabelForm::Words(budget) => {
                let mut words = Mapped::<i64>::zeroed(budget, "labels of 64 bits", batch.labels().len())?;
                words.iter_mut().zip(batch.labels()).for_each(|(word, label)| *word = i64::from(*label));
                Labels::Words(words)
            }
            LabelForm::Shares(budget) => {
                let shifts = batch.shifts();
                let mut shares = Mapped::<f32>::zeroed(budget, "shares of classes", shifts.len())?;
                let soft = batch.shape().sample.soft.max(1);
                let samples = shares.chunks_exact_mut(soft).zip(shifts.chunks_exact(soft));
                for ((shares, shifts), label) in samples.zip(batch.labels()) {
                    for (output, (share, shift)) in shares.iter_mut().zip(shifts).enumerate() {
                        // A shift is what the target of the label exceeds the share by.
                        *share = f32::from(u8::from(output == usize::from(*label))) - shift;
                    }
                }
                Labels::Shares(shares)
            }
        };
        let name = |case: &usize| names.get(*case).cloned().unwrap_or_else(|| format!("number {case}"));
        let cases = batch.cases().iter().map(name).collect();
        Ok(PatchBatch { batch, labels, is_of_images, cases })
    }

    /// The step.
    pub fn step(&self) -> u64 {
        self.batch.step()
    }

    /// The name of the case of each sample.
    pub fn cases(&self) -> &[String] {
        &self.cases
    }

    /// Normalised intensities, `[sample][channel][depth][height][width]`.
    pub fn images(&self) -> &[f32] {
        self.batch.images()
    }

    /// Labels of 8 bits, `[sample][depth][height][width]`; of images the class of each, where it has one.
    pub fn labels(&self) -> &[u8] {
        self.batch.labels()
    }

    /// The share of each class, `[sample][class]`; empty where each image has one class, and of patches.
    pub fn shares(&self) -> &[f32] {
        match &self.labels {
            Labels::Shares(shares) => shares,
            Labels::Bytes | Labels::Words(_) => &[],
        }
    }

    /// The shape of the images: samples, channels, depth, height, width; without depth for images with classes.
    pub fn image_shape(&self) -> Vec<usize> {
        let BatchShape { batch_size, sample } = self.batch.shape();
        let [depth, height, width] = sample.patch;
        match self.is_of_images {
            true => vec![batch_size, sample.channels, height, width],
            false => vec![batch_size, sample.channels, depth, height, width],
        }
    }

    /// The shape of the labels: samples, 1, depth, height, width; of images with classes: samples, or samples and classes.
    pub fn label_shape(&self) -> Vec<usize> {
        let BatchShape { batch_size, sample } = self.batch.shape();
        let [depth, height, width] = sample.labels;
        match (&self.labels, self.is_of_images) {
            (Labels::Shares(_), _) => vec![batch_size, sample.soft],
            (_, true) => vec![batch_size],
            (_, false) => vec![batch_size, 1, depth, height, width],
        }
    }

    /// The address of the images, valid for reads and writes until the batch is dropped.
    pub fn image_buffer(&self) -> *mut f32 {
        self.batch.images_start()
    }

    /// The address of the labels, valid for reads and writes until the batch is dropped.
    pub fn label_buffer(&self) -> LabelBuffer {
        match &self.labels {
            Labels::Words(words) => LabelBuffer::Words(words.start()),
            Labels::Shares(shares) => LabelBuffer::Shares(shares.start()),
            Labels::Bytes => LabelBuffer::Bytes(self.batch.labels_start()),
        }
    }
}
