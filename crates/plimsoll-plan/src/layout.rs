//! What the planner must know of a backend.

use plimsoll_graph::{Node, Program, TensorInfo};

use crate::Unsupported;

/// Floating-point operations per second of a machine of which nothing else is known.
const FLOPS_PER_SECOND: f64 = 1e11;
/// Bytes per second to and from its memory.
const BYTES_PER_SECOND: f64 = 1e10;

/// How much memory a backend needs for what, and how long it takes.
pub trait Layout {
    /// Bytes of a tensor in this backend's layout.
    fn bytes(&self, tensor: &TensorInfo) -> usize;

    /// Bytes that the kernels of a node need beside its operands and results.
    fn scratch(&self, program: &Program, node: &Node) -> usize;

    /// Every offset is a multiple of this power of two.
    fn alignment(&self) -> usize;

    /// Whether there is a kernel for a node.
    ///
    /// # Errors
    /// If there is none.
    fn supports(&self, program: &Program, node: &Node) -> Result<(), Unsupported>;

    /// Predicted time of a node in seconds: what it computes or what it moves, whichever takes longer. It decides
    /// what is worth computing twice, never what is computed.
    fn seconds(&self, program: &Program, node: &Node) -> f64 {
        let cost = program.cost(node);
        (cost.flops as f64 / FLOPS_PER_SECOND).max(cost.bytes as f64 / BYTES_PER_SECOND)
    }
}
