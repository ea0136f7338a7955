//! Heads fused with what reads their logits: a tile of the logits is computed, used, and overwritten by the next.

use plimsoll_graph::ops::{HardCounts, Loss, SoftmaxStats};
use plimsoll_plan::Unsupported;

use super::loss::{LogitKernel, SlopePlaces, Slopes};
use super::source::{Load, SourceRef};
use crate::kernel::{Kernel, Machine, Ptr};
use crate::kernels::head::{HeadBack, HeadLogits, HeadWeightGrad, PART};
use crate::kernels::loss::{ChunkCounts, ChunkSums, ChunkTable, add_chunks};
use crate::kernels::patch::SourceBlock;
use crate::kernels::pointwise::RunningSums;
use crate::kernels::voxels::{CHUNK, Voxels};
use crate::kernels::weight_grad::SumParts;
use crate::layout::blocks;
use crate::lower::{BoundNode, Context, Kernels, Lower, Places, by_storage, bytes_of, product};
use crate::simd::{Element, LANES};

/// A convolution 1×1×1 from one map to logits. Operands: the map with what its load takes, weights, and where `bias`, a bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Head {
    /// The way the map is read.
    pub(crate) load: Load,
    /// `true` if a bias is added.
    pub(crate) bias: bool,
}

impl Head {
    /// The number of operands it takes.
    pub(crate) fn operands(&self) -> usize {
        self.load.operands() + 1 + usize::from(self.bias)
    }
}

/// [`SoftmaxStats`] of a head's logits. Operands: the operands of the head, labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeadStats {
    pub(crate) head: Head,
    pub(crate) stats: SoftmaxStats,
}

/// [`HardCounts`] of a head's logits. Operands: the operands of the head, labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadCounts {
    pub(crate) head: Head,
    pub(crate) counts: HardCounts,
}

/// The gradients of a loss of a head's logits. Operands: the operands of the head, labels, the sums, the gradient of the loss, and
/// where `added`, a volume like the map, to which its gradient is added. Results: the gradients of the map (as read), of the
/// weights and, where there is one, of the bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeadGrad {
    pub(crate) head: Head,
    pub(crate) loss: Loss,
    pub(crate) added: bool,
}

/// Bytes that a tile of logits should not exceed, if it is not a tile of one chunk.
const TILE_BYTES: usize = 8 << 20;

// Sums of weights' gradients, of logits and of losses are cut alike, so that a tile ends where each of their parts does.
const _: () = assert!(CHUNK == PART);

/// A stretch of voxels of one sample.
#[derive(Clone, Copy)]
struct Tile {
    sample: usize,
    first: usize,
    count: usize,
}

/// The shape of a head, known before memory is allocated.
#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    classes: usize,
    voxels: usize,
    blocks: usize,
}

impl Shape {
    fn for_op(cx: &Context<'_>, head: Head) -> Shape {
        let map = &cx.input(0).shape;
        let classes = cx.input(head.load.operands()).shape.dim(0);
        Shape { batch: map.batch(), classes, voxels: map.voxels(), blocks: blocks(map.channels()) }
    }

    /// Voxels of a tile: whole chunks, by shape alone.
    fn tile(&self) -> usize {
        let chunks = (TILE_BYTES / (self.classes * CHUNK * size_of::<f32>())).max(1);
        (chunks * CHUNK).min(self.voxels.next_multiple_of(CHUNK))
    }

    fn tiles(self) -> impl Iterator<Item = Tile> {
        let tile = self.tile();
        (0..self.batch).flat_map(move |sample| {
            (0..self.voxels).step_by(tile).map(move |first| {
                let count = tile.min(self.voxels - first);
                Tile { sample, first, count }
            })
        })
    }

    fn chunks(&self) -> usize {
        self.voxels.div_ceil(CHUNK)
    }

    /// The number of a tile's first chunk.
    fn chunk(&self, tile: Tile) -> usize {
        tile.sample * self.chunks() + tile.first / CHUNK
    }

    fn logits_bytes(&self) -> usize {
        bytes_of::<f32>(self.classes * self.tile())
    }

    /// Floats of the weights.
    fn weights(&self) -> usize {
        self.classes * self.blocks * LANES
    }

    /// Chunks of all samples, each with sums of its own.
    fn tasks(&self) -> usize {
        self.batch * self.chunks()
    }

    /// The operations of this number of passes over the map.
    fn flops(&self, cx: &Context<'_>, passes: u64) -> u64 {
        let products = (cx.input(0).shape.count() as u64).saturating_mul(self.classes as u64);
        products.saturating_mul(2 * passes)
    }
}

/// A few classes leave most lanes of a register without work.
const SHARE: f64 = 0.1;

/// A head bound to memory, from which the kernels of its tiles are made.
struct Bound<T> {
    shape: Shape,
    source: Vec<SourceBlock<T>>,
    weights: Ptr<f32>,
    bias: Option<Ptr<f32>>,
    labels: Ptr<u8>,
    logits: Ptr<f32>,
    ignore: Option<u8>,
}

