//! Attention of all voxels to each other, with rotary positions.
//!
//! Sixteen queries are taken at a time, one in each lane, with all keys, as within windows. Queries and keys are rotated as they are
//! gathered, and their gradients are rotated back as they are written, so rotated copies of whole maps never exist.

mod backward;
mod forward;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_graph::ops::{RotaryAttention as Op, RotaryPairs};
use plimsoll_parallel::pairs;

pub(crate) use backward::RotaryAttentionGrad;
pub(crate) use forward::RotaryAttention;

use super::floats;
use crate::kernel::Ptr;
use crate::layout::blocks;
use crate::simd::{Element, LANES};

/// Sixteens of queries of a task: gathering all keys costs as much as a few of them.
const CHUNK_TILES: usize = 64;

/// The shape that the work is cut by.
#[derive(Clone, Copy)]
pub(crate) struct RotaryShape {
    pub(crate) op: Op,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) extent: [usize; 3],
}

impl RotaryShape {
    #[inline]
    fn voxels(&self) -> usize {
        self.extent.iter().product()
    }

    #[inline]
    fn head_channels(&self) -> usize {
        self.channels / self.op.heads
    }

    /// Channels of a head, filled up to whole vectors.
    #[inline]
    fn padded_width(&self) -> usize {
        self.head_channels().next_multiple_of(LANES)
    }

    /// Sixteens of queries of a sample.
    #[inline]
    fn tiles(&self) -> usize {
        self.voxels().div_ceil(LANES)
    }

    #[inline]
    fn chunks(&self) -> usize {
        self.tiles().div_ceil(CHUNK_TILES)
    }

    /// The sixteens of a chunk.
    #[inline]
    fn tiles_of(&self, chunk: usize) -> Range<usize> {
        chunk * CHUNK_TILES..self.tiles().min((chunk + 1) * CHUNK_TILES)
    }

    /// Floats of the pieces that both directions need.
    #[inline]
    fn pieces(&self) -> [usize; 5] {
        let (voxels, width) = (self.voxels(), self.head_channels());
        [voxels * width, voxels * width, width * LANES, voxels * LANES, width * LANES]
    }

    /// Floats of a thread's scratch.
    pub(crate) fn per_thread(&self) -> usize {
        floats(&self.pieces())
    }
}

/// Cosines and sines of the angles of a grid.
#[derive(Clone)]
pub(crate) struct Turns {
    bands: usize,
    extent: [usize; 3],
    /// For each axis, `[place][band]`.
    of_axis: Arc<[Vec<[f32; 2]>; 3]>,
}

impl Turns {
    /// The turns of a grid for heads with some pairs.
    pub(crate) fn new(extent: [usize; 3], angles: RotaryPairs) -> Turns {
        let bands = angles.bands;
        let of_axis = extent.map(|places| {
            let all = (0..places).flat_map(|place| (0..bands).map(move |band| (place, band)));
            let turn = |(place, band)| {
                let (sin, cos) = angles.angle(place, band).sin_cos();
                [cos as f32, sin as f32]
            };
            all.map(turn).collect()
        });
        Turns { bands, extent, of_axis: Arc::new(of_axis) }
    }

    /// Calls `visit(pair, [cosine, sine])` for all pairs of a head at a voxel.
    #[inline(always)]
    fn for_each(&self, voxel: usize, mut visit: impl FnMut(usize, [f32; 2])) {
        let [_, height, width] = self.extent;
        let places = [voxel / (height * width), voxel / width % height, voxel % width];
        for axis in 0..3 {
            let first = places[axis] * self.bands;
            let turns = &self.of_axis[axis][first..first + self.bands];
            for (band, turn) in turns.iter().enumerate() {
                visit(axis * self.bands + band, *turn);
            }
        }
    }
}

/// A head of a sample.
#[derive(Clone, Copy)]
struct At {
    sample: usize,
    head: usize,
}

/// The operands that both directions read, `[sample][block][voxel][16]` each.
pub(crate) struct Attending<T> {
    pub(crate) shape: RotaryShape,
    pub(crate) turns: Turns,
    pub(crate) queries: Ptr<T>,
    pub(crate) keys: Ptr<T>,
    pub(crate) values: Ptr<T>,
}

/// The voxels of sixteen queries: the first, and their number.
#[derive(Clone, Copy)]
struct Tile {
    first: usize,
    count: usize,
}

impl<T: Element> Attending<T> {
    #[inline(always)]
    fn tile(&self, tile: usize) -> Tile {
        let first = tile * LANES;
        Tile { first, count: LANES.min(self.shape.voxels() - first) }
    }

    /// The place of a channel of a head at a voxel.
    #[inline(always)]
    fn place(&self, at: At, channel: usize, voxel: usize) -> usize {
        let channel = at.head * self.shape.head_channels() + channel;
        let block = at.sample * blocks(self.shape.channels) + channel / LANES;
        (block * self.shape.voxels() + voxel) * LANES + channel % LANES
    }

