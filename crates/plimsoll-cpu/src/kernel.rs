//! A kernel: tasks that any thread may run, compiled for each instruction set.

use plimsoll_parallel::{Level, Pool};

#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::dot::{Avx2Dot, Avx512Bf16};
use crate::simd::dot::{Dot, DotLevel, PortableDot};
#[cfg(target_arch = "aarch64")]
use crate::simd::dot::{NeonBf16, NeonDot};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Portable, Simd};

/// Work that is divided into tasks. How it is divided must not depend on the number of threads.
///
/// A kernel is a struct of shapes and of pointers to *buffers* in the arena. The documentation of each pointer states
/// the number of elements of its buffer: `[a][b]` are a · b elements with the last index innermost, and a buffer *per
/// thread* exists once for each thread, one behind the other. Unless a field says that it may alias another, buffers do
/// not overlap.
pub(crate) trait Kernel: Sync {
    /// The number of tasks.
    fn tasks(&self) -> usize;

    /// Runs one task.
    ///
    /// Everything that an implementation calls in its loops is inlined: with `#[inline(always)]` if it uses `S`, and with `#[inline]` if it
    /// computes places. Generic functions of the standard library may lack such a mark; [`plimsoll_parallel::each`] and its siblings replace
    /// the ones of arrays.
    ///
    /// An implementation keeps to its buffers, writes only to results and scratch, uses only its thread's part of scratch,
    /// and no two of its tasks touch the same element of a result. Where a result aliases an operand, a task reads of it
    /// only what it writes itself, and before it writes it.
    ///
    /// # Safety
    /// - This machine has the instruction set of `S`.
    /// - `task < self.tasks()`, and no other call at the same time has the same `task` or the same `thread`; `thread` is
    ///   below the number of threads that scratch was allocated for.
    /// - Every pointer is aligned for its elements and valid, for reads of its buffer or, if tasks write to it, for reads and
    ///   writes. What tasks read, except scratch, is initialised.
    /// - Until the call returns, nobody but tasks of this kernel writes to its buffers or reads its results and scratch.
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize);
}

/// [`Kernel::task`], compiled for AVX-512.
///
/// # Safety
/// [`Kernel::task`]'s contract, for [`Avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn task_avx512<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Avx512>(task, thread) }
}

/// [`Kernel::task`], compiled for AVX2.
///
/// # Safety
/// [`Kernel::task`]'s contract, for [`Avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn task_avx2<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Avx2>(task, thread) }
}

/// [`Kernel::task`], compiled for NEON.
///
/// # Safety
/// [`Kernel::task`]'s contract, for [`Neon`].
#[cfg(target_arch = "aarch64")]
unsafe fn task_neon<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Neon>(task, thread) }
}

/// [`Kernel::task`], compiled for any machine.
///
/// # Safety
/// [`Kernel::task`]'s contract, for [`Portable`].
unsafe fn task_portable<K: Kernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Portable>(task, thread) }
}

/// A [`Kernel`] of dot products of bf16.
pub(crate) trait DotKernel: Sync {
    /// The number of tasks.
    fn tasks(&self) -> usize;

    /// Runs one task, as [`Kernel::task`] does.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract, for the instruction set of `D`.
    unsafe fn task<D: Dot>(&self, task: usize, thread: usize);
}

/// [`DotKernel::task`], compiled for AVX-512 with bf16.
///
/// # Safety
/// [`DotKernel::task`]'s contract, for [`Avx512Bf16`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn dot_task_avx512<K: DotKernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Avx512Bf16>(task, thread) }
}

/// [`DotKernel::task`], compiled for AVX2.
///
/// # Safety
/// [`DotKernel::task`]'s contract, for [`Avx2Dot`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn dot_task_avx2<K: DotKernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<Avx2Dot>(task, thread) }
}

/// [`DotKernel::task`], compiled for NEON with bf16.
///
/// # Safety
/// [`DotKernel::task`]'s contract, for [`NeonBf16`].
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "bf16")]
unsafe fn dot_task_neon_bf16<K: DotKernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<NeonBf16>(task, thread) }
}

/// [`DotKernel::task`], compiled for NEON.
///
/// # Safety
/// [`DotKernel::task`]'s contract, for [`NeonDot`].
#[cfg(target_arch = "aarch64")]
unsafe fn dot_task_neon<K: DotKernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<NeonDot>(task, thread) }
}

/// [`DotKernel::task`], compiled for any machine.
///
/// # Safety
/// [`DotKernel::task`]'s contract, for [`PortableDot`].
unsafe fn dot_task_portable<K: DotKernel>(kernel: &K, task: usize, thread: usize) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { kernel.task::<PortableDot>(task, thread) }
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
    /// The last two points of [`Kernel::task`]'s contract, until this returns: buffers are as the kernel's fields say, with
    /// scratch for [`Pool::threads`] threads, and nobody else touches them.
    pub(crate) unsafe fn launch<K: Kernel>(&self, kernel: &K) {
        // The level may have been chosen by whoever starts the program; what the machine lacks must not run.
        let entry: unsafe fn(&K, usize, usize) = match self.level.min(Level::detect()) {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => task_avx512::<K>,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => task_avx2::<K>,
            // Products of bf16 are the only difference, and these kernels have none.
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::NeonBf16 => task_neon::<K>,
            _ => task_portable::<K>,
        };
        self.pool.run(kernel.tasks(), &|task, thread| {
            // SAFETY: the level was detected just now. The pool runs each task once, and no two at a time with one thread
            // number, which is below `Pool::threads`. Buffers are as this function's contract says.
            unsafe { entry(kernel, task, thread) }
        });
    }

    /// Runs all tasks of a kernel of dot products.
    ///
    /// # Safety
    /// The contract is the one of [`Machine::launch`].
    pub(crate) unsafe fn launch_dot<K: DotKernel>(&self, kernel: &K) {
        let entry: unsafe fn(&K, usize, usize) = match DotLevel::from_level(self.level.min(Level::detect())) {
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx512Bf16 => dot_task_avx512::<K>,
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx2 => dot_task_avx2::<K>,
            #[cfg(target_arch = "aarch64")]
            DotLevel::NeonBf16 => dot_task_neon_bf16::<K>,
            #[cfg(target_arch = "aarch64")]
            DotLevel::Neon => dot_task_neon::<K>,
            _ => dot_task_portable::<K>,
        };
        self.pool.run(kernel.tasks(), &|task, thread| {
            // SAFETY: as in `launch`.
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
    /// `self` has `count` elements of one allocation behind it: the result is inside of it or at its end.
    #[inline(always)]
    pub(crate) unsafe fn add(self, count: usize) -> Ptr<T> {
        // SAFETY: this function's contract includes the contract of the pointer's `add`.
        Ptr(unsafe { self.0.add(count) })
    }

    /// The same address for elements of another type.
    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }
}
