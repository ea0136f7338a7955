//! Batches, prefetched by threads within a fixed amount of memory.
//!
//! A batch occupies a slot: one buffer for images and one for labels. Slots are allocated once. A thread takes a free slot and
//! the next step number, fills the slot and marks it ready; the caller returns it by dropping the [`Batch`]. A sample is a
//! function of seed, step and its number alone, so the contents of a batch depend neither on the number of threads nor on their
//! order.

mod answer;
mod batch;
mod config;
mod error;
mod images;
mod order;
mod patches;
mod queue;
mod reader;
mod samples;
mod slot;
mod target;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_memory::Budget;

pub use answer::Answer;
pub use batch::Batch;
pub use config::{LoaderConfig, SampleNumbers};
pub use error::LoaderError;
pub use images::{ImageFold, ImageSamples};
pub use order::Sampling;
pub use patches::{MakingTimes, Patches};
pub use reader::BatchReader;
pub use samples::{SamplePlace, SampleWorker, Samples};
pub use slot::{BatchBuffer, BatchShape, SampleShape};
pub use target::{TargetKind, TargetMap, Targets};

use config::STACK;
use queue::Queue;
use samples::Filler;

/// Prefetches the batches of consecutive steps.
pub struct Loader {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    next_step: u64,
}

impl Loader {
    /// Starts threads that fill batches for `config.first_step` and the steps after it. All of their memory,
    /// [`LoaderConfig::bytes`], is reserved from `budget` first.
    ///
    /// # Errors
    /// If a setting is 0, the budget has no room, or a thread cannot be started.
    pub fn start(
        config: LoaderConfig,
        samples: Arc<dyn Samples>,
        budget: &Budget,
    ) -> Result<Loader, LoaderError> {
        let shape = BatchShape { batch_size: config.batch_size, sample: samples.shape() };
        let memory = budget.part("loader", config.bytes(shape.sample, samples.targets())?)?;
        let slot = |_| BatchBuffer::new(shape, config.mode, samples.targets(), &memory);
        let free = (0..config.slots).map(slot).collect::<Result<Vec<_>, _>>()?;
        let filler = |_| {
            let filler =
                Filler::new(Arc::clone(&samples), config.mode, config.seed, config.scratch, &memory)?;
            Ok::<_, LoaderError>(filler.with_numbers(config.numbers))
        };
        let fillers = (0..config.threads).map(filler).collect::<Result<Vec<_>, _>>()?;
        let queue = Arc::new(Queue::new(config, free));
        // Built first, so that dropping it stops the threads that were started if a later one cannot be.
        let mut loader = Loader { queue, threads: Vec::new(), next_step: config.first_step };
        for mut filler in fillers {
            let queue = Arc::clone(&loader.queue);
            let thread = thread::Builder::new()
                .name("loader".into())
                .stack_size(STACK)
                .spawn(move || queue.work(&mut filler))
                .map_err(LoaderError::Thread)?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// Waits for the batch of the next step. Drop it to free its slot.
    ///
    /// # Errors
    /// If a sample of this step could not be loaded: the error names the case and the file, and no more batches follow.
    /// Also if every slot is lent, so that no batch could ever be filled.
    pub fn next_batch(&mut self) -> Result<Batch, LoaderError> {
        let step = self.next_step;
        let slot = self.queue.lend(step)?;
        self.next_step += 1;
        Ok(Batch::new(step, slot, Arc::clone(&self.queue)))
    }

    /// Waits for the batch of the next step, for at most `patience`. Returns `None` if it is not ready by then.
    ///
    /// # Errors
    /// Returns the errors of [`next_batch`](Self::next_batch).
    pub fn next_batch_within(&mut self, patience: Duration) -> Result<Option<Batch>, LoaderError> {
        let step = self.next_step;
        let Some(slot) = self.queue.lend_within(step, patience)? else { return Ok(None) };
        self.next_step += 1;
        Ok(Some(Batch::new(step, slot, Arc::clone(&self.queue))))
    }

    /// Continues with the batch of another step, within the same memory. Returns `false` if an error has ended the loader.
    pub fn seek(&mut self, step: u64) -> bool {
        self.next_step = step;
        self.queue.seek(step)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.queue.stop();
        for thread in self.threads.drain(..) {
            // Panics were caught in the thread and reported as errors of their batches.
            let _ = thread.join();
        }
    }
}
