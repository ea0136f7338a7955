//! Voxels of a block one behind the other along the channels, and the gradient of that.

use plimsoll_graph::ops::SpaceToDepth as Op;
use plimsoll_parallel::each_index;

use super::geometry::places;
use crate::kernel::{Kernel, Ptr};
use crate::layout::blocks;
use crate::simd::{Element, LANES, Simd};

/// Lanes of a block of many channels that belong to one block of few, one behind the other.
#[derive(Clone, Copy)]
struct Run {
    /// The number of the offset.
    offset: usize,
    /// Block and first lane among the many channels.
    deep: (usize, usize),
    /// Block and first lane among the few.
    flat: (usize, usize),
    lanes: usize,
}

/// Returns the channels of the shallow volume, as runs, with the channels of the deep volume that they map to.
fn runs(offsets: usize, channels: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    for offset in 0..offsets {
        let mut channel = 0;
        while channel < channels {
            let deep = offset * channels + channel;
            let lanes = (LANES - deep % LANES).min(LANES - channel % LANES).min(channels - channel);
            let place = |channel: usize| (channel / LANES, channel % LANES);
            runs.push(Run { offset, deep: place(deep), flat: place(channel), lanes });
            channel += lanes;
        }
    }
    runs
}

/// The two volumes.
struct Shape {
    op: Op,
    batch: usize,
    /// Extent of the volume with few channels, and its blocks.
    flat: [usize; 3],
    flat_blocks: usize,
    /// The extent of the volume with many channels.
    deep: [usize; 3],
    deep_blocks: usize,
    /// By the block that is written.
    runs: Vec<Vec<Run>>,
}

impl Shape {
    fn new(
        op: &Op,
        batch: usize,
        channels: usize,
        flat: [usize; 3],
        block_of: impl Fn(&Run) -> usize,
    ) -> Shape {
        let offsets = op.offsets.len();
        let deep_blocks = blocks(offsets * channels);
        let mut of_block = vec![Vec::new(); deep_blocks.max(blocks(channels))];
        runs(offsets, channels).into_iter().for_each(|run| of_block[block_of(&run)].push(run));
        Shape {
            op: op.clone(),
            batch,
            flat,
            flat_blocks: blocks(channels),
            deep: op.output(flat),
            deep_blocks,
            runs: of_block,
        }
    }
}

/// The place of a voxel of a block.
fn place(sample: usize, blocks: usize, block: usize, extent: [usize; 3], at: [usize; 3]) -> usize {
    let [d, h, w] = extent;
    ((((sample * blocks + block) * d + at[0]) * h + at[1]) * w + at[2]) * LANES
}

/// y\[k C + c\] at p = x\[c\] at p · block + offset k
pub(crate) struct SpaceToDepth<T> {
    shape: Shape,
    /// `[sample][block][voxel][16]` of few channels.
    source: Ptr<T>,
    /// The same of many.
    result: Ptr<T>,
}

impl<T> SpaceToDepth<T> {
    pub(crate) fn new(
        op: &Op,
        batch: usize,
        channels: usize,
        extent: [usize; 3],
        source: Ptr<T>,
        result: Ptr<T>,
    ) -> SpaceToDepth<T> {
        SpaceToDepth { shape: Shape::new(op, batch, channels, extent, |run| run.deep.0), source, result }
    }
}

impl<T: Element> Kernel for SpaceToDepth<T> {
    fn tasks(&self) -> usize {
        self.shape.batch * self.shape.deep_blocks * self.shape.deep[0]
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let shape = &self.shape;
        let (of_sample, d) = (task / shape.deep[0], task % shape.deep[0]);
        let (sample, block) = (of_sample / shape.deep_blocks, of_sample % shape.deep_blocks);
        for [_, h, w] in places([1, shape.deep[1], shape.deep[2]]) {
            let to = place(sample, shape.deep_blocks, block, shape.deep, [d, h, w]);
            // SAFETY: `task < tasks`, so the voxel `to` is one of the result's, and in no other task; runs are within blocks of
            // their volumes, and only voxels within the source's extent are read.
            unsafe {
                let to = self.result.0.add(to);
                T::store::<S>(to, S::zero());
                for run in &shape.runs[block] {
                    let offset = shape.op.offsets[run.offset];
                    let at = [d * shape.op.block[0], h * shape.op.block[1], w * shape.op.block[2]];
                    let at = [at[0] + offset[0], at[1] + offset[1], at[2] + offset[2]];
                    if (0..3).any(|axis| at[axis] >= shape.flat[axis]) {
                        continue;
                    }
                    let from = place(sample, shape.flat_blocks, run.flat.0, shape.flat, at) + run.flat.1;
                    std::ptr::copy_nonoverlapping(self.source.0.add(from), to.add(run.deep.1), run.lanes);
                }
            }
        }
    }
}

/// dx\[c\] at p · block + offset = Σ dy\[k C + c\] at p, over all k of that offset
pub(crate) struct SpaceToDepthGrad<T> {
    shape: Shape,
    /// `[sample][block][voxel][16]` of many channels.
    source: Ptr<T>,
    /// The same of few.
    result: Ptr<T>,
}

impl<T> SpaceToDepthGrad<T> {
    pub(crate) fn new(
        op: &Op,
        batch: usize,
        channels: usize,
        extent: [usize; 3],
        source: Ptr<T>,
        result: Ptr<T>,
    ) -> SpaceToDepthGrad<T> {
        SpaceToDepthGrad { shape: Shape::new(op, batch, channels, extent, |run| run.flat.0), source, result }
    }
}

impl<T: Element> Kernel for SpaceToDepthGrad<T> {
    fn tasks(&self) -> usize {
        self.shape.batch * self.shape.flat_blocks * self.shape.flat[0]
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let shape = &self.shape;
        let (of_sample, d) = (task / shape.flat[0], task % shape.flat[0]);
        let (sample, block) = (of_sample / shape.flat_blocks, of_sample % shape.flat_blocks);
        for [_, h, w] in places([1, shape.flat[1], shape.flat[2]]) {
            let at = [d, h, w];
            let of_block: [usize; 3] = each_index(|axis| at[axis] / shape.op.block[axis]);
            let within: [usize; 3] = each_index(|axis| at[axis] % shape.op.block[axis]);
            let mut sum = [0.0f32; LANES];
            for run in shape.runs[block].iter().filter(|run| shape.op.offsets[run.offset] == within) {
                let from = place(sample, shape.deep_blocks, run.deep.0, shape.deep, of_block) + run.deep.1;
                for lane in 0..run.lanes {
                    // SAFETY: the block of a voxel of the operand is one of the result of the forward op, and runs are within
                    // blocks of their volumes.
                    sum[run.flat.1 + lane] += unsafe { (*self.source.0.add(from + lane)).to_f32() };
                }
            }
            let to = place(sample, shape.flat_blocks, block, shape.flat, at);
            // SAFETY: `task < tasks`, so the voxel is one of the result's, and in no other task.
            unsafe { T::store::<S>(self.result.0.add(to), S::load(sum.as_ptr())) };
        }
    }
}
