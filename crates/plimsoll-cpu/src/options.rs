//! Options of the backend.

use plimsoll_parallel::Level;

/// The number format in which convolutions multiply if features are stored as bf16, except for those that [a
/// choice](plimsoll_plan::Bf16Products) keeps in f32. Sums are f32 in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// Values and weights in f32.
    #[default]
    F32,
    /// Values and weights, or their Winograd transforms, rounded to bf16: twice as fast on processors with an instruction for that
    /// (AVX-512 BF16, Arm's BF16), much slower on others. Each convolution of the same values has the same bits everywhere but with Arm's
    /// instructions, which round otherwise.
    Bf16,
}

/// Options of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads, the caller's among them.
    pub threads: usize,
    /// The instruction set.
    pub level: Level,
    /// The number format of products in convolutions.
    pub products: Products,
    /// For tests: what no node has written yet, and after each node what nobody will read again, is NaN.
    pub poison: bool,
}

impl CpuOptions {
    /// Returns options with this number of threads and the machine's best instruction set.
    pub fn new(threads: usize) -> CpuOptions {
        CpuOptions { threads, level: Level::current(), products: Products::F32, poison: false }
    }
}
