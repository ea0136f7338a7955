//! Single batches on demand.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};

use crate::Mode;
use crate::loader::samples::Filler;
use crate::loader::slot::{BatchBuffer, BatchShape};
use crate::loader::{LoaderError, Samples, Targets};

/// Loads single batches on demand, on the calling thread.
pub struct BatchReader {
    filler: Filler,
    batch: BatchBuffer,
    never: AtomicBool,
}

impl BatchReader {
    /// The bytes that a reader of batches of this shape with these targets reserves.
    ///
    /// # Errors
    /// If a batch does not fit the address space.
    pub fn bytes(
        shape: BatchShape,
        mode: Mode,
        scratch: Bytes,
        targets: &Targets,
    ) -> Result<Bytes, LoaderError> {
        targets.check()?;
        Ok(BatchBuffer::bytes(shape, mode, targets)? + Filler::bytes(mode, scratch, targets)?)
    }

    /// A reader with one batch and one scratch, reserved from `budget`.
    ///
    /// # Errors
    /// If the budget has no room for them.
    pub fn new(
        samples: Arc<dyn Samples>,
        mode: Mode,
        seed: u64,
        batch_size: usize,
        scratch: Bytes,
        budget: &Budget,
    ) -> Result<BatchReader, LoaderError> {
        let shape = BatchShape { batch_size, sample: samples.shape() };
        let bytes = BatchReader::bytes(shape, mode, scratch, samples.targets())?;
        let memory = budget.part("batch reader", bytes)?;
        let batch = BatchBuffer::new(shape, mode, samples.targets(), &memory)?;
        let filler = Filler::new(samples, mode, seed, scratch, &memory)?;
        Ok(BatchReader { filler, batch, never: AtomicBool::new(false) })
    }

    /// The batch of a step, identical to the batch of a [`Loader`](crate::Loader).
    ///
    /// # Errors
    /// If a sample cannot be loaded; the error names the case and the file.
    pub fn load(&mut self, step: u64) -> Result<&BatchBuffer, LoaderError> {
        self.filler.fill(step, &mut self.batch, &self.never)?;
        Ok(&self.batch)
    }
}
