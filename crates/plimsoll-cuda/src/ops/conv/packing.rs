//! Weights for tensor cores: rounded to what these multiply and in the order in which lanes take them.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_plan::Unsupported;

use super::MOST_SOURCES;
use super::tiling::chunks;
use crate::lower::{Context, Stretch, Work};

/// The weights that a convolution multiplies, and their names. They are stored as `[tap][input][output]`.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    pub(super) at: Stretch,
    /// The channels of each source.
    pub(super) channels: [u32; MOST_SOURCES],
    /// Channels of the result.
    pub(super) columns: u32,
    /// Extent of the kernel.
    pub(super) kernel: [u32; 3],
    /// The tap that is multiplied with the first voxel of a sum, and the taps from one voxel to the next.
    pub(super) first_tap: [u32; 3],
    pub(super) tap_step: [i32; 3],
    /// Taps of the sum.
    pub(super) taps: [u32; 3],
    /// Weights from a tap to the next, a channel of the sources to the next, and one of the result.
    pub(super) tap_stride: u32,
    pub(super) row_stride: u32,
    pub(super) column_stride: u32,
    /// The first weight.
    pub(super) first: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackParameters {
    weights: u64,
    packed: u64,
    channels: [u32; MOST_SOURCES],
    chunks: u32,
    columns: u32,
    pairs: u32,
    taps: [u32; 3],
    kernel: [u32; 3],
    first_tap: [u32; 3],
    tap_step: [i32; 3],
    tap_stride: u32,
    row_stride: u32,
    column_stride: u32,
    first: u32,
    count: u32,
}

/// The kernels that multiply packed weights; the order of the weights depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MultipliedBy {
    Warps,
    /// Groups of four of them, out of shared memory.
    WarpGroups,
}

/// Packs weights into scratch as numbers of `multiplied`, for blocks of `block_columns` channels of the result.
///
/// # Errors
/// Returns an error if the weights are too many for the kernels' indices.
pub(super) fn pack(
    work: &mut Work,
    cx: &Context<'_>,
    multiplied: DType,
    of: &Weights,
    block_columns: usize,
    by: MultipliedBy,
) -> Result<Stretch, Unsupported> {
    let blocks = (of.columns as usize).div_ceil(block_columns);
    let taps = of.taps.map(|taps| taps as usize);
    let chunks = chunks(&of.channels, multiplied);
    // A thread for each word of weights: a chunk of rows by sixteen columns is 128 of those.
    let each = [blocks, chunks, taps[0], taps[1], taps[2], block_columns / 16, 128];
    let count = cx.count(&each)?;
    let packed = work.take::<u32>(count as usize)?;
    let parameters = PackParameters {
        weights: of.at.address,
        packed: packed.address,
        channels: of.channels,
        chunks: cx.count(&[chunks])?,
        columns: of.columns,
        pairs: cx.count(&[block_columns / 16])?,
        taps: of.taps,
        kernel: of.kernel,
        first_tap: of.first_tap,
        tap_step: of.tap_step,
        tap_stride: of.tap_stride,
        row_stride: of.row_stride,
        column_stride: of.column_stride,
        first: of.first,
        count,
    };
    let kernel = match by {
        MultipliedBy::Warps => "tensor_pack",
        MultipliedBy::WarpGroups => "warpgroup_pack",
    };
    work.each(format!("{kernel}_{multiplied}"), count, &parameters, &[of.at], &[packed]);
    Ok(packed)
}
