//! The queue between the threads that fill slots and the caller that takes batches.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::loader::samples::Filler;
use crate::loader::slot::BatchBuffer;
use crate::loader::{LoaderConfig, LoaderError};

/// Shared by the threads, the loader and the batches that are lent.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Signals a free slot, or the end.
    freed: Condvar,
    /// Signals a batch that is ready, or an error.
    made: Condvar,
    stop: AtomicBool,
}

struct QueueState {
    free: Vec<BatchBuffer>,
    ready: BTreeMap<u64, Result<BatchBuffer, LoaderError>>,
    next_step: u64,
    /// The number of batches that are lent to the caller.
    lent: usize,
    slots: usize,
    /// No batch is made from this step on. Those before it are made, or have an error of their own.
    ends_at: u64,
}

impl Queue {
    /// A queue of free slots, whose first step is `config.first_step`.
    pub(crate) fn new(config: LoaderConfig, free: Vec<BatchBuffer>) -> Queue {
        Queue {
            state: Mutex::new(QueueState {
                slots: free.len(),
                free,
                ready: BTreeMap::new(),
                next_step: config.first_step,
                lent: 0,
                ends_at: u64::MAX,
            }),
            freed: Condvar::new(),
            made: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // The state is consistent between any two statements that can panic, so a poisoned lock is still good.
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

    /// Stops the threads between two samples.
    pub(crate) fn stop(&self) {
        // Under the lock, so that no thread misses the signal between checking the flag and waiting.
        let _state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        self.freed.notify_all();
    }

    /// Waits for a free slot and the next step; `None` at the end.
    fn take_free(&self) -> Option<(BatchBuffer, u64)> {
        let mut state = self.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) || state.next_step >= state.ends_at {
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

    /// Waits for the batch of `step`, and lends it.
    ///
    /// # Errors
    /// If the batch could not be made, the queue ended before it, or all slots are lent.
    pub(crate) fn lend(&self, step: u64) -> Result<BatchBuffer, LoaderError> {
        let mut state = self.lock();
        loop {
            match state.ready.remove(&step) {
                Some(Ok(slot)) => {
                    state.lent += 1;
                    return Ok(slot);
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
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fills slots until the queue ends. Each thread runs it.
    pub(crate) fn work(&self, filler: &mut Filler) {
        while let Some((mut slot, step)) = self.take_free() {
            let filled = catch_unwind(AssertUnwindSafe(|| filler.fill(step, &mut slot, &self.stop)));
            let outcome = match filled {
                Ok(Ok(())) => Ok(slot),
                Ok(Err(problem)) => Err(problem),
                Err(_) => Err(LoaderError::Panicked { step }),
            };
            let mut state = self.lock();
            if outcome.is_err() {
                // Batches after an error are of no use; those before it are still being made.
                state.ends_at = state.ends_at.min(step + 1);
                self.freed.notify_all();
            }
            state.ready.insert(step, outcome);
            drop(state);
            self.made.notify_all();
        }
    }
}
