//! What the planner asks of this backend.
#![forbid(unsafe_code)]

use plimsoll_graph::{Node, Program, TensorInfo};
use plimsoll_plan::{Layout, Unsupported};

use crate::blocks::stored_bytes;
use crate::nodes::{self, Context};
use crate::rates::Rates;

/// Offsets are multiples of a cache line.
pub(crate) const ALIGNMENT: usize = 64;

/// The layout of the CPU backend for a number of threads: each has scratch of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuLayout {
    /// Threads that kernels run on.
    pub threads: usize,
    /// How fast they are: what the times of nodes are predicted from.
    pub rates: Rates,
}

impl CpuLayout {
    /// The layout for a number of threads of nominal speed.
    pub fn new(threads: usize) -> CpuLayout {
        CpuLayout { threads, rates: Rates::NOMINAL }
    }
}

impl Layout for CpuLayout {
    fn bytes(&self, tensor: &TensorInfo) -> usize {
        stored_bytes(tensor)
    }

    fn scratch(&self, program: &Program, node: &Node) -> usize {
        nodes::scratch(&Context { program, node, threads: self.threads })
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn supports(&self, program: &Program, node: &Node) -> Result<(), Unsupported> {
        nodes::supports(&Context { program, node, threads: self.threads })
    }

    fn seconds(&self, program: &Program, node: &Node) -> f64 {
        self.rates.seconds(program, node)
    }
}
