//! A kernel: tasks that any thread may run, compiled for each instruction set.

use crate::pool::Pool;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Simd};

/// Work that is cut into tasks. How it is cut must not depend on the number of threads.
pub(crate) trait Kernel: Sync {
    /// How many tasks there are.
    fn tasks(&self) -> usize;

    /// Runs one task. `thread` is below the number of threads, and no two tasks run with the same one at a time, so it
    /// may choose a piece of scratch.
    ///
    /// # Safety
    /// The instruction set of `S` must be there. What the kernel points to must be alive, and nobody else may touch what its
    /// tasks write; two tasks may be run at once, but none twice.
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn task_avx512<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: passed on to the caller.
    unsafe { kernel.task::<Avx512>(task, thread) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn task_avx2<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: passed on to the caller.
    unsafe { kernel.task::<Avx2>(task, thread) }
}

unsafe fn task_portable<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: passed on to the caller.
    unsafe { kernel.task::<Portable>(task, thread) }
}

/// Threads and an instruction set: what kernels run on.
pub(crate) struct Machine {
    pub(crate) pool: Pool,
    pub(crate) level: Level,
}

impl Machine {
    /// Runs all tasks of a kernel.
    ///
    /// # Safety
    /// What the kernel points to must be alive and untouched by others until this returns.
    pub(crate) unsafe fn launch<K: Kernel>(&self, kernel: &K) {
        let entry: unsafe fn(&K, usize, usize) = match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => task_avx512::<K>,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => task_avx2::<K>,
            _ => task_portable::<K>,
        };
        self.pool.run(kernel.tasks(), &|task, thread| {
            // SAFETY: the level was detected; the pool runs each task once, and no two at a time with one thread number. The
            // rest is passed on to the caller.
            unsafe { entry(kernel, task, thread) }
        });
    }
}

/// A pointer into the arena that threads may share. Whoever reads or writes through it says why that is sound.
pub(crate) struct Ptr<T>(pub(crate) *mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Ptr<T> {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: a `Ptr` is an address; every access through it is an unsafe operation with its own justification.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    /// The address `count` elements further.
    ///
    /// # Safety
    /// It must lie in the same buffer, or at its end.
    #[inline(always)]
    pub(crate) unsafe fn add(self, count: usize) -> Ptr<T> {
        // SAFETY: passed on to the caller.
        Ptr(unsafe { self.0.add(count) })
    }

    /// The same address for elements of another type.
    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }
}
