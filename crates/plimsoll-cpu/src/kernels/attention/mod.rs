//! Attention within windows.
//!
//! The matrix of a window and head never exists: sixteen queries are taken at a time, one in each lane, with all keys
//! of their window. So sums over keys and channels need no sums over lanes, whatever the number of a head's channels. A
//! task is a head of a few windows; the biases of all pairs of a query and a key, which these windows share, are laid
//! out for it once.

mod backward;
mod forward;
mod products;
pub(crate) mod rotary;

use plimsoll_parallel::{each, pairs};
use std::ops::Range;

use plimsoll_graph::ops::{AttentionWindows, NOISE, Noise, OTHER_REGION, WindowAttention, philox};

pub(crate) use backward::{Attended, AttentionGrad, SumTables};
pub(crate) use forward::Attention;

use crate::kernel::Ptr;
use crate::layout::blocks;
use crate::simd::{Element, LANES, Simd};

/// The most chunks that windows are cut into, each with a part of the gradients of table and bias.
const CHUNKS: usize = 32;
/// The least windows of a chunk where there are as many: laying out the biases costs as much as one of them.
const CHUNK_WINDOWS: usize = 8;
/// Marks a token of the padding.
const PADDING: u32 = u32::MAX;

/// The shape that the work is cut by.
#[derive(Clone, Copy)]
pub(crate) struct AttentionShape {
    pub(crate) op: WindowAttention,
    pub(crate) batch: usize,
    /// Channels of the result.
    pub(crate) channels: usize,
    pub(crate) extent: [usize; 3],
}

impl AttentionShape {
    fn windows(&self) -> AttentionWindows {
        self.op.windows(self.extent)
    }

    /// Tokens of a window.
    #[inline]
    fn tokens(&self) -> usize {
        self.windows().tokens()
    }

    /// Sixteens of queries of a window.
    #[inline]
    fn tiles(&self) -> usize {
        self.tokens().div_ceil(LANES)
    }

    #[inline]
    fn voxels(&self) -> usize {
        self.extent.iter().product()
    }

    fn head_channels(&self) -> usize {
        self.channels / self.op.heads
    }

    /// Rows of the table.
    #[inline]
    pub(crate) fn rows(&self) -> usize {
        self.op.positions().rows()
    }

    /// Windows of all samples that a task takes.
    fn chunk_windows(&self) -> usize {
        let all = self.batch * self.windows().count();
        all.div_ceil(CHUNKS).max(CHUNK_WINDOWS.min(all))
    }

    pub(crate) fn chunks(&self) -> usize {
        (self.batch * self.windows().count()).div_ceil(self.chunk_windows())
    }

    fn tasks(&self) -> usize {
        self.op.heads * self.chunks()
    }

    /// Head and chunk of a task.
    #[inline]
    fn at(&self, task: usize) -> (usize, usize) {
        (task / self.chunks(), task % self.chunks())
    }

    /// The windows of a chunk, counted through all samples.
    #[inline]
    fn windows_of(&self, chunk: usize) -> Range<usize> {
        let all = self.batch * self.windows().count();
        chunk * self.chunk_windows()..all.min((chunk + 1) * self.chunk_windows())
    }

    /// Floats of what both directions need.
    #[inline]
    fn pieces(&self) -> [usize; 9] {
        let (tokens, width) = (self.tokens(), self.head_channels());
        let rows = width * LANES;
        [
            self.rows(),
            self.tiles() * tokens * LANES,
            tokens * width,
            tokens * width,
            rows,
            tokens * LANES,
            rows,
            2 * tokens,
            tokens,
        ]
    }

    /// Floats of a thread's scratch.
    pub(crate) fn per_thread(&self) -> usize {
        floats(&self.pieces())
    }
}

/// Floats of some pieces, each of which begins a cache line.
fn floats(pieces: &[usize]) -> usize {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.next_multiple_of(LANES)))
}

/// Cuts scratch into pieces, one behind the other.
struct Carver(*mut f32);

