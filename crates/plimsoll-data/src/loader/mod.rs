//! Batches, made ahead of time by threads within a fixed amount of memory.
//!
//! A batch has a slot: a buffer for images and one for labels. Slots are made once. A thread takes a free slot and the
//! next step number, fills the slot, and puts it where the caller finds it; the caller gives it back by dropping the
//! [`Batch`]. Since a patch depends on nothing but seed, step and sample, neither the number of threads nor their order
//! changes what is in a batch.

mod config;
mod error;
mod fill;
mod slot;
mod target;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use plimsoll_memory::Budget;

pub use config::LoaderConfig;
pub use error::LoaderError;
pub use fill::{BatchReader, MakingTimes, Patches};
pub use slot::{Batch, BatchBuffer, BatchShape};
pub use target::{TargetKind, TargetMap, Targets};

use crate::Mode;
use crate::patch::Scratch;
use target::TargetScratch;

/// Threads keep what is large in their scratch, so they need little stack.
const STACK: usize = 512 << 10;

/// What a thread has beside its scratch: its stack, and buffers and the decompressor's window of an open file.
const THREAD_BYTES: u64 = STACK as u64 + (256 << 10);

/// Makes batches for consecutive steps.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    next_step: u64,
}

/// What the threads and the batches that are lent have in common.
pub(crate) struct Shared {
    patches: Arc<Patches>,
    mode: Mode,
    seed: u64,
    state: Mutex<State>,
    /// A slot is free, or the end has come.
    freed: Condvar,
    /// A batch is ready, or cannot be made.
    made: Condvar,
    stop: AtomicBool,
}

pub(crate) struct State {
    free: Vec<BatchBuffer>,
    ready: BTreeMap<u64, Result<BatchBuffer, LoaderError>>,
    next_step: u64,
    /// Batches that the caller has.
    lent: usize,
    slots: usize,
    /// The first step that is known not to be made. Those before it are, or have an error of their own.
    ends_at: u64,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot back.
    pub(crate) fn give_back(&self, slot: BatchBuffer) {
        let mut state = self.lock();
        state.lent -= 1;
        state.free.push(slot);
        drop(state);
        self.freed.notify_one();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        // Under the lock, so that no thread misses it between looking and waiting.
        let _state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        self.freed.notify_all();
    }

    /// A free slot and the next step, once there is one; `None` at the end.
    fn take(&self) -> Option<(BatchBuffer, u64)> {
        let mut state = self.lock();
        loop {
            if self.stopped() || state.next_step >= state.ends_at {
                return None;
            }
            if let Some(slot) = state.free.pop() {
                let step = state.next_step;
                state.next_step += 1;
                return Some((slot, step));
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, scratch: &mut Scratch, maps: &mut TargetScratch) {
        while let Some((mut slot, step)) = self.take() {
            let filled = catch_unwind(AssertUnwindSafe(|| {
                self.patches.fill(self.mode, self.seed, step, &mut slot, (scratch, maps), &self.stop)
            }));
            let outcome = match filled {
                Ok(Ok(())) => Ok(slot),
                Ok(Err(problem)) => Err(problem),
                Err(_) => Err(LoaderError::Panicked { step }),
            };
            let mut state = self.lock();
            if outcome.is_err() {
                // What comes after an error is of no use. Batches before it are being made.
                state.ends_at = state.ends_at.min(step + 1);
                self.freed.notify_all();
            }
            state.ready.insert(step, outcome);
            drop(state);
            self.made.notify_all();
        }
    }
}

impl Loader {
    /// Starts threads that make batches for `config.first_step` and the steps after it. Everything they need is reserved
    /// from `budget` first: as much as [`LoaderConfig::bytes`] says.
    ///
    /// # Errors
    /// If the configuration makes no sense, the budget has no room, or the system refuses a thread.
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
        let state = State {
            free,
            ready: BTreeMap::new(),
            next_step: config.first_step,
            lent: 0,
            slots: config.slots,
            ends_at: u64::MAX,
        };
        let shared = Arc::new(Shared {
            patches,
            mode: config.mode,
            seed: config.seed,
            state: Mutex::new(state),
            freed: Condvar::new(),
            made: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        // Made first, so that the threads that were started are stopped if one cannot be.
        let mut loader = Loader { shared, threads: Vec::new(), next_step: config.first_step };
        for (mut scratch, mut maps) in scratch {
            let shared = Arc::clone(&loader.shared);
            let thread = thread::Builder::new()
                .name("loader".into())
                .stack_size(STACK)
                .spawn(move || shared.work(&mut scratch, &mut maps))
                .map_err(LoaderError::Thread)?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// The batch of the next step, once it is made. Drop it to let its slot be filled again.
    ///
    /// # Errors
    /// If a patch of this step could not be made: the error names the case and the file. After that there are no more
    /// batches. Also if every slot is lent, so that none could ever be made.
    pub fn next_batch(&mut self) -> Result<Batch, LoaderError> {
        let step = self.next_step;
        let mut state = self.shared.lock();
        loop {
            match state.ready.remove(&step) {
                Some(Ok(slot)) => {
                    state.lent += 1;
                    drop(state);
                    self.next_step += 1;
                    return Ok(Batch::new(step, slot, Arc::clone(&self.shared)));
                }
                Some(Err(problem)) => {
                    state.ends_at = state.ends_at.min(step);
                    return Err(problem);
                }
                None => {}
            }
            if step >= state.ends_at {
                return Err(LoaderError::Stopped { step });
            }
            if state.lent == state.slots {
                return Err(LoaderError::AllLent { slots: state.slots });
            }
            state = self.shared.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so already.
            let _ = thread.join();
        }
    }
}
