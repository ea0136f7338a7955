//! How to run.

use crate::simd::Level;

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads, the caller's among them.
    pub threads: usize,
    /// The instruction set.
    pub level: Level,
    /// For tests: what no node has written yet, and after each node what nobody will read again, is NaN.
    pub poison: bool,
}

/// The most threads that a backend may have; scratch grows with them.
pub(crate) const MOST_THREADS: usize = 1024;

impl CpuOptions {
    /// As many threads, and the machine's best instruction set.
    pub fn new(threads: usize) -> CpuOptions {
        CpuOptions { threads, level: Level::from_environment(), poison: false }
    }
}
