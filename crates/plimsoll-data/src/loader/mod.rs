//! Batches, prefetched by threads within a fixed amount of memory.
//!
//! A batch occupies a slot: one buffer for images and one for labels. Slots are allocated once. A thread takes a free slot and
//! the next step number, fills the slot and marks it ready; the caller returns it by dropping the [`Batch`]. A patch is a
//! function of seed, step and sample alone, so the contents of a batch depend neither on the number of threads nor on their
//! order.

mod batch;
mod config;
mod error;
mod fill;
mod queue;
mod slot;
mod target;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use plimsoll_memory::Budget;

pub use batch::Batch;
pub use config::LoaderConfig;
pub use error::LoaderError;
pub use fill::{BatchReader, MakingTimes, Patches};
pub use slot::{BatchBuffer, BatchShape};
pub use target::{TargetKind, TargetMap, Targets};

use crate::patch::Scratch;
use config::STACK;
use queue::Queue;
use target::TargetScratch;

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
        patches: Arc<Patches>,
        budget: &Budget,
    ) -> Result<Loader, LoaderError> {
        let shape = patches.batch_shape(config.batch_size);
        let memory = budget.part("loader", config.bytes(shape.channels, shape.patch, patches.targets())?)?;
        let slot = |_| BatchBuffer::new(shape, config.mode, patches.targets(), &memory);
        let free = (0..config.slots).map(slot).collect::<Result<Vec<_>, _>>()?;
        let scratch = |_| -> Result<_, LoaderError> {
            let maps = TargetScratch::new(patches.targets(), config.mode, &memory)?;
            Ok((Scratch::new(&memory, config.scratch)?, maps))
        };
        let scratch = (0..config.threads).map(scratch).collect::<Result<Vec<_>, _>>()?;
        let queue = Arc::new(Queue::new(config, patches, free));
        // Built first, so that dropping it stops the threads that were started if a later one cannot be.
        let mut loader = Loader { queue, threads: Vec::new(), next_step: config.first_step };
        for (mut scratch, mut maps) in scratch {
            let queue = Arc::clone(&loader.queue);
            let thread = thread::Builder::new()
                .name("loader".into())
                .stack_size(STACK)
                .spawn(move || queue.work(&mut scratch, &mut maps))
                .map_err(LoaderError::Thread)?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// Waits for the batch of the next step. Drop it to free its slot.
    ///
    /// # Errors
    /// If a patch of this step could not be loaded: the error names the case and the file, and no more batches follow.
    /// Also if every slot is lent, so that no batch could ever be filled.
    pub fn next_batch(&mut self) -> Result<Batch, LoaderError> {
        let step = self.next_step;
        let slot = self.queue.lend(step)?;
        self.next_step += 1;
        Ok(Batch::new(step, slot, Arc::clone(&self.queue)))
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