impl Carver {
    /// # Safety
    /// So much of the scratch is left.
    unsafe fn piece(&mut self, floats: usize) -> *mut f32 {
        let piece = self.0;
        // SAFETY: the end of a piece is within the scratch or at its end, as this function's contract says.
        self.0 = unsafe { piece.add(floats.next_multiple_of(LANES)) };
        piece
    }
}

/// A thread's scratch.
#[derive(Clone, Copy)]
struct Scratch {
    /// `[rows]`: the table's column of the head.
    column: *mut f32,
    /// `[tile][key][16 queries]`: the bias of each pair; 0 in lanes beyond the last query.
    biases: *mut f32,
    /// `[token][channel]` of the head.
    keys: *mut f32,
    values: *mut f32,
    /// `[channel][16 queries]`, scaled; 0 in lanes without a query.
    queries: *mut f32,
    /// `[key][16 queries]`
    scores: *mut f32,
    /// `[channel][16 queries]`
    sums: *mut f32,
    /// `[token]`: see [`RelativePositions::code`](plimsoll_graph::ops::RelativePositions::code).
    codes: *mut u32,
    /// `[token]`: its voxel, or [`PADDING`].
    voxels: *mut u32,
    /// `[token]`
    regions: *mut f32,
}

/// The operands that both directions read.
pub(crate) struct Window<T> {
    pub(crate) shape: AttentionShape,
    /// `[sample][block][voxel][16]`: queries, keys and values.
    pub(crate) qkv: Ptr<T>,
    /// `[rows][heads]`
    pub(crate) table: Ptr<f32>,
    /// `[block][16]`: queries, keys and values of padding tokens.
    pub(crate) bias: Option<Ptr<f32>>,
    /// `[NOISE]`
    pub(crate) noise: Option<Ptr<f32>>,
}

/// A head of a window of a sample.
#[derive(Clone, Copy)]
struct At {
    head: usize,
    sample: usize,
    window: usize,
}

impl<T: Element> Window<T> {
    #[inline]
    fn at(&self, head: usize, window: usize) -> At {
        let count = self.shape.windows().count();
        At { head, sample: window / count, window: window % count }
    }

    /// The place of a channel of a voxel in a volume of `channels` channels.
    #[inline(always)]
    fn place(&self, channels: usize, sample: usize, channel: usize, voxel: usize) -> usize {
        let block = sample * blocks(channels) + channel / LANES;
        (block * self.shape.voxels() + voxel) * LANES + channel % LANES
    }

    /// Cuts a thread's scratch and lays out the biases of a head.
    ///
    /// # Safety
    /// The carver has [`AttentionShape::per_thread`] floats that are the thread's own; `head` is one of the heads; the table is as
    /// its field says, and initialised.
    #[inline(always)]
    unsafe fn start(&self, carver: &mut Carver, head: usize) -> Scratch {
        let shape = &self.shape;
        let (tokens, rows, positions) = (shape.tokens(), shape.rows(), shape.op.positions());
        let [column, biases, keys, values, queries, scores, sums, numbers, regions] = shape.pieces();
        // SAFETY: these are the pieces that `per_thread` counts. Tokens are below `tokens`, of whose pairs each has a row below
        // `rows`, since a window has no more tokens than that of the table.
        unsafe {
            let column = carver.piece(column);
            let biases = carver.piece(biases);
            let (keys, values) = (carver.piece(keys), carver.piece(values));
            let (queries, scores, sums) = (carver.piece(queries), carver.piece(scores), carver.piece(sums));
            let codes: *mut u32 = carver.piece(numbers).cast();
            let scratch = Scratch {
                column,
                biases,
                keys,
                values,
                queries,
                scores,
                sums,
                codes,
                voxels: codes.add(tokens),
                regions: carver.piece(regions),
            };
            for row in 0..rows {
                *column.add(row) = *self.table.0.add(row * shape.op.heads + head);
            }
            for token in 0..tokens {
                *codes.add(token) = positions.code(token) as u32;
            }
            for_each_pair(shape, codes, |place, row| {
                *biases.add(place) = row.map_or(0.0, |row| *column.add(row));
            });
            scratch
        }
    }