impl<T: Element> Bound<T> {
    /// Binds a head whose logits' tiles are the first piece of scratch.
    fn new(shape: Shape, head: Head, source: SourceRef, places: &Places, ignore: Option<u8>) -> Bound<T> {
        Bound {
            shape,
            source: source.views(places),
            weights: places.input(head.load.operands()),
            bias: head.bias.then(|| places.input(head.load.operands() + 1)),
            labels: places.input(head.operands()),
            logits: places.scratch(0),
            ignore,
        }
    }

    /// The blocks of the map in a tile, as if it were all.
    fn blocks(&self, tile: Tile) -> Vec<SourceBlock<T>> {
        let mut blocks = self.source.clone();
        for block in &mut blocks {
            // SAFETY: the tile's voxels are in the block, and its statistics have room for each sample.
            unsafe {
                block.data = block.data.add(tile.sample * block.sample_stride + tile.first * LANES);
                if let Some(norm) = &mut block.norm {
                    norm.statistics = norm.statistics.add(tile.sample * norm.statistics_stride);
                }
            }
        }
        blocks
    }

    fn head(&self, tile: Tile) -> HeadLogits<T> {
        HeadLogits {
            source: self.blocks(tile),
            weights: self.weights,
            bias: self.bias,
            logits: self.logits,
            batch: 1,
            classes: self.shape.classes,
            voxels: tile.count,
        }
    }

    fn voxels(&self, tile: Tile) -> Voxels {
        Voxels {
            logits: self.logits,
            // SAFETY: the tile's voxels have labels.
            labels: unsafe { self.labels.add(tile.sample * self.shape.voxels + tile.first) },
            batch: 1,
            classes: self.shape.classes,
            known: self.shape.classes,
            voxels: tile.count,
            ignore: self.ignore,
        }
    }
}

/// Sums over tiles, and what becomes of them in the end.
struct Tiles<T, K, R> {
    tiles: Vec<(HeadLogits<T>, K)>,
    partial: Ptr<f64>,
    result: Ptr<R>,
    /// The extents of `partial`.
    sums: ChunkTable,
    /// The conversion of a sum to the stored number.
    round: fn(f64) -> R,
}

impl<T: Element, K: Kernel + Send, R> BoundNode for Tiles<T, K, R> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says. A tile's
        // logits are computed before its sums are taken, and all sums before they are added; there are as many partial sums as
        // the tiles' chunks have, and as many results as are said.
        unsafe {
            for (head, sums) in &self.tiles {
                machine.launch(head);
                machine.launch(sums);
            }
            add_chunks(self.partial, self.result, self.sums, self.round);
        }
    }
}

/// The kernels of a tile of the gradient.
struct GradTile<T> {
    head: HeadLogits<T>,
    logits: LogitKernel,
    back: HeadBack<T>,
    weights: HeadWeightGrad<T>,
    bias: RunningSums,
}

struct TiledHeadGrad<T> {
    slopes: Slopes,
    tiles: Vec<GradTile<T>>,
    add: SumParts,
    totals: Ptr<f64>,
    /// The gradient of the bias `[classes]`, in blocks.
    bias: Option<(Ptr<f32>, usize)>,
}

impl<T: Element> BoundNode for TiledHeadGrad<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; the sums and
        // the gradient of the loss are written before. There is a total for each class, and the bias is whole blocks.
        unsafe {
            self.slopes.write();
            let classes = self.slopes.classes;
            std::slice::from_raw_parts_mut(self.totals.0, classes).fill(0.0);
            for tile in &self.tiles {
                machine.launch(&tile.head);
                tile.logits.launch(machine);
                machine.launch(&tile.back);
                machine.launch(&tile.weights);
                if self.bias.is_some() {
                    machine.launch(&tile.bias);
                }
            }
            machine.launch(&self.add);
            if let Some((bias, stored)) = self.bias {
                for class in 0..stored {
                    *bias.0.add(class) = if class < classes { *self.totals.0.add(class) as f32 } else { 0.0 };
                }
            }
        }
    }
}

impl Lower for HeadStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: &HeadStats) -> Kernels {
            let shape = Shape::for_op(cx, op.head);
            let (head, source) = (op.head, SourceRef::new(cx, op.head.load, 0));
            let rows = shape.classes * op.stats.rows();
            let per_thread = ChunkSums::per_thread(shape.classes, op.stats.extra.len());
            let scratch = [
                shape.logits_bytes(),
                bytes_of::<f32>(product([cx.threads, per_thread])),
                bytes_of::<f64>(product([shape.tasks(), rows])),
            ];
            let stats = op.stats.clone();
            Kernels::new(scratch, move |places| {
                let bound = Bound::<T>::new(shape, head, source, places, stats.ignore);
                let partial: Ptr<f64> = places.scratch(2);
                let sums = |tile: Tile| ChunkSums {
                    voxels: bound.voxels(tile),
                    squared: stats.squared,
                    extra: stats.extra.clone(),
                    scratch: places.scratch(1),
                    // SAFETY: each chunk has sums of its own.
                    partial: unsafe { partial.add(shape.chunk(tile) * rows) },
                };
                let tiles = shape.tiles().map(|tile| (bound.head(tile), sums(tile))).collect();
                let (result, sums) =
                    (places.output(0), ChunkTable { batch: shape.batch, chunks: shape.chunks(), rows });
                Box::new(Tiles { tiles, partial, result, sums, round: |sum| sum as f32 })
            })
        }
        let flops = Shape::for_op(cx, self.head).flops(cx, 1);
        Ok(by_storage!(cx.input(0), with(cx, self)).cost(cx.cost(flops)).share(SHARE))
    }
}

