//! Attention: what is attended to, and the logarithm of each query's sum of exponentials.

use super::{At, Carver, PADDING, Scratch, Window, products};
use crate::kernel::{Kernel, Ptr};
use crate::layout::blocks;
use crate::simd::exp::exp;
use crate::simd::{Element, LANES, Simd};

/// o = softmax(q kᵀ + biases) v, for each head and window.
pub(crate) struct Attention<T> {
    pub(crate) window: Window<T>,
    /// The result, `[sample][block][voxel][16]`.
    pub(crate) result: Ptr<T>,
    /// A result, `[sample][head][voxel]`.
    pub(crate) logs: Ptr<f32>,
    /// Per thread, [`AttentionShape::per_thread`](super::AttentionShape::per_thread) floats.
    pub(crate) scratch: Ptr<f32>,
}

impl<T: Element> Kernel for Attention<T> {
    fn tasks(&self) -> usize {
        self.window.shape.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let shape = &self.window.shape;
        let (head, chunk) = shape.at(task);
        // SAFETY: `task < tasks`, so the head is one of the heads and the windows are of the samples; the scratch has
        // `per_thread` floats for each thread.
        unsafe {
            let mut carver = Carver(self.scratch.0.add(thread * shape.per_thread()));
            let scratch = self.window.start(&mut carver, head);
            for window in shape.windows_of(chunk) {
                let at = self.window.at(head, window);
                let is_mixed = self.window.gather(at, &scratch);
                for tile in 0..shape.tiles() {
                    if let Some(voxels) = self.window.tile(tile, &scratch) {
                        self.window.logits::<S>(at, tile, &voxels, is_mixed, &scratch);
                        self.attend::<S>(at, tile, &voxels, &scratch);
                    }
                }
            }
        }
    }
}

impl<T: Element> Attention<T> {
    /// Softmax of the scores, and the sum of values that they weigh.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds the scores of a tile with these voxels; buffers are as the
    /// fields say.
    #[inline(always)]
    unsafe fn attend<S: Simd>(&self, at: At, tile: usize, voxels: &[u32; LANES], scratch: &Scratch) {
        let shape = &self.window.shape;
        let (tokens, width) = (shape.tokens(), shape.head_channels());
        // SAFETY: keys are below the number of tokens; the voxels belong to the grid and the channels of the result those of
        // the head, which no other task writes; the last head's task writes the lanes beyond the last channel.
        unsafe {
            let mut top = S::splat(f32::NEG_INFINITY);
            for key in 0..tokens {
                top = S::max(top, S::load(scratch.scores.add(key * LANES)));
            }
            let mut sum = S::zero();
            for key in 0..tokens {
                let score = scratch.scores.add(key * LANES);
                let e = exp(&S::to_array(S::sub(S::load(score), top)));
                let e = S::load(e.as_ptr());
                sum = S::add(sum, e);
                S::store(score, e);
            }
            if self.window.noise.is_some() {
                self.window.drop::<S>(at, tile, scratch.scores, scratch.scores);
            }
            products::column_products::<S>(scratch.values, width, tokens, scratch.scores, scratch.sums);
            let (top, sum) = (S::to_array(top), S::to_array(sum));
            for (lane, voxel) in voxels.iter().enumerate().filter(|(_, voxel)| **voxel != PADDING) {
                let voxel = *voxel as usize;
                let log = self.logs.0.add((at.sample * shape.op.heads + at.head) * shape.voxels() + voxel);
                *log = top[lane] + sum[lane].ln();
                let whole = 1.0 / sum[lane];
                for d in 0..width {
                    let place = self.window.place(shape.channels, at.sample, at.head * width + d, voxel);
                    *self.result.0.add(place) = T::from_f32(*scratch.sums.add(d * LANES + lane) * whole);
                }
                if at.head + 1 == shape.op.heads {
                    for channel in shape.channels..blocks(shape.channels) * LANES {
                        let place = self.window.place(shape.channels, at.sample, channel, voxel);
                        *self.result.0.add(place) = T::from_f32(0.0);
                    }
                }
            }
        }
    }
}
