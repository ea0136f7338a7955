//! A library with the functions of NCCL that `plimsoll-ranks` calls, for tests on machines without a GPU.
//!
//! Tests [load](Stub) it as they would load NCCL. Memory of the process stands in for memory of a card, and a [stream](HostLanes) is a thread.
//! Messages are files in a temporary folder, whose path is the identifier of a communicator, so ranks may be threads or processes. As with NCCL, a
//! call returns before its work is done, every second one even before the work is enqueued, work of a stream runs in order, and a message blocks
//! its stream at both ends until they meet.
#![cfg(unix)]
#![allow(unsafe_code, reason = "the C interface of NCCL")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod communicator;
mod exports;
mod lanes;
mod library;
mod stream;

pub use lanes::HostLanes;
pub use library::{Fault, Stub};
