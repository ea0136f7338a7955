//! The CPU backend: correct, deterministic, multi-threaded kernels in blocks of sixteen channels.
//!
//! [`CpuLayout`] tells the planner what tensors and kernels take; [`CpuEngine`] runs the plan that comes out. The same
//! program gives the same bits on any number of threads: work is cut by shape, and sums are taken in a fixed order.

#![allow(unsafe_code, reason = "kernels and the arena are what this crate is")]
#![allow(clippy::needless_range_loop, reason = "kernels index several arrays of registers by one counter")]
#![allow(
    clippy::manual_map,
    reason = "a closure would not be inlined with the instruction set of its kernel"
)]

mod blocks;
mod engine;
mod kernel;
mod kernel_times;
mod kernels;
mod layout;
mod nodes;
mod peak;
mod pool;
mod rates;
mod simd;
mod weight_blocks;

pub use engine::{CpuEngine, CpuOptions, EngineError};
pub use kernel_times::KernelRates;
pub use layout::CpuLayout;
pub use peak::fma_peak;
pub use rates::Rates;
pub use simd::Level;
