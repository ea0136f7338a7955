//! Programs lowered to kernels.

use plimsoll_plan::LoweredNode;

use crate::isolated::Isolated;
use crate::layout::Layout;
use crate::lower::Bind;

/// A program lowered to kernels.
pub(crate) struct CpuProgram {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) nodes: Vec<CpuNode>,
}

/// A node lowered to kernels.
pub(crate) struct CpuNode {
    pub(crate) lowered: LoweredNode,
    /// Bytes of the pieces of its scratch.
    pub(crate) scratch: Vec<usize>,
    /// The convolution that is measured to find its speed.
    pub(crate) isolated: Option<Isolated>,
    pub(crate) bind: Bind,
}
