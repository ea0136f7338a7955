//! Images as a whole, as samples of batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::pictures::{
    Augmentation, ImageDataset, Pipeline, PreparedCache, PreparedStatistics, Recipe, Scratch,
};
use plimsoll_image::process::tensor::mix;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};

use crate::Mode;
use crate::loader::order::{Order, Sampling};
use crate::loader::samples::{SamplePlace, SampleWorker, Samples, processor_nanos};
use crate::loader::{Answer, LoaderError, MakingTimes, SampleShape, Targets};

/// The images of a fold, and the order in which they are read.
#[derive(Clone, Debug)]
pub struct ImageFold {
    /// Cases to train on, by their place in the data set, each with its class.
    pub train: Vec<(u8, u32)>,
    /// The same of those to validate with. Each is validated once, in this order.
    pub val: Vec<(u8, u32)>,
    /// The choice of the images of a step.
    pub sampling: Sampling,
    /// Images of a step.
    pub batch: usize,
    /// The outputs for each image.
    pub answer: Answer,
}

/// The images of a fold.
pub struct ImageSamples {
    dataset: Arc<ImageDataset>,
    order: Order,
    validation: Vec<(u8, u32)>,
    pipeline: Pipeline,
    augmentation: Augmentation,
    batch: usize,
    cache: PreparedCache,
    answer: Answer,
    targets: Targets,
    on_images: AtomicU64,
    _lists: Reservation,
}

impl ImageSamples {
    /// Prepares the samples of a fold whose cases are all in the data set. Prepared images are kept within
    /// `cache`.
    ///
    /// # Errors
    /// If the fold is empty, or there is no room for its lists.
    pub fn new(
        dataset: Arc<ImageDataset>,
        fold: ImageFold,
        pipeline: Pipeline,
        augmentation: Augmentation,
        cache: PreparedCache,
        budget: &Budget,
    ) -> Result<ImageSamples, LoaderError> {
        for (list, cases) in [("images to train on", &fold.train), ("images to validate with", &fold.val)] {
            if cases.is_empty() {
                return Err(LoaderError::Zero { setting: list });
            }
        }
        let lists = budget.reserve("lists of images", ImageSamples::list_bytes(dataset.cases.len()))?;
        Ok(ImageSamples {
            order: Order::new(fold.sampling, fold.train, fold.batch),
            validation: fold.val,
            pipeline,
            augmentation,
            batch: fold.batch,
            answer: fold.answer,
            cache,
            targets: Targets::default(),
            on_images: AtomicU64::default(),
            dataset,
            _lists: lists,
        })
    }

    /// The bytes that the lists of a fold reserve, for a data set of `cases` cases.
    pub fn list_bytes(cases: usize) -> Bytes {
        Bytes::from_len(cases.saturating_mul(size_of::<(u8, u32)>()))
    }

    /// The bytes that a thread holds for the image that another is mixed with, and for the soft targets of
    /// both; 0 if images are not mixed.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub fn partner_bytes(
        pipeline: &Pipeline,
        augmentation: &Augmentation,
        answer: &Answer,
    ) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(partner_values(pipeline, augmentation, answer))
    }

    /// Outputs of the network, where targets are soft; else 0.
    fn soft(&self) -> usize {
        let is_soft = self.augmentation.mixup > 0.0 || self.answer.is_soft();
        if is_soft { self.answer.outputs() } else { 0 }
    }

    /// The contents and the counters of the cache.
    pub fn cache(&self) -> PreparedStatistics {
        self.cache.statistics()
    }

    /// Limits the cache to `bytes` from now on; it keeps its present contents.
    pub fn limit_cache(&self, bytes: Bytes) {
        self.cache.limit_to(bytes);
    }

    /// Processor time of making samples so far.
    pub fn times(&self) -> MakingTimes {
        let nanoseconds = Duration::from_nanos(self.on_images.load(Ordering::Relaxed));
        MakingTimes { patch_seconds: nanoseconds.as_secs_f64(), map_seconds: 0.0 }
    }

    /// Class and case of a sample.
    fn case(&self, SamplePlace { mode, seed, step, sample }: SamplePlace) -> (u8, u32) {
        match mode {
            Mode::Training => self.order.case(seed, step, sample),
            Mode::Validation => {
                // There is one at least.
                self.validation[(step % self.validation.len() as u64) as usize]
            }
        }
    }
}

