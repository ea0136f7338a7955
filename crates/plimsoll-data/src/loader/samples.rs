//! The samples of batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes};

use crate::Mode;
use crate::loader::slot::BatchBuffer;
use crate::loader::target::{BatchPlace, TargetScratch};
use crate::loader::{LoaderError, SampleNumbers, SampleShape, Targets};
use crate::patch::Scratch;

/// The place of a sample in a run. The sample follows from this alone, whichever thread makes it and whatever
/// was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePlace {
    /// Training or validation.
    pub mode: Mode,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The step of its batch. Validated samples are numbered through, each a step of its own, so that they are the same in
    /// batches of any size.
    pub step: u64,
    /// Its number in the batch.
    pub sample: u64,
}

/// Samples of one shape.
pub trait Samples: Send + Sync {
    /// The shape.
    fn shape(&self) -> SampleShape;

    /// Maps that follow from a sample's labels.
    fn targets(&self) -> &Targets;

    /// Creates the worker that makes samples on one thread, with `scratch` bytes reserved from `budget`.
    ///
    /// # Errors
    /// If the budget has no room.
    fn worker(self: Arc<Self>, scratch: Bytes, budget: &Budget)
    -> Result<Box<dyn SampleWorker>, LoaderError>;
}

/// Makes samples on one thread.
pub trait SampleWorker: Send {
    /// Makes a sample: values `[channel][depth][height][width]`, labels `[depth][height][width]`, and by how much the target of its
    /// label is more than its soft target, `[output]` of [`SampleShape::soft`]. Returns its case, by its index in the data set's
    /// list.
    ///
    /// # Errors
    /// If a file of the case cannot be read, or has changed.
    fn make(
        &mut self,
        place: SamplePlace,
        image: &mut [f32],
        labels: &mut [u8],
        shift: &mut [f32],
    ) -> Result<usize, LoaderError>;

    /// Adds processor time that was spent on target maps, in nanoseconds.
    fn spent_on_maps(&self, nanoseconds: u64);
}

/// Fills batches on one thread.
pub(crate) struct Filler {
    samples: Arc<dyn Samples>,
    worker: Box<dyn SampleWorker>,
    maps: TargetScratch,
    mode: Mode,
    seed: u64,
    numbers: SampleNumbers,
}

impl Filler {
    pub(crate) fn new(
        samples: Arc<dyn Samples>,
        mode: Mode,
        seed: u64,
        scratch: Bytes,
        budget: &Budget,
    ) -> Result<Filler, LoaderError> {
        let maps = TargetScratch::new(samples.targets(), mode, budget)?;
        let worker = Arc::clone(&samples).worker(scratch, budget)?;
        Ok(Filler { samples, worker, maps, mode, seed, numbers: SampleNumbers::ALL })
    }

    /// The same for some samples of each training batch.
    pub(crate) fn with_numbers(self, numbers: SampleNumbers) -> Filler {
        Filler { numbers, ..self }
    }

    /// The bytes that it reserves.
    pub(crate) fn bytes(mode: Mode, scratch: Bytes, targets: &Targets) -> Result<Bytes, LoaderError> {
        Ok(Scratch::reserves(scratch)? + TargetScratch::bytes(targets, mode)?)
    }

    /// Fills the batch of a step. Returns early, between two samples, once `stop` is set.
    pub(crate) fn fill(
        &mut self,
        step: u64,
        batch: &mut BatchBuffer,
        stop: &AtomicBool,
    ) -> Result<(), LoaderError> {
        let Filler { samples, worker, maps, mode, seed, numbers } = self;
        let (shape, size) = (batch.shape().sample, batch.shape().batch_size as u64);
        let images = batch.images.chunks_exact_mut(shape.values().max(1));
        let labels = batch.labels.chunks_exact_mut(shape.label_count().max(1));
        for ((sample, case), (image, labels)) in (0..).zip(&mut batch.cases).zip(images.zip(labels)) {
            let at = sample as usize * shape.soft;
            let shift = &mut batch.shifts[at..at + shape.soft];
            if stop.load(Ordering::Relaxed) {
                return Err(LoaderError::Stopped { step });
            }
            let place = match mode {
                Mode::Training => SamplePlace { mode: *mode, seed: *seed, step, sample: numbers.at(sample) },
                Mode::Validation => {
                    SamplePlace { mode: *mode, seed: *seed, step: step * size + sample, sample: 0 }
                }
            };
            *case = worker.make(place, image, labels, shift)?;
            let start = processor_nanos();
            let place = BatchPlace { mode: *mode, step, sample: sample as usize };
            samples.targets().fill(place, labels, shape.labels, &mut batch.targets, maps)?;
            worker.spent_on_maps(processor_nanos() - start);
        }
        Ok(())
    }
}

/// The processor time of this thread in nanoseconds.
pub(crate) fn processor_nanos() -> u64 {
    // A thread that computes for 584 years would exceed it.
    plimsoll_memory::thread_time().as_nanos() as u64
}
