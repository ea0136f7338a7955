//! The gradient of attention: probabilities are recomputed from the logarithms of their sums.

use plimsoll_parallel::pairs;

use super::{At, AttentionShape, Carver, PADDING, Scratch, Window, floats, for_each_pair, products};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::lane_sums::{in_turn, total_of};
use crate::layout::blocks;
use crate::simd::exp::exp;
use crate::simd::{Element, LANES, Simd};

impl AttentionShape {
    /// Channels of a head, filled up to whole vectors.
    fn padded_width(&self) -> usize {
        self.head_channels().next_multiple_of(LANES)
    }

    /// Floats of what the gradient needs beside what attention does.
    fn gradient_pieces(&self) -> [usize; 7] {
        let (tokens, padded) = (self.tokens(), self.padded_width());
        [
            self.tiles() * tokens * LANES,
            tokens * padded,
            tokens * padded,
            tokens * LANES,
            self.head_channels() * LANES,
            LANES * padded,
            LANES * padded,
        ]
    }

    /// Floats of a thread's scratch for the gradient.
    pub(crate) fn gradient_per_thread(&self) -> usize {
        self.per_thread().saturating_add(floats(&self.gradient_pieces()))
    }

    /// Floats of the part of the table's gradient of each chunk.
    pub(crate) fn table_parts(&self) -> usize {
        self.chunks() * self.rows() * self.op.heads
    }

    /// Lanes of queries, keys and values.
    pub(crate) fn bias_lanes(&self) -> usize {
        blocks(3 * self.channels) * LANES
    }
}

/// The results of the forward pass that the gradient reads.
pub(crate) struct Attended<T> {
    /// The gradient of its result, `[sample][block][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// `[sample][head][voxel]`
    pub(crate) logs: Ptr<f32>,
}

/// The gradients of queries, keys and values, and each chunk's parts of the gradients of the table and of the bias.
pub(crate) struct AttentionGrad<T> {
    pub(crate) window: Window<T>,
    pub(crate) attended: Attended<T>,
    /// The result, `[sample][block][voxel][16]`.
    pub(crate) result: Ptr<T>,
    /// A result, `[chunk][rows][heads]`.
    pub(crate) table: Ptr<f32>,
    /// A result, `[chunk][block][16]`.
    pub(crate) bias: Option<Ptr<f32>>,
    /// Per thread, [`AttentionShape::gradient_per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
}

/// A thread's scratch for the gradient.
struct GradScratch {
    of: Scratch,
    /// `[tile][key][16 queries]`: the gradients of the biases of all pairs.
    dbiases: *mut f32,
    /// `[token][channel]`, filled up to whole vectors.
    dkeys: *mut f32,
    dvalues: *mut f32,
    /// `[key][16 queries]`
    dscores: *mut f32,
    /// `[channel][16 queries]`: the gradient of the result.
    upstream: *mut f32,
    /// `[16 queries][channel]`, filled up: it, and the queries.
    upstream_rows: *mut f32,
    query_rows: *mut f32,
}

impl<T: Element> Kernel for AttentionGrad<T> {
    fn tasks(&self) -> usize {
        self.window.shape.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let shape = &self.window.shape;
        let (head, chunk) = shape.at(task);
        let [dbiases, dkeys, dvalues, dscores, upstream, upstream_rows, query_rows] = shape.gradient_pieces();
        // SAFETY: `task < tasks`, so the head is one of the heads and the windows are of the samples; the scratch has
        // `gradient_per_thread` floats for each thread, which are these pieces. Bytes of zeroes are floats.
        unsafe {
            let mut carver = Carver(self.scratch.0.add(thread * shape.gradient_per_thread()));
            let scratch = GradScratch {
                of: self.window.start(&mut carver, head),
                dbiases: carver.piece(dbiases),
                dkeys: carver.piece(dkeys),
                dvalues: carver.piece(dvalues),
                dscores: carver.piece(dscores),
                upstream: carver.piece(upstream),
                upstream_rows: carver.piece(upstream_rows),
                query_rows: carver.piece(query_rows),
            };
            std::ptr::write_bytes(scratch.dbiases, 0, dbiases);
            std::ptr::write_bytes(scratch.upstream_rows, 0, upstream_rows);
            std::ptr::write_bytes(scratch.query_rows, 0, query_rows);
            self.clear_bias(head, chunk);
            for window in shape.windows_of(chunk) {
                let at = self.window.at(head, window);
                let is_mixed = self.window.gather(at, &scratch.of);
                std::ptr::write_bytes(scratch.dkeys, 0, dkeys);
                std::ptr::write_bytes(scratch.dvalues, 0, dvalues);
                for tile in 0..shape.tiles() {
                    if let Some(voxels) = self.window.tile(tile, &scratch.of) {
                        self.window.logits::<S>(at, tile, &voxels, is_mixed, &scratch.of);
                        self.tile::<S>(at, tile, &voxels, &scratch);
                    }
                }
                self.keys_and_values(at, chunk, &scratch);
            }
            self.table_part(head, chunk, &scratch);
        }
    }
}

