//! The resources that limit the speed of kernels.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The resource that a kernel is predicted to need the longest, and that its predicted time follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Multiply-adds of scalar units.
    Arithmetic,
    /// Products of matrices.
    TensorCores,
    /// The rate at which multiprocessors issue instructions.
    Instructions,
    /// Reads and writes of shared memory.
    SharedMemory,
    /// Reads and writes of the device's memory.
    Memory,
    /// Multiprocessors that are idle: there are too few blocks, or the last wave of them is small.
    Blocks,
    /// Starts of kernels.
    Launches,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Arithmetic => "arithmetic",
            Bound::TensorCores => "tensor cores",
            Bound::Instructions => "instructions",
            Bound::SharedMemory => "shared memory",
            Bound::Memory => "memory",
            Bound::Blocks => "blocks",
            Bound::Launches => "launches",
        })
    }
}
