//! Images that have one class each, as samples of batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_image::{
    Augmentation, ImageDataset, Pipeline, PreparedCache, PreparedStatistics, Recipe, Scratch,
};
use plimsoll_memory::{Budget, Bytes, Reservation};

use crate::Mode;
use crate::loader::order::{Order, Sampling};
use crate::loader::samples::{SamplePlace, SampleWorker, Samples, processor_nanos};
use crate::loader::{LoaderError, MakingTimes, SampleShape, Targets};

/// What is read of the images of a fold, and in which order.
#[derive(Clone, Debug)]
pub struct ImageFold {
    /// Cases to train on, by their place in the data set, each with its class.
    pub train: Vec<(u8, u32)>,
    /// The same of those to validate with. Each is validated once, in this order.
    pub val: Vec<(u8, u32)>,
    /// How the images of a step are chosen.
    pub sampling: Sampling,
    /// Images of a step.
    pub batch: usize,
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
    targets: Targets,
    on_images: AtomicU64,
    _lists: Reservation,
}

impl ImageSamples {
    /// Of a fold whose cases are all in the data set, and of which it has one to train on at least. Prepared images are kept within
    /// `cache`.
    ///
    /// # Errors
    /// If the fold is empty, or there is no room for its lists.
    pub fn new(
        dataset: Arc<ImageDataset>,
        fold: ImageFold,
        (pipeline, augmentation): (Pipeline, Augmentation),
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
            cache,
            targets: Targets::default(),
            on_images: AtomicU64::default(),
            dataset,
            _lists: lists,
        })
    }

    /// What the lists of a fold reserve of a data set of so many cases.
    pub fn list_bytes(cases: usize) -> Bytes {
        Bytes::of(cases.saturating_mul(size_of::<(u8, u32)>()))
    }

    /// What the cache holds and did.
    pub fn cache(&self) -> PreparedStatistics {
        self.cache.statistics()
    }

    /// Lets the cache keep so much from now on; what it has, it keeps.
    pub fn limit_cache(&self, bytes: Bytes) {
        self.cache.limit_to(bytes);
    }

    /// Processor time of making samples so far.
    pub fn times(&self) -> MakingTimes {
        let nanoseconds = Duration::from_nanos(self.on_images.load(Ordering::Relaxed));
        MakingTimes { patch_seconds: nanoseconds.as_secs_f64(), map_seconds: 0.0 }
    }

    /// How many images are validated.
    pub fn validated(&self) -> usize {
        self.validation.len()
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
        Ok(Box::new(ImageWorker { images: self, scratch }))
    }
}

/// Makes samples of images on one thread.
struct ImageWorker {
    images: Arc<ImageSamples>,
    scratch: Scratch,
}

impl SampleWorker for ImageWorker {
    fn make(
        &mut self,
        place: SamplePlace,
        image: &mut [f32],
        labels: &mut [u8],
    ) -> Result<usize, LoaderError> {
        let ImageSamples { dataset, pipeline, augmentation, cache, batch, on_images, .. } = &*self.images;
        let (class, at) = self.images.case(place);
        let at = at as usize;
        let Some(case) = dataset.cases.get(at) else {
            return Err(LoaderError::UnknownCase { case: format!("number {at}") });
        };
        let SamplePlace { mode, seed, step, sample } = place;
        let start = processor_nanos();
        let recipe = match mode {
            Mode::Training => augmentation.recipe(seed, step, sample, *batch, pipeline.extent()),
            Mode::Validation => Recipe::NONE,
        };
        pipeline.load_cached((at, &case.path), cache, &recipe, &mut self.scratch, image).map_err(
            |problem| LoaderError::Image { step, case: case.name.clone(), problem: Box::new(problem) },
        )?;
        labels.fill(class);
        on_images.fetch_add(processor_nanos() - start, Ordering::Relaxed);
        Ok(at)
    }

    fn spent_on_maps(&self, _: u64) {}
}
