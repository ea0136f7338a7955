//! The queue between the threads that fill slots and the caller that takes batches.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
    /// The number of calls of [`Queue::seek`]. Batches that were begun before the last of them are discarded.
    seeks: u64,
    /// No batch is made from this step on. Those before it are made, or have an error of their own.
    ends_at: u64,
}

/// A slot to fill.
struct Assignment {
    slot: BatchBuffer,
    step: u64,
    /// [`QueueState::seeks`] when it was taken.
    seeks: u64,
}

impl QueueState {
    /// Lends the batch of `step` if it is ready.
    fn lend(&mut self, step: u64) -> Result<Option<BatchBuffer>, LoaderError> {
        match self.ready.remove(&step) {
            Some(Ok(slot)) => {
                self.lent += 1;
                return Ok(Some(slot));
            }
            Some(Err(problem)) => {
                self.ends_at = self.ends_at.min(step);
                return Err(problem);
            }
            None => {}
        }
        if step >= self.ends_at {
            return Err(LoaderError::Stopped { step });
        }
        if self.lent == self.slots {
            return Err(LoaderError::AllLent { slots: self.slots });
        }
        Ok(None)
    }
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
                seeks: 0,
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

    /// Continues with the batch of another step. Batches that are ready are discarded now, and those that threads are filling once they are
    /// filled. Returns `false` if the queue has ended, and makes no more batches.
    pub(crate) fn seek(&self, step: u64) -> bool {
        let mut state = self.lock();
        if state.ends_at < u64::MAX {
            return false;
        }
        state.seeks += 1;
        state.next_step = step;
        let ready = std::mem::take(&mut state.ready);
        state.free.extend(ready.into_values().flatten());
        drop(state);
        self.freed.notify_all();
        true
    }

    /// Waits for a free slot and the next step; `None` at the end.
    fn take_free(&self) -> Option<Assignment> {
        let mut state = self.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) || state.next_step >= state.ends_at {
                return None;
            }
            if let Some(slot) = state.free.pop() {
                let (step, seeks) = (state.next_step, state.seeks);
                state.next_step += 1;
                return Some(Assignment { slot, step, seeks });
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
            if let Some(slot) = state.lend(step)? {
                return Ok(slot);
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the batch of `step` for at most `patience`, and lends it. Returns `None` if it is not ready by then.
    ///
    /// # Errors
    /// Returns the errors of [`lend`](Self::lend).
    pub(crate) fn lend_within(
        &self,
        step: u64,
        patience: Duration,
    ) -> Result<Option<BatchBuffer>, LoaderError> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(slot) = state.lend(step)? {
                return Ok(Some(slot));
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fills slots until the queue ends. Each thread runs it.
    pub(crate) fn work(&self, filler: &mut Filler) {
        while let Some(Assignment { mut slot, step, seeks }) = self.take_free() {
            let filled = catch_unwind(AssertUnwindSafe(|| filler.fill(step, &mut slot, &self.stop)));
            let mut state = self.lock();
            if state.seeks != seeks {
                // Nobody waits for this step any more, nor for its error.
                state.free.push(slot);
                continue;
            }
            let outcome = match filled {
                Ok(Ok(())) => Ok(slot),
                Ok(Err(problem)) => Err(problem),
                Err(_) => Err(LoaderError::Panicked { step }),
            };
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