impl Lower for HeadCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: HeadCounts) -> Kernels {
            let shape = Shape::for_op(cx, op.head);
            let (head, source) = (op.head, SourceRef::new(cx, op.head.load, 0));
            let rows = shape.classes * 3;
            let scratch = [shape.logits_bytes(), bytes_of::<f64>(product([shape.tasks(), rows]))];
            Kernels::new(scratch, move |places| {
                let bound = Bound::<T>::new(shape, head, source, places, op.counts.ignore);
                let partial: Ptr<f64> = places.scratch(1);
                let counts = |tile: Tile| ChunkCounts {
                    voxels: bound.voxels(tile),
                    // SAFETY: each chunk has counts of its own.
                    partial: unsafe { partial.add(shape.chunk(tile) * rows) },
                };
                let tiles = shape.tiles().map(|tile| (bound.head(tile), counts(tile))).collect();
                let result: Ptr<f64> = places.output(0);
                let sums = ChunkTable { batch: 1, chunks: shape.tasks(), rows };
                Box::new(Tiles { tiles, partial, result, sums, round: |count| count })
            })
        }
        let flops = Shape::for_op(cx, self.head).flops(cx, 1);
        Ok(by_storage!(cx.input(0), with(cx, *self)).cost(cx.cost(flops)).share(SHARE))
    }
}

impl Lower for HeadGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let flops = Shape::for_op(cx, self.head).flops(cx, 3);
        let in_place: Vec<(usize, usize)> =
            self.added.then(|| (0, self.head.operands() + 3)).into_iter().collect();
        let kernels = by_storage!(cx.input(0), grad(cx, self));
        Ok(kernels.in_place(in_place).cost(cx.cost(flops)).share(SHARE))
    }
}

fn grad<T: Element>(cx: &Context<'_>, op: &HeadGrad) -> Kernels {
    let shape = Shape::for_op(cx, op.head);
    let (head, source) = (op.head, SourceRef::new(cx, op.head.load, 0));
    let slopes = SlopePlaces::pieces(&op.loss, shape.batch, shape.classes, cx.threads);
    let mut scratch = vec![shape.logits_bytes()];
    scratch.extend(slopes);
    scratch
        .extend([bytes_of::<f32>(product([shape.tasks(), shape.weights()])), bytes_of::<f64>(shape.classes)]);
    let (op, stored_bias) = (op.clone(), blocks(shape.classes) * LANES);
    Kernels::new(scratch, move |places| {
        let bound = Bound::<T>::new(shape, head, source, places, op.loss.ignore);
        let operand = op.head.operands();
        let slopes = Slopes {
            loss: op.loss.clone(),
            table: places.input(operand + 1),
            upstream: places.input(operand + 2),
            batch: shape.batch,
            classes: shape.classes,
            places: SlopePlaces::new(places, 1),
        };
        let added_to = op.added.then(|| places.input::<T>(operand + 3));
        let (partial, totals) = (places.scratch::<f32>(5), places.scratch::<f64>(6));
        let features = places.output::<T>(0);
        let one = |tile: Tile| {
            let place = (tile.sample * shape.blocks * shape.voxels + tile.first) * LANES;
            // SAFETY: the tile is in the map; each of its chunks has a part of the weights' gradient.
            let (features, added_to, partial) = unsafe {
                let added_to = added_to.map(|volume| volume.add(place));
                (features.add(place), added_to, partial.add(shape.chunk(tile) * shape.weights()))
            };
            GradTile {
                head: bound.head(tile),
                logits: slopes.kernel(bound.voxels(tile), tile.sample, bound.logits),
                back: HeadBack {
                    logits: bound.logits,
                    weights: bound.weights,
                    added_to,
                    features,
                    batch: 1,
                    classes: shape.classes,
                    blocks: shape.blocks,
                    voxels: tile.count,
                    block_stride: shape.voxels,
                },
                weights: HeadWeightGrad {
                    source: bound.blocks(tile),
                    logits: bound.logits,
                    partial,
                    batch: 1,
                    classes: shape.classes,
                    voxels: tile.count,
                },
                bias: RunningSums { data: bound.logits, channels: shape.classes, voxels: tile.count, totals },
            }
        };
        let tiles = shape.tiles().map(one).collect();
        let add =
            SumParts { partial, result: places.output(1), parts: shape.tasks(), count: shape.weights() };
        let bias = op.head.bias.then(|| (places.output(2), stored_bias));
        Box::new(TiledHeadGrad { slopes, tiles, add, totals, bias })
    })
}