impl<T: Element> AttentionGrad<T> {
    /// A channel of a chunk's part of the bias's gradient.
    ///
    /// # Safety
    /// `chunk` is below the number of chunks, and the channel below [`AttentionShape::bias_lanes`].
    #[inline(always)]
    unsafe fn bias_part(&self, bias: Ptr<f32>, chunk: usize, channel: usize) -> *mut f32 {
        // SAFETY: each chunk has that many lanes.
        unsafe { bias.0.add(chunk * self.window.shape.bias_lanes() + channel) }
    }

    /// Zeroes in a head's channels of a chunk's part of the bias's gradient; the last head's task has those behind them too.
    ///
    /// # Safety
    /// Head and chunk belong to a task; the bias's parts are as the field says.
    #[inline(always)]
    unsafe fn clear_bias(&self, head: usize, chunk: usize) {
        let Some(bias) = self.bias else { return };
        let shape = &self.window.shape;
        let width = shape.head_channels();
        let own = (0..3 * width).map(|i| i / width * shape.channels + head * width + i % width);
        let is_last = head + 1 == shape.op.heads;
        let behind = 3 * shape.channels..if is_last { shape.bias_lanes() } else { 3 * shape.channels };
        for channel in own.chain(behind) {
            // SAFETY: all are below the lanes of three times the channels, and no other task of the chunk has them.
            unsafe { *self.bias_part(bias, chunk, channel) = 0.0 };
        }
    }

