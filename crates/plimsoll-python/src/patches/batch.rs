//! A batch that a stream lends.

use plimsoll_data::{Batch, BatchShape};
use plimsoll_memory::{Budget, Mapped};

use crate::Failure;

/// A batch of patches. Its buffers belong to the loader, which fills them again once the batch is dropped.
pub struct PatchBatch {
    batch: Batch,
    /// The labels in 64 bits, if they are asked for.
    wide: Option<Mapped<i64>>,
    cases: Vec<String>,
}

/// The address of the labels of a batch in their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelBuffer {
    /// Labels of 8 bits.
    Bytes(*mut u8),
    /// Labels of 64 bits.
    Words(*mut i64),
}

impl PatchBatch {
    /// Takes over a batch of the loader. `names` are of all cases; with a budget for them, labels are widened to 64 bits.
    pub(super) fn new(batch: Batch, names: &[String], wide: Option<&Budget>) -> Result<PatchBatch, Failure> {
        let wide = match wide {
            Some(budget) => {
                let mut words = Mapped::<i64>::zeroed(budget, "labels of 64 bits", batch.labels().len())?;
                words.iter_mut().zip(batch.labels()).for_each(|(word, label)| *word = i64::from(*label));
                Some(words)
            }
            None => None,
        };
        let name = |case: &usize| names.get(*case).cloned().unwrap_or_else(|| format!("number {case}"));
        let cases = batch.cases().iter().map(name).collect();
        Ok(PatchBatch { batch, wide, cases })
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

    /// Labels of 8 bits, `[sample][depth][height][width]`.
    pub fn labels(&self) -> &[u8] {
        self.batch.labels()
    }

    /// The shape of the images: samples, channels, depth, height, width.
    pub fn image_shape(&self) -> [usize; 5] {
        let BatchShape { batch_size, sample } = self.batch.shape();
        let [depth, height, width] = sample.patch;
        [batch_size, sample.channels, depth, height, width]
    }

    /// The shape of the labels: samples, 1, depth, height, width.
    pub fn label_shape(&self) -> [usize; 5] {
        let BatchShape { batch_size, sample } = self.batch.shape();
        let [depth, height, width] = sample.labels;
        [batch_size, 1, depth, height, width]
    }

    /// The address of the images, valid for reads and writes until the batch is dropped.
    pub fn image_buffer(&self) -> *mut f32 {
        self.batch.images_start()
    }

    /// The address of the labels, valid for reads and writes until the batch is dropped.
    pub fn label_buffer(&self) -> LabelBuffer {
        match &self.wide {
            Some(words) => LabelBuffer::Words(words.start()),
            None => LabelBuffer::Bytes(self.batch.labels_start()),
        }
    }
}
