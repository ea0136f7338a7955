//! Work that is divided into units by shape alone and shared among threads.
//!
//! The memory of a unit is disjoint from that of all others, so the result does not depend on which thread runs it, or
//! when.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread;

/// A phase of the work, which starts when the preceding phase is complete.
struct Phase {
    count: usize,
    grain: usize,
    next: AtomicUsize,
    done: AtomicUsize,
}

/// Signals a thread's panic to the other threads, which wait for its units.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Relaxed);
    }
}

/// Runs `work(worker, phase, units)` for every unit of the first phase, then for every one of the next, on one thread
/// per worker; the calling thread takes the first of them. A worker is a thread's exclusive state. `phases` gives the
/// number of units of each phase, and how many are taken at a time.
pub(crate) fn in_phases<W: Send, const N: usize>(
    workers: impl Iterator<Item = W>,
    phases: [(usize, usize); N],
    work: impl Fn(&mut W, usize, Range<usize>) + Sync,
) {
    let phases = phases.map(|(count, grain)| Phase {
        count,
        grain,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
    });
    let failed = AtomicBool::new(false);
    let take = |mut worker: W| {
        let _alarm = Alarm(&failed);
        let mut before: Option<&Phase> = None;
        for (number, phase) in phases.iter().enumerate() {
            // The wait is no longer than one portion, so spinning beats sleeping.
            while before.is_some_and(|before| before.done.load(Acquire) < before.count) {
                if failed.load(Relaxed) {
                    return;
                }
                thread::yield_now();
            }
            before = Some(phase);
            let Phase { count, grain, next, done } = phase;
            loop {
                let start = next.fetch_add(*grain, Relaxed);
                if start >= *count {
                    break;
                }
                let end = (start + grain).min(*count);
                work(&mut worker, number, start..end);
                done.fetch_add(end - start, Release);
            }
        }
    };
    // No more threads than there are portions.
    let portions = phases.iter().map(|phase| phase.count.div_ceil(phase.grain)).max();
    let mut workers = workers.take(portions.unwrap_or(0)).peekable();
    let Some(own) = workers.next() else { return };
    if workers.peek().is_none() {
        // A scope would allocate.
        return take(own);
    }
    let take = &take;
    thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || take(worker));
        }
        take(own);
    });
}

/// Runs `work` for each item on a thread of its own, the first on the calling thread.
pub(crate) fn each<I: Send>(items: impl Iterator<Item = I>, work: impl Fn(I) + Sync) {
    let mut items = items.peekable();
    let Some(own) = items.next() else { return };
    if items.peek().is_none() {
        return work(own);
    }
    let work = &work;
    thread::scope(|scope| {
        for item in items {
            scope.spawn(move || work(item));
        }
        work(own);
    });
}

/// A slice whose disjoint parts are written by several threads.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: the only way to the elements is `part`, whose callers vouch that no two threads hold the same element.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: a `&mut [T]` could be sent.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Takes the whole slice.
    pub(crate) fn new(whole: &'a mut [T]) -> Parts<'a, T> {
        Parts { start: whole.as_mut_ptr(), len: whole.len(), whole: PhantomData }
    }

    /// The address of the whole slice, for [`crate::simd::prefetch`].
    #[inline(always)]
    pub(crate) fn whole(&self) -> *const [T] {
        std::ptr::slice_from_raw_parts(self.start, self.len)
    }

    /// `len` elements from `start`, to be read only.
    ///
    /// # Safety
    /// While the result lives, no [`Parts::part`] that overlaps it may live, on any thread.
    ///
    /// # Panics
    /// If they are not within the slice.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, start: usize, len: usize) -> &[T] {
        self.check(start, len);
        // SAFETY: within the slice, as was just checked; not written, as the caller vouches; alive, as `'a` outlives `self`.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }
    }

    /// `len` elements from `start`.
    ///
    /// # Safety
    /// While the result lives, nothing else that overlaps it may live, on any thread.
    ///
    /// # Panics
    /// If they are not within the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        self.check(start, len);
        // SAFETY: within the slice, as was just checked; alone, as the caller vouches; alive, as `'a` outlives `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }

    #[inline(always)]
    fn check(&self, start: usize, len: usize) {
        assert!(start <= self.len && len <= self.len - start, "{len} elements from {start} of {}", self.len);
    }
}
