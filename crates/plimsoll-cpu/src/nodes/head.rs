//! Heads folded into what reads their logits: a tile of the logits is made, used, and overwritten by the next.

use plimsoll_graph::ops::{Head as HeadOp, HeadGrad as HeadGradOp};
use plimsoll_graph::{Op, TensorId};

use super::conv::{all_views, sources_of};
use super::loss::{LogitKernel, SlopePlaces, Slopes};
use super::{Context, Memory, Step, bytes_of, total};
use crate::blocks::blocks;
use crate::kernel::{Machine, Ptr};
use crate::kernels::head::{Head, HeadBack, HeadWeightGrad, PART};
use crate::kernels::loss::{CHUNK, ChunkCounts, ChunkSums, Voxels, add_chunks};
use crate::kernels::patch::SourceBlock;
use crate::kernels::pointwise::RunningSums;
use crate::kernels::weight_grad::SumParts;
use crate::simd::{Element, LANES};

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

/// What is known of a head before memory is.
struct Shape {
    batch: usize,
    classes: usize,
    voxels: usize,
    blocks: usize,
}

impl Shape {
    fn of(cx: &Context<'_>, head: HeadOp) -> Shape {
        let map = &cx.input(0).shape;
        let classes = cx.input(head.load.operands()).shape.dim(0);
        Shape { batch: map.batch(), classes, voxels: map.voxels(), blocks: blocks(map.channels()) }
    }

    /// Voxels of a tile: whole chunks, by shape alone.
    fn tile(&self) -> usize {
        let chunks = (TILE_BYTES / (self.classes * CHUNK * size_of::<f32>())).max(1);
        (chunks * CHUNK).min(self.voxels.next_multiple_of(CHUNK))
    }

    fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
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
}

fn head_of(op: &Op) -> HeadOp {
    match op {
        Op::HeadStats(op) => op.head,
        Op::HeadCounts(op) => op.head,
        Op::HeadGrad(op) => op.head,
        op => unreachable!("{} has no head", op.rule().name()),
    }
}

fn pieces(cx: &Context<'_>) -> [usize; 7] {
    let shape = Shape::of(cx, head_of(&cx.node.op));
    let tasks = shape.batch * shape.chunks();
    let logits = shape.logits_bytes();
    match &cx.node.op {
        Op::HeadStats(op) => [
            logits,
            bytes_of::<f32>(cx.threads * ChunkSums::per_thread(shape.classes, op.stats.extra.len())),
            bytes_of::<f64>(tasks * shape.classes * op.stats.rows()),
            0,
            0,
            0,
            0,
        ],
        Op::HeadGrad(op) => {
            let [scratch, slopes, factors, exact] =
                SlopePlaces::pieces(&op.loss, (shape.batch, shape.classes), cx.threads);
            let partial = bytes_of::<f32>(tasks * shape.weights());
            [logits, scratch, slopes, factors, exact, partial, bytes_of::<f64>(shape.classes)]
        }
        _ => [logits, bytes_of::<f64>(tasks * shape.classes * 3), 0, 0, 0, 0, 0],
    }
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total(pieces(cx))
}

