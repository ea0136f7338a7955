//! The gradient of attention: probabilities are recomputed from the logarithms of their sums.

use super::super::{Carver, floats, products};
use super::{At, Attending, RotaryShape, Tile, each_query, to_rows};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::lane_sums::{in_turn, total_of};
use crate::simd::exp::exp;
use crate::simd::{Element, LANES, Simd};

impl RotaryShape {
    /// Floats of what the gradient needs beside what attention does.
    fn gradient_pieces(&self) -> [usize; 6] {
        let (voxels, padded) = (self.voxels(), self.padded_width());
        let rows = LANES * padded;
        [voxels * padded, voxels * padded, voxels * LANES, self.head_channels() * LANES, rows, rows]
    }

    /// Floats of a thread's scratch for the gradient.
    pub(crate) fn gradient_per_thread(&self) -> usize {
        self.per_thread().saturating_add(floats(&self.gradient_pieces()))
    }
}

/// The gradients of queries, keys and values. A task is a head of a sample.
pub(crate) struct RotaryAttentionGrad<T> {
    pub(crate) of: Attending<T>,
    /// The gradient of the result of attention, `[sample][block][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// `[sample][head][voxel]`
    pub(crate) logs: Ptr<f32>,
    /// The results, like the queries, keys and values, which they may alias.
    pub(crate) of_queries: Ptr<T>,
    pub(crate) of_keys: Ptr<T>,
    pub(crate) of_values: Ptr<T>,
    /// Per thread, [`RotaryShape::gradient_per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
}

/// A thread's scratch.
struct Scratch {
    /// `[voxel][channel]`
    keys: *mut f32,
    values: *mut f32,
    /// `[channel][16 queries]`, scaled.
    queries: *mut f32,
    /// `[key][16 queries]`: probabilities, then the gradients of logits.
    scores: *mut f32,
    /// `[channel][16 queries]`
    sums: *mut f32,
    /// `[voxel][channel]`, filled up to whole vectors.
    dkeys: *mut f32,
    dvalues: *mut f32,
    /// `[key][16 queries]`: the gradients of probabilities.
    dscores: *mut f32,
    /// `[channel][16 queries]`: the gradient of the result.
    upstream: *mut f32,
    /// `[16 queries][channel]`, filled up: it, and the queries.
    upstream_rows: *mut f32,
    query_rows: *mut f32,
}

impl<T: Element> Kernel for RotaryAttentionGrad<T> {
    fn tasks(&self) -> usize {
        self.of.shape.batch * self.of.shape.op.heads
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let shape = &self.of.shape;
        let at = At { sample: task / shape.op.heads, head: task % shape.op.heads };
        let [keys, values, queries, scores, sums] = shape.pieces();
        let [dkeys, dvalues, dscores, upstream, upstream_rows, query_rows] = shape.gradient_pieces();
        // SAFETY: `task < tasks`, so sample and head are within the shape; the scratch has `gradient_per_thread` floats for each thread, which
        // are these pieces. Bytes of zeroes are floats.
        unsafe {
            let mut carver = Carver(self.scratch.0.add(thread * shape.gradient_per_thread()));
            let scratch = Scratch {
                keys: carver.piece(keys),
                values: carver.piece(values),
                queries: carver.piece(queries),
                scores: carver.piece(scores),
                sums: carver.piece(sums),
                dkeys: carver.piece(dkeys),
                dvalues: carver.piece(dvalues),
                dscores: carver.piece(dscores),
                upstream: carver.piece(upstream),
                upstream_rows: carver.piece(upstream_rows),
                query_rows: carver.piece(query_rows),
            };
            std::ptr::write_bytes(scratch.upstream_rows, 0, upstream_rows);
            std::ptr::write_bytes(scratch.query_rows, 0, query_rows);
            std::ptr::write_bytes(scratch.dkeys, 0, dkeys);
            std::ptr::write_bytes(scratch.dvalues, 0, dvalues);
            self.of.gather(at, scratch.keys, scratch.values);
            for tile in 0..shape.tiles() {
                let tile = self.of.tile(tile);
                self.probabilities::<S>(at, tile, &scratch);
                self.tile::<S>(at, tile, &scratch);
            }
            self.keys_and_values(at, &scratch);
        }
    }
}