    /// A channel of a head at a voxel.
    ///
    /// # Safety
    /// `data` is an initialised volume of this shape; sample, head, channel and voxel are within it.
    #[inline(always)]
    unsafe fn read(&self, data: Ptr<T>, at: At, channel: usize, voxel: usize) -> f32 {
        // SAFETY: the place is within the volume, as this function's contract says.
        unsafe { (*data.0.add(self.place(at, channel, voxel))).to_f32() }
    }

    /// Gathers the rotated keys, and the values, of a head: `[voxel][channel]` each.
    ///
    /// # Safety
    /// The operands are as the fields say, and initialised; `at` is within the shape; `keys` and `values` are valid for writes of a head's
    /// channels for each voxel.
    #[inline(always)]
    unsafe fn gather(&self, at: At, keys: *mut f32, values: *mut f32) {
        let width = self.shape.head_channels();
        for voxel in 0..self.shape.voxels() {
            // SAFETY: voxels, and the channels of a head, are within the volumes; both rows have `width` numbers, two for each pair.
            unsafe {
                let (key, value) = (keys.add(voxel * width), values.add(voxel * width));
                self.turns.for_each(
                    voxel,
                    #[inline(always)]
                    |pair, [cos, sin]| {
                        let a = self.read(self.keys, at, 2 * pair, voxel);
                        let b = self.read(self.keys, at, 2 * pair + 1, voxel);
                        *key.add(2 * pair) = a * cos - b * sin;
                        *key.add(2 * pair + 1) = b * cos + a * sin;
                    },
                );
                for channel in 0..width {
                    *value.add(channel) = self.read(self.values, at, channel, voxel);
                }
            }
        }
    }

    /// Gathers the rotated queries of a tile, times the factor of keys: `[channel][16]`; 0 in lanes without a query.
    ///
    /// # Safety
    /// The same contract as [`Attending::gather`]; the tile is one of the shape's, and `to` is valid for writes of sixteen floats for each channel of a head.
    #[inline(always)]
    unsafe fn columns(&self, at: At, tile: Tile, to: *mut f32) {
        let width = self.shape.head_channels();
        let scale = self.shape.op.scale(width) as f32;
        for lane in 0..LANES {
            // SAFETY: lanes below the tile's count are voxels; all else as above.
            unsafe {
                if lane >= tile.count {
                    for channel in 0..width {
                        *to.add(channel * LANES + lane) = 0.0;
                    }
                    continue;
                }
                let voxel = tile.first + lane;
                self.turns.for_each(
                    voxel,
                    #[inline(always)]
                    |pair, [cos, sin]| {
                        let a = scale * self.read(self.queries, at, 2 * pair, voxel);
                        let b = scale * self.read(self.queries, at, 2 * pair + 1, voxel);
                        *to.add(2 * pair * LANES + lane) = a * cos - b * sin;
                        *to.add((2 * pair + 1) * LANES + lane) = b * cos + a * sin;
                    },
                );
            }
        }
    }

    /// Writes zeroes to the lanes of a result that fill up the last block of a voxel, which belong to the last head.
    ///
    /// # Safety
    /// `to` is a volume of this shape; sample and voxel are within it, and no other task writes these lanes.
    #[inline(always)]
    unsafe fn fill_up(&self, to: Ptr<T>, at: At, voxel: usize) {
        if at.head + 1 != self.shape.op.heads {
            return;
        }
        let width = self.shape.head_channels();
        let behind = blocks(self.shape.channels) * LANES - self.shape.channels;
        for channel in width..width + behind {
            // SAFETY: channels of the last head beyond its own are the lanes that fill up the last block.
            unsafe { *to.0.add(self.place(at, channel, voxel)) = T::from_f32(0.0) };
        }
    }
}

/// Copies columns `[channel][16]` to rows `[16][padded]`.
///
/// # Safety
/// `from` is valid for reads of sixteen floats for each of `width` channels, `to` for writes of sixteen rows of `padded` floats, at least
/// `width`; they do not overlap.
#[inline(always)]
unsafe fn to_rows(from: *const f32, width: usize, padded: usize, to: *mut f32) {
    for (lane, channel) in (0..LANES).flat_map(|lane| (0..width).map(move |channel| (lane, channel))) {
        // SAFETY: lanes are below sixteen and channels below `width`.
        unsafe { *to.add(lane * padded + channel) = *from.add(channel * LANES + lane) };
    }
}

/// Writes a number to each lane that has a query. The other lanes keep theirs.
#[inline(always)]
fn each_query(tile: Tile, lanes: &mut [f32; LANES], number: impl Fn(usize) -> f32) {
    for (lane, to) in pairs(0..tile.count, lanes.iter_mut()) {
        *to = number(tile.first + lane);
    }
}
