//! Threads that share the work on planes of logits.

use std::sync::{Mutex, PoisonError};

use plimsoll_memory::Bytes;
use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// They keep what is large in memory that was reserved.
const STACK: usize = 128 << 10;
/// A thread's guard page, thread-local data and queue of work.
const BESIDE_STACK: usize = 16 << 10;

/// What the stacks of `threads` threads take, the caller's not counted.
pub(crate) fn stacks(threads: usize) -> Bytes {
    Bytes::of(threads.saturating_sub(1).saturating_mul(STACK + BESIDE_STACK))
}

/// Threads that share the work on planes of logits: the caller's, and others that wait for it from one plane to the next. Starting them anew
/// for each plane would take longer than many planes do, and some systems leave a new thread on its starter's processor for milliseconds.
pub(crate) struct Crew {
    threads: usize,
    others: Option<ThreadPool>,
}

impl Crew {
    /// So many threads, the caller's one of them. Where the system refuses one, the caller's does the work alone.
    pub(crate) fn new(threads: usize) -> Crew {
        let start = |others: usize| {
            let builder = ThreadPoolBuilder::new().num_threads(others).stack_size(STACK);
            builder.thread_name(|_| "logits".into()).build().ok()
        };
        // Of none the library would make as many as there are processors.
        let others = threads.checked_sub(1).filter(|others| *others > 0).and_then(start);
        Crew { threads, others }
    }

    /// How many they are to be.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on each item, on one thread for each of `states`, the caller's the first of them. Items are to be independent of each
    /// other: which thread takes one is not fixed.
    ///
    /// # Panics
    /// If there is no state: nobody would do the work. If `work` does.
    pub(crate) fn share<I: Send, S: Send>(
        &self,
        items: impl Iterator<Item = I> + Send,
        states: &mut [S],
        work: impl Fn(I, &mut S) + Sync,
    ) {
        let items = Mutex::new(items);
        let take = |state: &mut S| {
            loop {
                let item = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                match item {
                    Some(item) => work(item, state),
                    None => return,
                }
            }
        };
        let (own, others) = states.split_at_mut(1);
        let Some(pool) = &self.others else {
            return own.iter_mut().for_each(take);
        };
        let take = &take;
        pool.in_place_scope(|scope| {
            others.iter_mut().for_each(|state| scope.spawn(move |_| take(state)));
            own.iter_mut().for_each(take);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_taken_once_however_many_threads_there_are() {
        for threads in 1..5 {
            let (mut items, mut taken) = (vec![0; 100], vec![0; threads]);
            Crew::new(threads).share(items.iter_mut(), &mut taken, |item, taken| {
                *item += 1;
                *taken += 1;
            });
            assert_eq!((items, taken.iter().sum::<i32>()), (vec![1; 100], 100));
        }
    }
}
