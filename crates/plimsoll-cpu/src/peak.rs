//! The most multiply-adds that this machine does: what kernels are measured against.

use std::hint::black_box;
use std::time::Instant;

use plimsoll_parallel::{Level, Pool};
use plimsoll_plan::EngineError;

use crate::kernel::{Kernel, Machine};
use crate::simd::{LANES, Simd};

/// Enough independent sums to hide the latency of two units; with NEON, as many as its registers hold.
const SUMS: usize = if cfg!(target_arch = "aarch64") { 6 } else { 12 };
const ROUNDS: usize = 1 << 16;

/// Multiply-adds on registers alone.
struct MultiplyAdds {
    tasks: usize,
}

impl Kernel for MultiplyAdds {
    fn tasks(&self) -> usize {
        self.tasks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, _: usize, _: usize) {
        // SAFETY: no memory is touched.
        let sums = unsafe {
            let factor = S::splat(black_box(0.999));
            let mut sums = [S::splat(black_box(1.0)); SUMS];
            for _ in 0..ROUNDS {
                for sum in 0..SUMS {
                    sums[sum] = S::fma(sums[sum], factor, factor);
                }
            }
            let mut total = S::zero();
            for sum in sums {
                total = S::add(total, sum);
            }
            S::to_array(total)
        };
        black_box(sums);
    }
}

/// The f32 floating-point operations per second of `threads` threads with the best instruction set, a multiply-add counted as
/// two: the best of a few tries of some milliseconds.
///
/// # Errors
/// Returns an error if the threads cannot be started.
pub fn fma_peak(threads: usize) -> Result<f64, EngineError> {
    let pool = Pool::new(threads)?;
    let machine = Machine { pool, level: Level::current() };
    let kernel = MultiplyAdds { tasks: 8 * threads };
    let operations = (2 * LANES * SUMS * ROUNDS * kernel.tasks) as f64;
    let mut best = f64::INFINITY;
    for _ in 0..16 {
        let start = Instant::now();
        // SAFETY: the kernel points to nothing.
        unsafe { machine.launch(&kernel) };
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(operations / best)
}
