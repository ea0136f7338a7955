//! Tiles of the results of a convolution for tensor cores, and the boxes of voxels that they see.
//!
//! A convolution is described by what happens along each axis ([`Axis`]): results in a row, each a sum over a few voxels in succession,
//! whose first is a fixed step further for every next result. Both directions of strided convolutions are put so.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;

use crate::device::WARP;
use crate::lower::Context;

/// Bytes of a voxel of a box, `VOXEL_BYTES` of the kernels.
pub(super) const VOXEL_BYTES: usize = 32;

/// Channels that are staged at once, `CHUNK` of the kernels, where they are stored in two bytes: of tf32 half of them, in the same time.
pub(super) const CHUNK: usize = VOXEL_BYTES / 2;

/// Places of a row of a tile, along the width: the rows of a fragment that lie side by side.
pub(super) const ROW: usize = 8;

/// A convolution along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Results.
    pub(super) places: usize,
    /// Voxels that each is a sum over.
    pub(super) taps: usize,
    /// The extent of the sources.
    pub(super) input: usize,
    /// The first voxel that the first result sees. It may lie outside of the sources, where voxels are zero.
    pub(super) first: i64,
    /// Voxels from a result to the next.
    pub(super) stride: usize,
}

/// `Tiling` of the kernels.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Tiling {
    places: [u32; 3],
    tiles: [u32; 3],
    taps: [u32; 3],
    input: [u32; 3],
    first: [i32; 3],
    stride: [u32; 3],
    extent: [u32; 3],
    phase: u32,
    longer: u32,
    rows: u32,
    height: u32,
    voxels: u32,
    reciprocal: [u32; 2],
    unused: u32,
}

impl Tiling {
    /// Tiles of `rows` rows, of which 2 to the power of `height` are adjacent along the height; none if their numbers
    /// are too large for kernels.
    fn new(cx: &Context<'_>, axes: &[Axis; 3], rows: usize, height: u32) -> Option<Tiling> {
        let tile = [rows >> height, 1 << height, ROW];
        let boxed = |axis: usize| {
            let Axis { stride, taps, .. } = axes[axis];
            (tile[axis] - 1).saturating_mul(stride).saturating_add(taps)
        };
        let extent = [boxed(0), boxed(1), boxed(2)];
        // A box without voxels, where no tap meets a place, is not staged.
        let counted = extent.map(|extent| extent.max(1));
        for (axis, of) in axes.iter().enumerate() {
            // No coordinate is further from zero than that.
            let furthest = of.places.next_multiple_of(tile[axis]).saturating_mul(of.stride);
            let first = usize::try_from(of.first.unsigned_abs()).ok()?;
            cx.count(&[furthest.saturating_add(extent[axis]).saturating_add(first)]).ok()?;
        }
        let all = |of: fn(&Axis) -> usize| cx.axes([of(&axes[0]), of(&axes[1]), of(&axes[2])]).ok();
        let places = all(|axis| axis.places)?;
        let stride = all(|axis| axis.stride)?;
        let extent = cx.axes(extent).ok()?;
        let mut first = [0; 3];
        for (first, axis) in first.iter_mut().zip(axes) {
            *first = i32::try_from(axis.first).ok()?;
        }
        Some(Tiling {
            places,
            tiles: [0, 1, 2].map(|axis| places[axis].div_ceil(tile[axis] as u32)),
            taps: all(|axis| axis.taps)?,
            input: all(|axis| axis.input)?,
            first,
            stride,
            extent,
            phase: extent[2] / stride[2],
            longer: extent[2] % stride[2],
            rows: rows as u32,
            height,
            voxels: cx.count(&extent.map(|extent| extent as usize)).ok()?,
            reciprocal: [counted[1], counted[2]].map(|extent| RECIPROCAL_OF.div_ceil(extent) as u32),
            unused: 0,
        })
    }

    /// All ways to arrange `rows` rows, a power of two, as tiles whose boxes have at most `most_voxels` voxels.
    pub(super) fn all(cx: &Context<'_>, axes: &[Axis; 3], rows: usize, most_voxels: usize) -> Vec<Tiling> {
        let ways = (0..=rows.ilog2()).filter_map(|height| Tiling::new(cx, axes, rows, height));
        ways.filter(|tiling| tiling.voxels() <= most_voxels).collect()
    }

    /// Voxels of a box.
    pub(super) fn voxels(&self) -> usize {
        self.extent.iter().fold(1, |product, extent| product.saturating_mul(*extent as usize))
    }

    /// Tiles of a sample.
    pub(super) fn tiles(&self) -> usize {
        self.tiles.iter().fold(1, |product, tiles| product.saturating_mul(*tiles as usize))
    }

    /// Turns of the loop in which warps stage a box: two pieces of each voxel, as many at once as a warp has lanes.
    pub(super) fn staging_turns(&self) -> usize {
        self.voxels().saturating_mul(2).div_ceil(WARP as usize)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Returns `true` if the rows of each eight in succession lie equally far apart, as warp groups multiply them: along the height, or along the depth.
    pub(super) fn rows_are_matrices(&self) -> bool {
        self.height == 0 || self.height >= 3
    }

    /// Rows of taps along the width.
    pub(super) fn tap_rows(&self) -> usize {
        self.taps[0] as usize * self.taps[1] as usize
    }

    /// Taps of all axes.
    pub(super) fn taps(&self) -> usize {
        self.taps.iter().map(|taps| *taps as usize).product()
    }
}

/// Channels that are staged at once, of numbers of a type.
pub(super) fn channels_of_chunk(dtype: DType) -> usize {
    VOXEL_BYTES / dtype.bytes()
}

/// The number that reciprocals of extents are of: products with the places of a box, of which there are fewer than 1024, fit 32 bits.
const RECIPROCAL_OF: usize = 1 << 20;

/// Parts of the channels of sources that are staged at once: a chunk is of one of them.
pub(super) fn chunks(channels: &[u32], dtype: DType) -> usize {
    channels.iter().map(|channels| (*channels as usize).div_ceil(channels_of_chunk(dtype))).sum()
}
