//! The convolution kernel: for each depth of the points, all source blocks are transformed, then each pair of output blocks is summed.

use super::chunks::Chunk;
use super::tiling::{GROUP, PAIR};
use super::{CubeTaps, CubeTiling, PLANE_POINTS, cube_taps};
use crate::kernel::Kernel;
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{Blocks, Source};
use crate::kernels::tap_conv::{Destination, Operands};
use crate::simd::{Bf16, Simd};

/// A convolution between features or its transpose, bound to memory.
pub(crate) struct CubeConv {
    pub(super) tiling: CubeTiling,
    /// Taps of the kernel, and where each is in it.
    pub(super) taps: usize,
    pub(super) places: CubeTaps,
    /// Floats to each source block of a group.
    pub(super) group_offsets: [usize; GROUP],
    pub(super) operands: Operands,
}

/// A task's scratch, which is its thread's: the parts of [`CubeTiling::per_thread`], of the lengths that that adds up.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// `[source block][plane][row][column][16]`
    gathered: *mut f32,
    /// `[source block][point][tile][16]`
    pub(super) points: *mut f32,
    /// `[2][point][tile][16]`
    sums: *mut f32,
    /// `[output block of the task][tile][8][16]`
    results: *mut f32,
    /// `[point][source block of a group][lane][output block][16]`
    pub(super) weights: *mut f32,
}

impl CubeConv {
    /// Prepares a convolution. [`CubeTiling::per_thread`] floats of each thread are where its patches are.
    pub(crate) fn new(grid: &TapGrid, tiling: CubeTiling, operands: Operands) -> CubeConv {
        let places = cube_taps(grid);
        let taps = places.as_flattened().as_flattened().len();
        let group_offsets = std::array::from_fn(|block| block * tiling.grid.transformed());
        CubeConv { tiling, taps, places, group_offsets, operands }
    }

    pub(super) fn source(&self) -> &Blocks {
        let Source::Features(blocks) = &self.operands.source else {
            unreachable!("images are convolved directly")
        };
        blocks
    }

    /// All that is done at the points of depth `Z`, for output blocks from `first` to `end`.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the tiling's, `scratch` this thread's, with all source blocks
    /// gathered, and this ran for the depths before. The output blocks belong to the task.
    #[inline(always)]
    unsafe fn depth<S: Simd, const Z: usize>(
        &self,
        chunk: &Chunk,
        first: usize,
        end: usize,
        scratch: Scratch,
    ) {
        let tiling = &self.tiling;
        for block in 0..tiling.source_blocks {
            // SAFETY: every source block has a place among those that are gathered and that are transformed.
            unsafe {
                let from = scratch.gathered.add(block * tiling.grid.gathered());
                tiling.grid.transform::<S, Z>(
                    chunk,
                    from,
                    scratch.points.add(block * tiling.grid.transformed()),
                );
            }
        }
        let mut block = first;
        while block < end {
            let count = PAIR.min(end - block);
            // SAFETY: the blocks are below `end`, and there are sums of `PAIR` of them, and results of all of the task.
            unsafe {
                let sums = |b: usize| scratch.sums.add(b * PLANE_POINTS * tiling.grid.point());
                if count == PAIR && S::TILE_BLOCKS >= PAIR {
                    self.products::<S, PAIR, Z>(chunk, block, scratch, sums(0));
                } else {
                    for b in 0..count {
                        self.products::<S, 1, Z>(chunk, block + b, scratch, sums(b));
                    }
                }
                for b in 0..count {
                    let (block, sums) = (block + b, sums(b).cast_const());
                    let held = scratch.results.add((block - first) * tiling.results());
                    match self.operands.result {
                        Destination::F32(result, added_to) => {
                            self.add_up::<S, f32, Z>(chunk, block, sums, held, result, added_to);
                        }
                        Destination::Bf16(result, added_to) => {
                            self.add_up::<S, Bf16, Z>(chunk, block, sums, held, result, added_to);
                        }
                    }
                }
            }
            block += count;
        }
    }
}

impl Kernel for CubeConv {
    fn tasks(&self) -> usize {
        self.tiling.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (split, place) = (task % tiling.splits, task / tiling.splits);
        let chunk = tiling.grid.chunk(place);
        // Splits are of whole pairs.
        let of_split = |split: usize| (tiling.pairs() * split / tiling.splits * PAIR).min(tiling.out_blocks);
        let (first, end) = (of_split(split), of_split(split + 1));
        // SAFETY: scratch has a part for `thread`, and the parts add up to `per_thread`. The chunk is one of the tiling's, whose first
        // tile is inside; blocks end at `out_blocks`, and a split has no more of them than there is room for.
        unsafe {
            let gathered = self.operands.patches.0.add(thread * tiling.per_thread());
            let points = gathered.add(tiling.source_blocks * tiling.grid.gathered());
            let sums = points.add(tiling.source_blocks * tiling.grid.transformed());
            let weights = sums.add(tiling.sums());
            let results = weights.add(tiling.weights());
            let scratch = Scratch { gathered, points, sums, results, weights };
            for block in 0..tiling.source_blocks {
                let to = gathered.add(block * tiling.grid.gathered());
                tiling.grid.gather::<S>(self.source(), block, &chunk, to);
            }
            self.depth::<S, 1>(&chunk, first, end, scratch);
            self.depth::<S, 2>(&chunk, first, end, scratch);
            self.depth::<S, 0>(&chunk, first, end, scratch);
            self.depth::<S, 3>(&chunk, first, end, scratch);
        }
    }
}
