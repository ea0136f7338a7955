//! What the planner must know of a backend.

use plimsoll_graph::{Node, Program, TensorInfo};

use crate::Unsupported;

/// How much memory a backend needs for what.
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
}