    /// Adds the contribution of sixteen queries to all gradients, and computes the gradients of these queries.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds the scores of a tile with these voxels; buffers are as the
    /// fields say.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, at: At, tile: usize, voxels: &[u32; LANES], scratch: &GradScratch) {
        let (shape, of) = (&self.window.shape, &scratch.of);
        let (tokens, width, padded) = (shape.tokens(), shape.head_channels(), shape.padded_width());
        let scale = shape.op.scale(width) as f32;
        let first = at.head * width;
        // SAFETY: keys are below the number of tokens, lanes below sixteen and channels below the bounds of a head; pieces of scratch
        // are as the fields of `GradScratch` say; voxels belong to the grid.
        unsafe {
            // Lanes without a query have probabilities of almost nothing, and no gradient.
            let mut logs = [f32::MAX; LANES];
            for (log, voxel) in pairs(logs.iter_mut(), voxels).filter(|(_, voxel)| **voxel != PADDING) {
                let row = (at.sample * shape.op.heads + at.head) * shape.voxels();
                *log = *self.attended.logs.0.add(row + *voxel as usize);
            }
            let logs = S::load(logs.as_ptr());
            for key in 0..tokens {
                let score = of.scores.add(key * LANES);
                let p = exp(&S::to_array(S::sub(S::load(score), logs)));
                S::store(score, S::load(p.as_ptr()));
            }
            self.window.columns(
                shape.channels,
                self.attended.upstream,
                at.sample,
                first,
                voxels,
                1.0,
                scratch.upstream,
            );
            for (lane, d) in (0..LANES).flat_map(|lane| (0..width).map(move |d| (lane, d))) {
                *scratch.upstream_rows.add(lane * padded + d) = *scratch.upstream.add(d * LANES + lane);
                *scratch.query_rows.add(lane * padded + d) = *of.queries.add(d * LANES + lane);
            }
            let drops = self.window.noise.is_some();
            let dropped = match drops {
                true => {
                    self.window.drop::<S>(at, tile, of.scores, scratch.dscores);
                    scratch.dscores
                }
                false => of.scores,
            };
            products::add_outer::<S>(dropped, tokens, scratch.upstream_rows, padded, scratch.dvalues);
            products::row_products::<S>(of.values, width, tokens, scratch.upstream, None, scratch.dscores);
            if drops {
                self.window.drop::<S>(at, tile, scratch.dscores, scratch.dscores);
            }
            let mut delta = [S::zero(); 4];
            in_turn(
                0..tokens,
                &mut delta,
                #[inline(always)]
                |key, delta| {
                    let (p, dp) =
                        (S::load(of.scores.add(key * LANES)), S::load(scratch.dscores.add(key * LANES)));
                    *delta = S::fma(p, dp, *delta);
                },
            );
            let delta = total_of::<S>(delta);
            let dbiases = scratch.dbiases.add(tile * tokens * LANES);
            for key in 0..tokens {
                let (p, dp) =
                    (S::load(of.scores.add(key * LANES)), S::load(scratch.dscores.add(key * LANES)));
                let ds = S::mul(p, S::sub(dp, delta));
                S::store(of.scores.add(key * LANES), ds);
                let sum = dbiases.add(key * LANES);
                S::store(sum, S::add(S::load(sum), ds));
            }
            products::add_outer::<S>(of.scores, tokens, scratch.query_rows, padded, scratch.dkeys);
            products::column_products::<S>(of.keys, width, tokens, of.scores, of.sums);
            for (lane, voxel) in voxels.iter().enumerate().filter(|(_, voxel)| **voxel != PADDING) {
                for d in 0..width {
                    let place = self.window.place(3 * shape.channels, at.sample, first + d, *voxel as usize);
                    *self.result.0.add(place) = T::from_f32(scale * *of.sums.add(d * LANES + lane));
                }
            }
        }
    }

    /// Writes the gradients of a window's keys and values, and adds the gradients of the padding to the bias's.
    ///
    /// # Safety
    /// `at` is of the chunk; the scratch holds all sums of its window; buffers are as the fields say.
    #[inline(always)]
    unsafe fn keys_and_values(&self, at: At, chunk: usize, scratch: &GradScratch) {
        let shape = &self.window.shape;
        let (width, padded, channels) = (shape.head_channels(), shape.padded_width(), shape.channels);
        for token in 0..shape.tokens() {
            for (part, sums) in [(1, scratch.dkeys), (2, scratch.dvalues)] {
                for d in 0..width {
                    let channel = part * channels + at.head * width + d;
                    // SAFETY: tokens and channels belong to the window and the head, which this task alone has.
                    unsafe {
                        let gradient = *sums.add(token * padded + d);
                        match (*scratch.of.voxels.add(token), self.bias) {
                            (PADDING, Some(bias)) => *self.bias_part(bias, chunk, channel) += gradient,
                            (PADDING, None) => {}
                            (voxel, _) => {
                                let place =
                                    self.window.place(3 * channels, at.sample, channel, voxel as usize);
                                *self.result.0.add(place) = T::from_f32(gradient);
                            }
                        }
                    }
                }
            }
            // SAFETY: as above; lanes beyond the last channel are the last head's.
            unsafe {
                let voxel = *scratch.of.voxels.add(token);
                if voxel != PADDING && at.head + 1 == shape.op.heads {
                    for channel in 3 * channels..shape.bias_lanes() {
                        let place = self.window.place(3 * channels, at.sample, channel, voxel as usize);
                        *self.result.0.add(place) = T::from_f32(0.0);
                    }
                }
            }
        }
    }

    /// Sums the gradients of all pairs by rows of the table.
    ///
    /// # Safety
    /// Head and chunk belong to a task, and the scratch holds all its sums; the table's parts are as the field says.
    #[inline(always)]
    unsafe fn table_part(&self, head: usize, chunk: usize, scratch: &GradScratch) {
        let shape = &self.window.shape;
        let (rows, column) = (shape.rows(), scratch.of.column);
        // SAFETY: the column has `rows` floats, of which zero bytes are zeroes; places and rows belong to the pairs; the
        // chunk's part has a number for each row and head, which no other task has.
        unsafe {
            std::ptr::write_bytes(column, 0, rows);
            for_each_pair(shape, scratch.of.codes, |place, row| {
                if let Some(row) = row {
                    *column.add(row) += *scratch.dbiases.add(place);
                }
            });
            for row in 0..rows {
                *self.table.0.add((chunk * rows + row) * shape.op.heads + head) = *column.add(row);
            }
        }
    }
}

/// Adds up parts of a table, in order.
pub(crate) struct SumTables {
    /// `[part][count]`
    pub(crate) partial: Ptr<f32>,
    /// The result, `[count]`.
    pub(crate) result: Ptr<f32>,
    pub(crate) parts: usize,
    pub(crate) count: usize,
}

/// Numbers of a task.
const SUM_CHUNK: usize = 4096;

impl Kernel for SumTables {
    fn tasks(&self) -> usize {
        self.count.div_ceil(SUM_CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        for place in task * SUM_CHUNK..self.count.min((task + 1) * SUM_CHUNK) {
            // SAFETY: `place` is below `count`, of which each part and the result have as many.
            unsafe {
                let part = |part: usize| f64::from(*self.partial.0.add(part * self.count + place));
                *self.result.0.add(place) = (0..self.parts).map(part).sum::<f64>() as f32;
            }
        }
    }
}
