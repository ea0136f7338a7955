//! Programs on NVIDIA GPUs.
//!
//! The kernels are CUDA C++ in `kernels/`, compiled to PTX that is part of this crate: running programs needs a driver
//! and nothing else, planning for a card needs neither. [`CudaBackend`] lowers programs for an [`Architecture`]; a node
//! is a few launches on scratch that is part of the plan, decided with everything else about the node in one place, the
//! `Lower` of its op. Sums are taken in an order that depends on shapes alone, so that the bits are the same always.
//!
//! An engine runs over a [`Device`]: the driver's ([`Driver`]), or the emulator that `conformance/` checks the kernels on. It has one
//! allocation, the plan's arena; all launches are bound to it once, with the stretches of it that each reads and writes. What changes from
//! one run of a program to the next (images, rates, the scale of a loss, the counters of dropout) are tensors in the arena and no
//! parameters of launches, so that all launches of a program can be recorded and replayed as one.

mod ahead;
mod architecture;
mod backend;
mod copies;
mod counts;
mod device;
mod divide;
mod driver;
mod engine;
mod fuse;
mod layout;
mod libraries;
mod lower;
mod ops;
mod pieces;
mod plane_sums;
mod predict;

pub use architecture::Architecture;
pub use backend::CudaBackend;
pub use device::{
    Beside, CardMemory, CudaVersion, Device, DeviceError, DeviceSource, Effort, KEPT, KEPT_BYTES, KernelCode,
    Launch, Nowhere, Opened, Recorded, RecordedTask, RecordingRoom, Sizes, Work,
};
pub use driver::{Driver, Footprint};
pub use pieces::ptx;