    /// Gathers keys and values of a head of a window, its voxels and regions; says whether it has several regions.
    ///
    /// # Safety
    /// `at` is one of the heads, samples and windows; the scratch is one of [`Window::start`]; operands are as the fields say,
    /// and initialised.
    #[inline(always)]
    unsafe fn gather(&self, at: At, scratch: &Scratch) -> bool {
        let (shape, channels) = (&self.shape, self.shape.channels);
        let width = shape.head_channels();
        let first_key = channels + at.head * width;
        let mut is_mixed = false;
        let mut first_region = None;
        for (token, of) in shape.windows().tokens_in(at.window).enumerate() {
            is_mixed |= *first_region.get_or_insert(of.region) != of.region;
            // SAFETY: `token` is below the number of tokens, and has `width` channels in each third of the volume and the bias; a
            // voxel of a window is one of the grid.
            unsafe {
                *scratch.regions.add(token) = f32::from(of.region);
                *scratch.voxels.add(token) = of.voxel.map_or(PADDING, |voxel| voxel as u32);
                for d in 0..width {
                    let (key, value) = (first_key + d, first_key + channels + d);
                    let (key, value) = match (of.voxel, self.bias) {
                        (Some(voxel), _) => {
                            let read = |channel: usize| {
                                let place = self.place(3 * channels, at.sample, channel, voxel);
                                (*self.qkv.0.add(place)).to_f32()
                            };
                            (read(key), read(value))
                        }
                        (None, Some(bias)) => (*bias.0.add(key), *bias.0.add(value)),
                        (None, None) => (0.0, 0.0),
                    };
                    *scratch.keys.add(token * width + d) = key;
                    *scratch.values.add(token * width + d) = value;
                }
            }
        }
        is_mixed
    }

    /// The voxels of sixteen queries; [`PADDING`] for a lane without one. None if all are.
    ///
    /// # Safety
    /// The scratch holds what [`Window::gather`] left; `tile` is below the number of tiles.
    #[inline(always)]
    unsafe fn tile(&self, tile: usize, scratch: &Scratch) -> Option<[u32; LANES]> {
        let mut voxels = [PADDING; LANES];
        for (token, voxel) in pairs(tile * LANES..self.shape.tokens(), &mut voxels) {
            // SAFETY: `token` is below the number of tokens.
            *voxel = unsafe { *scratch.voxels.add(token) };
        }
        voxels.iter().any(|voxel| *voxel != PADDING).then_some(voxels)
    }

    /// Gathers queries and computes their logits with all keys: `scores`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the scratch holds what [`Window::gather`] left for `at`, of whose tiles
    /// `tile` is one with these voxels; operands are as the fields say, and initialised.
    #[inline(always)]
    unsafe fn logits<S: Simd>(
        &self,
        at: At,
        tile: usize,
        voxels: &[u32; LANES],
        is_mixed: bool,
        scratch: &Scratch,
    ) {
        let shape = &self.shape;
        let (tokens, width) = (shape.tokens(), shape.head_channels());
        let scale = shape.op.scale(width) as f32;
        // SAFETY: the tile's biases are `[key][16]`, and queries, keys, scores and regions as the fields of `Scratch` say.
        unsafe {
            self.columns(
                3 * shape.channels,
                self.qkv,
                at.sample,
                at.head * width,
                voxels,
                scale,
                scratch.queries,
            );
            let biases = scratch.biases.add(tile * tokens * LANES);
            products::row_products::<S>(
                scratch.keys,
                width,
                tokens,
                scratch.queries,
                Some(biases),
                scratch.scores,
            );
            if !is_mixed {
                return;
            }
            let mut regions = [0.0; LANES];
            for (token, region) in pairs(tile * LANES..tokens, &mut regions) {
                *region = *scratch.regions.add(token);
            }
            let regions = S::load(regions.as_ptr());
            for key in 0..tokens {
                let off = S::sub(regions, S::splat(*scratch.regions.add(key)));
                let other = S::where_positive(S::mul(off, off), S::splat(OTHER_REGION), S::zero());
                let score = scratch.scores.add(key * LANES);
                S::store(score, S::add(S::load(score), other));
            }
        }
    }

