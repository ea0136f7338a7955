//! A global allocator that counts every heap allocation of the process.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::Bytes;

/// The system's allocator with counters. A binary installs it with `#[global_allocator]`.
#[derive(Debug, Default)]
pub struct CountingAllocator;

static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static WATCHED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of watches on this thread. Const-initialised and without a destructor, so that reading it never
    /// allocates.
    static WATCHES: Cell<u32> = const { Cell::new(0) };
}

/// Heap memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeapUse {
    /// Allocated now.
    pub now: Bytes,
    /// The largest amount ever allocated at one time, or since [`forget_heap_peak`].
    pub peak: Bytes,
}

/// Heap memory in use; zeroes if the binary did not install [`CountingAllocator`].
pub fn heap_use() -> HeapUse {
    HeapUse { now: Bytes(LIVE.load(Relaxed)), peak: Bytes(PEAK.load(Relaxed)) }
}

/// Resets the largest amount to the bytes that are allocated now.
pub fn forget_heap_peak() {
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// The number of allocations made by threads while they were watched.
pub fn watched_allocations() -> u64 {
    WATCHED.load(Relaxed)
}

/// While this lives, allocations of the thread that created it count in [`watched_allocations`].
#[derive(Debug)]
pub struct Watch {
    /// Bound to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Starts watching the calling thread. Training steps run under a watch to show that they allocate nothing.
pub fn watch_this_thread() -> Watch {
    WATCHES.set(WATCHES.get() + 1);
    Watch { _not_send: std::marker::PhantomData }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHES.set(WATCHES.get() - 1);
    }
}

fn allocated(size: usize) {
    let live = LIVE.fetch_add(size as u64, Relaxed) + size as u64;
    PEAK.fetch_max(live, Relaxed);
    if WATCHES.get() > 0 {
        WATCHED.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call goes to `System` unchanged; the counters are atomics and a thread-local without destructor, neither of
// which allocates or unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: `pointer` came from `alloc` with this layout, so from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        allocated(size);
        // SAFETY: as in `dealloc`; the caller vouches for `size`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Configures the C library's allocator to return large blocks to the system when they are freed, and to keep one heap
/// instead of one per thread (each reserves 64 MiB of address space). Call it once, before threads are started.
pub fn keep_resident_small() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const LARGE: libc::c_int = 128 << 10;
        for (parameter, value) in [
            (libc::M_ARENA_MAX, 1),
            // Setting these also disables glibc's dynamic adjustment, which raises them as the program runs.
            (libc::M_MMAP_THRESHOLD, LARGE),
            (libc::M_TRIM_THRESHOLD, LARGE),
        ] {
            // SAFETY: `mallopt` takes two integers and touches nothing of ours; a value it does not know is ignored.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn counts_only_what_a_watched_thread_allocates() {
        let before = watched_allocations();
        let unwatched = vec![1u8; 1000];
        assert_eq!(watched_allocations(), before);
        let watch = watch_this_thread();
        let watched = vec![1u8; 1000];
        drop(watch);
        assert_eq!(watched_allocations(), before + 1);
        std::hint::black_box((unwatched, watched));
        assert!(heap_use().peak >= Bytes(2000));
    }
}
