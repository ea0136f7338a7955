//! Threads that share the work on planes of logits.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use plimsoll_memory::Bytes;

/// They keep what is large in memory that was reserved.
const STACK: usize = 128 << 10;
/// A thread's guard page and thread-local data.
const BESIDE_STACK: usize = 16 << 10;

/// What the stacks of `threads` threads take, the caller's not counted.
pub(crate) fn stacks(threads: usize) -> Bytes {
    Bytes::of(threads.saturating_sub(1).saturating_mul(STACK + BESIDE_STACK))
}

/// Runs `work` on each item, on one thread for each of `states`, the caller's the first of them. Items are to be independent of each
/// other: which thread takes one is not fixed. Where the system refuses a thread, the others do its work.
///
/// # Panics
/// If there is no state: nobody would do the work.
pub(crate) fn share<I: Send, S: Send>(
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
    let take = &take;
    thread::scope(|scope| {
        let spawn = |state| {
            let thread = thread::Builder::new().name("logits".into()).stack_size(STACK);
            thread.spawn_scoped(scope, move || take(state)).ok()
        };
        let spawned: Vec<_> = others.iter_mut().filter_map(spawn).collect();
        own.iter_mut().for_each(take);
        for thread in spawned {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_taken_once_however_many_threads_there_are() {
        for threads in 1..5 {
            let (mut items, mut taken) = (vec![0; 100], vec![0; threads]);
            share(items.iter_mut(), &mut taken, |item, taken| {
                *item += 1;
                *taken += 1;
            });
            assert_eq!((items, taken.iter().sum::<i32>()), (vec![1; 100], 100));
        }
    }
}
