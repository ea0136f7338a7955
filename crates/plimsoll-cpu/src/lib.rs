//! The CPU backend: correct, deterministic, multi-threaded kernels in blocks of sixteen channels.
//!
//! [`CpuBackend`] lowers programs: [`layout`] decides how tensors lie, [`fuse`] which nodes are run as one, and each op's file in
//! [`ops`] which kernels do it. The same program gives the same bits on any number of threads: work is cut by shape, and sums
//! are taken in a fixed order.

#![allow(unsafe_code, reason = "kernels and the arena are what this crate is")]
#![allow(clippy::needless_range_loop, reason = "kernels index several arrays of registers by one counter")]
#![allow(
    clippy::manual_map,
    reason = "a closure would not be inlined with the instruction set of its kernel"
)]
#![allow(rustdoc::private_intra_doc_links, reason = "the overview is for who works on the crate")]

mod backend;
mod engine;
mod fuse;
mod isolated;
mod kernel;
mod kernels;
mod layout;
mod lower;
mod lowered;
mod measure;
mod ops;
mod options;
mod peak;
mod rates;
mod simd;

pub use backend::CpuBackend;
pub use options::{CpuOptions, Products};
pub use peak::fma_peak;
pub use plimsoll_parallel::{LaunchTasks, Level, TaskLog, barrier_seconds};