    /// Gathers a head's channels of sixteen voxels, times a factor, as columns `[channel][16]`; 0 for a lane without a voxel.
    ///
    /// # Safety
    /// `data` is an initialised volume in blocks of this number of channels and this grid; the sample is one of its
    /// samples; `to` is valid for writes of sixteen floats for each of the head's channels, which begin at `first`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "what is read, of which voxels, and where it goes")]
    unsafe fn columns(
        &self,
        channels: usize,
        data: Ptr<T>,
        sample: usize,
        first: usize,
        voxels: &[u32; LANES],
        factor: f32,
        to: *mut f32,
    ) {
        let width = self.shape.head_channels();
        for (lane, voxel) in voxels.iter().enumerate() {
            for d in 0..width {
                // SAFETY: the voxel is one of the grid and the channel one of the head's, as this function's contract says.
                unsafe {
                    *to.add(d * LANES + lane) = match *voxel {
                        PADDING => 0.0,
                        voxel => {
                            let place = self.place(channels, sample, first + d, voxel as usize);
                            factor * (*data.0.add(place)).to_f32()
                        }
                    };
                }
            }
        }
    }

    /// Returns dropout's factors for the probabilities of the four keys of `group`, in each lane; none without dropout.
    ///
    /// # Safety
    /// The noise is as the field says, and initialised.
    #[inline(always)]
    unsafe fn factors(&self, at: At, tile: usize, group: usize) -> Option<[[f32; LANES]; 4]> {
        let table = self.noise?;
        // SAFETY: the noise is a table of `NOISE` numbers; any numbers make some key.
        let noise = Noise::from_table(unsafe { *table.0.cast::<[f32; NOISE]>() });
        let op = &self.shape.op;
        let sample = noise.first_sample.wrapping_add(at.sample as u32);
        let windows = self.shape.windows();
        let mut counters = [[0; LANES]; 4];
        for lane in 0..LANES {
            let counter = op.counter(sample, [at.head, at.window, tile * LANES + lane, group], &windows);
            for (words, word) in pairs(counters.iter_mut(), counter) {
                words[lane] = word;
            }
        }
        let (threshold, scale) = (op.threshold(), op.kept_scale());
        let random = philox(counters, noise.key);
        Some(each(random, |words| each(words, |word| if word < threshold { 0.0 } else { scale })))
    }

    /// Multiplies rows of sixteen with the factors of dropout: `from` to `to`, `[key][16]` each, which may be one.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; both are valid for reads and writes of sixteen floats for each token; the noise
    /// is as the field says, and initialised.
    #[inline(always)]
    unsafe fn drop<S: Simd>(&self, at: At, tile: usize, from: *const f32, to: *mut f32) {
        let tokens = self.shape.tokens();
        for group in 0..tokens.div_ceil(4) {
            // SAFETY: keys are below the number of tokens; the noise is initialised, as this function's contract says.
            unsafe {
                let Some(factors) = self.factors(at, tile, group) else { return };
                for (key, factor) in pairs(4 * group..tokens, &factors) {
                    let x = S::load(from.add(key * LANES));
                    S::store(to.add(key * LANES), S::mul(x, S::load(factor.as_ptr())));
                }
            }
        }
    }
}

/// Calls `visit(place, row)` for all places of `[tile][key][16 queries]` with the row of the table, none for lanes without a query.
///
/// # Safety
/// `codes` holds the codes of all tokens of a window.
#[inline(always)]
unsafe fn for_each_pair(
    shape: &AttentionShape,
    codes: *const u32,
    mut visit: impl FnMut(usize, Option<usize>),
) {
    let (tokens, centre) = (shape.tokens(), shape.op.positions().centre());
    for tile in 0..shape.tiles() {
        let mut of_queries = [None; LANES];
        for (query, code) in pairs(tile * LANES..tokens, &mut of_queries) {
            // SAFETY: `query` is below the number of tokens.
            *code = Some(unsafe { *codes.add(query) } as usize + centre);
        }
        for key in 0..tokens {
            // SAFETY: `key` is below the number of tokens.
            let of_key = unsafe { *codes.add(key) } as usize;
            for (lane, of_query) in of_queries.iter().enumerate() {
                visit((tile * tokens + key) * LANES + lane, of_query.map(|code| code - of_key));
            }
        }
    }
}
