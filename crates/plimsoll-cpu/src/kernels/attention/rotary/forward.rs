//! The results of attention, and the logarithm of each query's sum of exponentials.

use super::super::{Carver, products};
use super::{At, Attending, Tile};
use crate::kernel::{Kernel, Ptr};
use crate::simd::exp::exp;
use crate::simd::{Element, LANES, Simd};

/// o = softmax(q kᵀ) v, for each head.
pub(crate) struct RotaryAttention<T> {
    pub(crate) of: Attending<T>,
    /// The result, `[sample][block][voxel][16]`, which may alias the queries.
    pub(crate) result: Ptr<T>,
    /// A result, `[sample][head][voxel]`.
    pub(crate) logs: Ptr<f32>,
    /// Per thread, [`RotaryShape::per_thread`](super::RotaryShape::per_thread) floats.
    pub(crate) scratch: Ptr<f32>,
}

/// A thread's scratch.
struct Scratch {
    /// `[voxel][channel]`
    keys: *mut f32,
    values: *mut f32,
    /// `[channel][16 queries]`, scaled.
    queries: *mut f32,
    /// `[key][16 queries]`
    scores: *mut f32,
    /// `[channel][16 queries]`
    sums: *mut f32,
}

impl<T: Element> Kernel for RotaryAttention<T> {
    fn tasks(&self) -> usize {
        let shape = &self.of.shape;
        shape.batch * shape.op.heads * shape.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let shape = &self.of.shape;
        let (of_sample, chunks) = (shape.op.heads * shape.chunks(), shape.chunks());
        let at = At { sample: task / of_sample, head: task % of_sample / chunks };
        let [keys, values, queries, scores, sums] = shape.pieces();
        // SAFETY: `task < tasks`, so sample, head and tiles are within the shape; the scratch has `per_thread` floats for each thread, which
        // are these pieces.
        unsafe {
            let mut carver = Carver(self.scratch.0.add(thread * shape.per_thread()));
            let scratch = Scratch {
                keys: carver.piece(keys),
                values: carver.piece(values),
                queries: carver.piece(queries),
                scores: carver.piece(scores),
                sums: carver.piece(sums),
            };
            self.of.gather(at, scratch.keys, scratch.values);
            for tile in shape.tiles_of(task % chunks) {
                self.attend::<S>(at, self.of.tile(tile), &scratch);
            }
        }
    }
}

impl<T: Element> RotaryAttention<T> {
    /// The results of sixteen queries.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds the keys and values of the head; buffers are as the fields say, and the
    /// tile is one of the task's.
    #[inline(always)]
    unsafe fn attend<S: Simd>(&self, at: At, tile: Tile, scratch: &Scratch) {
        let shape = &self.of.shape;
        let (voxels, width) = (shape.voxels(), shape.head_channels());
        // SAFETY: keys are below the number of voxels; pieces of scratch are as the fields of `Scratch` say; voxels and channels are those of
        // the tile and the head, which no other task writes, and queries are read before.
        unsafe {
            self.of.columns(at, tile, scratch.queries);
            products::row_products::<S>(scratch.keys, width, voxels, scratch.queries, None, scratch.scores);
            let mut top = S::splat(f32::NEG_INFINITY);
            for key in 0..voxels {
                top = S::max(top, S::load(scratch.scores.add(key * LANES)));
            }
            let mut sum = S::zero();
            for key in 0..voxels {
                let score = scratch.scores.add(key * LANES);
                let e = exp(&S::to_array(S::sub(S::load(score), top)));
                let e = S::load(e.as_ptr());
                sum = S::add(sum, e);
                S::store(score, e);
            }
            products::column_products::<S>(scratch.values, width, voxels, scratch.scores, scratch.sums);
            let (top, sum) = (S::to_array(top), S::to_array(sum));
            for lane in 0..tile.count {
                let voxel = tile.first + lane;
                let log = self.logs.0.add((at.sample * shape.op.heads + at.head) * voxels + voxel);
                *log = top[lane] + sum[lane].ln();
                let whole = 1.0 / sum[lane];
                for channel in 0..width {
                    let value = *scratch.sums.add(channel * LANES + lane) * whole;
                    *self.result.0.add(self.of.place(at, channel, voxel)) = T::from_f32(value);
                }
                self.of.fill_up(self.result, at, voxel);
            }
        }
    }
}