impl Samples for ImageSamples {
    fn shape(&self) -> SampleShape {
        let extent = self.pipeline.extent();
        SampleShape {
            channels: self.pipeline.channels(),
            patch: [1, extent.height, extent.width],
            labels: [1; 3],
            soft: self.soft(),
        }
    }

    fn targets(&self) -> &Targets {
        &self.targets
    }

    fn worker(
        self: Arc<Self>,
        scratch: Bytes,
        budget: &Budget,
    ) -> Result<Box<dyn SampleWorker>, LoaderError> {
        let memory = budget.part("image pipeline", scratch)?;
        let scratch = Scratch::new(&self.pipeline, &memory)?;
        let values = partner_values(&self.pipeline, &self.augmentation, &self.answer);
        let partner = Mapped::zeroed(&memory, "partners of mixed images", values)?;
        Ok(Box::new(ImageWorker { images: self, scratch, partner }))
    }
}

/// An image and the target of its partner, where images are mixed.
fn partner_values(pipeline: &Pipeline, augmentation: &Augmentation, answer: &Answer) -> usize {
    match augmentation.mixup > 0.0 {
        true => pipeline.output_length().saturating_add(answer.outputs()),
        false => 0,
    }
}

/// Makes samples of images on one thread.
struct ImageWorker {
    images: Arc<ImageSamples>,
    scratch: Scratch,
    /// The values of the image that another is mixed with, and behind them its target.
    partner: Mapped<f32>,
}

/// Reads the image of a sample as its recipe says, unmixed, and its target into what has room for one. Returns its class and case.
fn load(
    images: &ImageSamples,
    place: SamplePlace,
    scratch: &mut Scratch,
    image: &mut [f32],
    target: &mut [f32],
) -> Result<(u8, usize, Recipe), LoaderError> {
    let (class, at) = images.case(place);
    let at = at as usize;
    let Some(case) = images.dataset.cases.get(at) else {
        return Err(LoaderError::UnknownCase { case: format!("number {at}") });
    };
    let SamplePlace { mode, seed, step, sample } = place;
    let recipe = match mode {
        Mode::Training => {
            images.augmentation.recipe(seed, step, sample, images.batch, images.pipeline.extent())
        }
        Mode::Validation => Recipe::NONE,
    };
    let loaded = images.pipeline.load_cached(at, &case.path, &images.cache, &recipe, scratch, image);
    loaded.map_err(|problem| LoaderError::Image {
        step,
        case: case.name.clone(),
        problem: Box::new(problem),
    })?;
    images.answer.write_target(class, &case.labels, target);
    Ok((class, at, recipe))
}

impl SampleWorker for ImageWorker {
    fn make(
        &mut self,
        place: SamplePlace,
        image: &mut [f32],
        labels: &mut [u8],
        shift: &mut [f32],
    ) -> Result<usize, LoaderError> {
        let ImageWorker { images, scratch, partner } = self;
        let start = processor_nanos();
        let (class, at, recipe) = load(images, place, scratch, image, shift)?;
        if let Some(mixing) = recipe.mixing {
            let (other, target) = partner.split_at_mut(image.len());
            // Another image of the same step with its own augmentation, except its own mixing.
            let of_partner = SamplePlace { sample: mixing.partner as u64, ..place };
            load(images, of_partner, scratch, other, target)?;
            mix(image, other, mixing.share);
            mix(shift, target, mixing.share);
        }
        let label = images.answer.label(class);
        labels.fill(label);
        // The shift is the target of the label minus the soft target.
        for (output, value) in shift.iter_mut().enumerate() {
            *value = f32::from(u8::from(output == usize::from(label))) - *value;
        }
        images.on_images.fetch_add(processor_nanos() - start, Ordering::Relaxed);
        Ok(at)
    }

    fn spent_on_maps(&self, _: u64) {}
}
