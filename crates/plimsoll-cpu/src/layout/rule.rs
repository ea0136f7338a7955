//! The demands of kernels on the layouts of volumes.

/// The layouts of volumes that the kernels of a node support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeRule {
    /// All lie in rows.
    Rows,
    /// All lie in blocks.
    Blocks,
    /// All lie alike.
    Alike,
    /// Each may lie as it likes.
    Any,
    /// A convolution over `sources` sources, or its gradient by weights: at most one side is stored in rows; a `result`
    /// may be if the kernel is a point, a source if it can be an image.
    Conv {
        /// Sources come first among the operands.
        sources: usize,
        /// `true` if the sources may lie in rows.
        image: bool,
        /// `true` if the other side may.
        point: bool,
    },
    /// The volumes of a transposed convolution: the result lies in blocks, and the source as well unless the kernel is a point.
    Transpose {
        /// `true` if the source may lie in rows.
        point: bool,
    },
}