/// A head bound to memory, from which those of its tiles are made.
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
    fn new(cx: &Context<'_>, memory: &Memory<'_>, logits: Ptr<u8>, ignore: Option<u8>) -> Bound<T> {
        let head = head_of(&cx.node.op);
        let operand = |place: usize| memory.tensor(cx.node.inputs[place]);
        Bound {
            shape: Shape::of(cx, head),
            source: all_views(&sources_of(&[head.load], cx), cx, memory),
            weights: operand(head.load.operands()),
            bias: head.bias.then(|| operand(head.load.operands() + 1)),
            labels: memory.tensor(cx.node.inputs[head.operands()]),
            logits: logits.cast(),
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

    fn head(&self, tile: Tile) -> Head<T> {
        Head {
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
            voxels: tile.count,
            ignore: self.ignore,
        }
    }
}

/// Sums over tiles, and what becomes of them in the end.
struct Tiles<T, K> {
    tiles: Vec<(Head<T>, K)>,
    partial: Ptr<f64>,
    result: Ptr<f32>,
    /// Results, parts of each, numbers in each.
    sums: (usize, usize, usize),
}

impl<T: Element, K: crate::kernel::Kernel + Send> Step for Tiles<T, K> {
    unsafe fn run(&self, machine: &Machine) {
        let (results, parts, rows) = self.sums;
        // SAFETY: passed on to the caller.
        unsafe {
            for (head, sums) in &self.tiles {
                machine.launch(head);
                machine.launch(sums);
            }
            add_chunks(self.partial, self.result, results, parts, rows);
        }
    }
}

/// The kernels of a tile of the gradient.
struct GradTile<T> {
    head: Head<T>,
    logits: LogitKernel,
    back: HeadBack<T>,
    weights: HeadWeightGrad<T>,
    bias: RunningSums,
}

struct Grad<T> {
    slopes: Slopes,
    tiles: Vec<GradTile<T>>,
    add: SumParts,
    totals: Ptr<f64>,
    /// The gradient of the bias `[classes]`, in blocks.
    bias: Option<(Ptr<f32>, usize)>,
}

impl<T: Element> Step for Grad<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller; there is a total for each class, and the bias is whole blocks.
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

pub(super) fn bind<T: Element>(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let pieces = memory.pieces(pieces(cx));
    let result = memory.tensor::<f32>(cx.node.outputs[0]);
    match &cx.node.op {
        Op::HeadStats(op) => {
            let bound = Bound::<T>::new(cx, memory, pieces[0], op.stats.ignore);
            let (shape, partial) = (&bound.shape, pieces[2].cast::<f64>());
            let rows = shape.classes * op.stats.rows();
            let sums = |tile: Tile| ChunkSums {
                voxels: bound.voxels(tile),
                squared: op.stats.squared,
                extra: op.stats.extra.clone(),
                scratch: pieces[1].cast(),
                // SAFETY: each chunk has sums of its own.
                partial: unsafe { partial.add(shape.chunk(tile) * rows) },
            };
            let tiles = shape.tiles().map(|tile| (bound.head(tile), sums(tile))).collect();
            Box::new(Tiles { tiles, partial, result, sums: (shape.batch, shape.chunks(), rows) })
        }
        Op::HeadCounts(op) => {
            let bound = Bound::<T>::new(cx, memory, pieces[0], op.counts.ignore);
            let (shape, partial) = (&bound.shape, pieces[1].cast::<f64>());
            let rows = shape.classes * 3;
            let counts = |tile: Tile| ChunkCounts {
                voxels: bound.voxels(tile),
                // SAFETY: each chunk has counts of its own.
                partial: unsafe { partial.add(shape.chunk(tile) * rows) },
            };
            let tiles = shape.tiles().map(|tile| (bound.head(tile), counts(tile))).collect();
            Box::new(Tiles { tiles, partial, result, sums: (1, shape.batch * shape.chunks(), rows) })
        }
        Op::HeadGrad(op) => grad::<T>(cx, memory, op, pieces),
        op => unreachable!("{} has no head", op.rule().name()),
    }
}

fn grad<T: Element>(
    cx: &Context<'_>,
    memory: &Memory<'_>,
    op: &HeadGradOp,
    [logits, scratch, slopes, factors, exact, partial, totals]: [Ptr<u8>; 7],
) -> Box<dyn Step> {
    let bound = Bound::<T>::new(cx, memory, logits, op.loss.ignore);
    let shape = &bound.shape;
    let operand = |place: usize| -> TensorId { cx.node.inputs[op.head.operands() + place] };
    let slopes = Slopes {
        loss: op.loss.clone(),
        table: memory.tensor(operand(1)),
        upstream: memory.tensor(operand(2)),
        batch: shape.batch,
        classes: shape.classes,
        places: SlopePlaces::of([scratch, slopes, factors, exact]),
    };
    let added_to = op.accumulate.then(|| memory.tensor::<T>(operand(3)));
    let (partial, totals) = (partial.cast::<f32>(), totals.cast::<f64>());
    let features = memory.tensor::<T>(cx.node.outputs[0]);
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
    let parts = shape.batch * shape.chunks();
    let add = SumParts { partial, result: memory.tensor(cx.node.outputs[1]), parts, count: shape.weights() };
    let bias = op.head.bias.then(|| (memory.tensor(cx.node.outputs[2]), blocks(shape.classes) * LANES));
    Box::new(Grad { slopes, tiles, add, totals, bias })
}