impl<T: Element> RotaryAttentionGrad<T> {
    /// Gathers the queries and the gradients of the results of a tile, and recomputes its probabilities.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds the keys of the head; buffers are as the fields say; the tile is one of
    /// the shape's.
    #[inline(always)]
    unsafe fn probabilities<S: Simd>(&self, at: At, tile: Tile, scratch: &Scratch) {
        let shape = &self.of.shape;
        let (voxels, width, padded) = (shape.voxels(), shape.head_channels(), shape.padded_width());
        // SAFETY: keys are below the number of voxels, lanes below the tile's count are voxels; pieces of scratch are as the fields of
        // `Scratch` say.
        unsafe {
            self.of.columns(at, tile, scratch.queries);
            products::row_products::<S>(scratch.keys, width, voxels, scratch.queries, None, scratch.scores);
            // Lanes without a query have probabilities of almost nothing, and no gradient.
            let mut logs = [f32::MAX; LANES];
            let row = (at.sample * shape.op.heads + at.head) * voxels;
            each_query(
                tile,
                &mut logs,
                #[inline(always)]
                |voxel| *self.logs.0.add(row + voxel),
            );
            let logs = S::load(logs.as_ptr());
            for key in 0..voxels {
                let score = scratch.scores.add(key * LANES);
                let p = exp(&S::to_array(S::sub(S::load(score), logs)));
                S::store(score, S::load(p.as_ptr()));
            }
            for channel in 0..width {
                let mut lanes = [0.0; LANES];
                each_query(
                    tile,
                    &mut lanes,
                    #[inline(always)]
                    |voxel| self.of.read(self.upstream, at, channel, voxel),
                );
                S::store(scratch.upstream.add(channel * LANES), S::load(lanes.as_ptr()));
            }
            to_rows(scratch.upstream, width, padded, scratch.upstream_rows);
            to_rows(scratch.queries, width, padded, scratch.query_rows);
        }
    }

    /// Adds the contribution of sixteen queries to the gradients of keys and values, and writes the gradients of these queries.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds what [`RotaryAttentionGrad::probabilities`] left; buffers are as the
    /// fields say.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, at: At, tile: Tile, scratch: &Scratch) {
        let shape = &self.of.shape;
        let (voxels, width, padded) = (shape.voxels(), shape.head_channels(), shape.padded_width());
        // SAFETY: keys are below the number of voxels, and channels those of a head; pieces of scratch are as the fields of `Scratch` say.
        unsafe {
            products::add_outer::<S>(scratch.scores, voxels, scratch.upstream_rows, padded, scratch.dvalues);
            products::row_products::<S>(
                scratch.values,
                width,
                voxels,
                scratch.upstream,
                None,
                scratch.dscores,
            );
            let mut delta = [S::zero(); 4];
            in_turn(
                0..voxels,
                &mut delta,
                #[inline(always)]
                |key, delta| {
                    let p = S::load(scratch.scores.add(key * LANES));
                    *delta = S::fma(p, S::load(scratch.dscores.add(key * LANES)), *delta);
                },
            );
            let delta = total_of::<S>(delta);
            for key in 0..voxels {
                let score = scratch.scores.add(key * LANES);
                let dp = S::load(scratch.dscores.add(key * LANES));
                S::store(score, S::mul(S::load(score), S::sub(dp, delta)));
            }
            products::add_outer::<S>(scratch.scores, voxels, scratch.query_rows, padded, scratch.dkeys);
            products::column_products::<S>(scratch.keys, width, voxels, scratch.scores, scratch.sums);
            let scale = shape.op.scale(width) as f32;
            for lane in 0..tile.count {
                let voxel = tile.first + lane;
                self.back(
                    self.of_queries,
                    at,
                    voxel,
                    #[inline(always)]
                    |channel| scale * *scratch.sums.add(channel * LANES + lane),
                );
            }
        }
    }

    /// Writes the gradients of keys and values.
    ///
    /// # Safety
    /// The scratch holds all their sums; buffers are as the fields say.
    #[inline(always)]
    unsafe fn keys_and_values(&self, at: At, scratch: &Scratch) {
        let shape = &self.of.shape;
        let (width, padded) = (shape.head_channels(), shape.padded_width());
        for voxel in 0..shape.voxels() {
            // SAFETY: voxels and channels belong to the head, which this task alone has.
            unsafe {
                let (dkey, dvalue) = (scratch.dkeys.add(voxel * padded), scratch.dvalues.add(voxel * padded));
                self.back(
                    self.of_keys,
                    at,
                    voxel,
                    #[inline(always)]
                    |channel| *dkey.add(channel),
                );
                for channel in 0..width {
                    let place = self.of.place(at, channel, voxel);
                    *self.of_values.0.add(place) = T::from_f32(*dvalue.add(channel));
                }
                self.of.fill_up(self.of_values, at, voxel);
            }
        }
    }

    /// Writes the channels of a voxel, rotated back.
    ///
    /// # Safety
    /// `to` is a volume of the shape, whose head no other task writes; `channel` may be called for each channel of a head.
    #[inline(always)]
    unsafe fn back(&self, to: Ptr<T>, at: At, voxel: usize, channel: impl Fn(usize) -> f32) {
        // SAFETY: pairs are channels of the head at a voxel of the volume.
        unsafe {
            self.of.turns.for_each(
                voxel,
                #[inline(always)]
                |pair, [cos, sin]| {
                    let (a, b) = (channel(2 * pair), channel(2 * pair + 1));
                    *to.0.add(self.of.place(at, 2 * pair, voxel)) = T::from_f32(a * cos + b * sin);
                    *to.0.add(self.of.place(at, 2 * pair + 1, voxel)) = T::from_f32(b * cos - a * sin);
                },
            );
            self.of.fill_up(to, at, voxel);
        }
    }
}
