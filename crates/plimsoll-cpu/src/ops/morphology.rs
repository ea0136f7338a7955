//! Grey morphology, and sums over its results.

use plimsoll_graph::ops::{
    BoxExtreme, BoxExtremeGrad, ClDice, ClDiceGrad, Counted, CrossErosion, CrossErosionGrad, Extreme,
    MeanDifference, MeanDifferenceGrad, OneHot, OverlapSums, OverlapSumsGrad, SkeletonStep, SkeletonStepGrad,
    SoftRecall, SoftRecallGrad, Union,
};
use plimsoll_graph::{Shape, TensorInfo};
use plimsoll_plan::Unsupported;

use crate::kernel::{Kernel, Machine, Ptr};
use crate::kernels::loss::{ChunkTable, add_chunks};
use crate::kernels::morphology::Grid;
use crate::kernels::morphology::cross::{CrossErosions, CrossSpread};
use crate::kernels::morphology::extreme::{BoxExtremes, PlaneExtremes, SignedVolume};
use crate::kernels::morphology::reduce::{
    Classes, CountedOnly, DifferenceSlopes, Differences, Labels, OverlapSlopes, Overlaps, Pair, chunks,
};
use crate::kernels::morphology::skeleton::{SkeletonSlopes, SkeletonSteps, SkeletonTerm};
use crate::kernels::morphology::spread::Spread;
use crate::lower::{BoundNode, Context, Kernels, Lower, Places, bytes_of, product, serial, single};

fn grid(tensor: &TensorInfo) -> Grid {
    let shape = &tensor.shape;
    Grid { channels: shape.batch() * shape.channels(), extent: shape.spatial() }
}

/// The bytes of rows of this number of floats for each thread.
fn rows(cx: &Context<'_>, floats: usize) -> usize {
    bytes_of::<f32>(product([cx.threads, floats]))
}

fn width(cx: &Context<'_>) -> usize {
    let [_, _, width] = cx.input(0).shape.spatial();
    width
}

/// The volume whose extreme is taken: the extreme of its negative is the other extreme.
fn signed(op: BoxExtreme, grid: Grid, x: Ptr<f32>) -> SignedVolume {
    SignedVolume { x, grid, sign: if op.extreme == Extreme::Max { 1.0 } else { -1.0 } }
}

fn check_radius(cx: &Context<'_>, radius: usize) -> Result<(), Unsupported> {
    match radius {
        1 | 2 => Ok(()),
        radius => Err(cx.unsupported(format!("the radius is {radius}; it must be 1 or 2"))),
    }
}

impl Lower for BoxExtreme {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        check_radius(cx, self.radius)?;
        let (op, grid) = (*self, grid(cx.input(0)));
        Ok(Kernels::new([rows(cx, BoxExtremes::per_thread(width(cx)))], move |places| {
            single(BoxExtremes {
                source: signed(op, grid, places.input(0)),
                radius: op.radius,
                result: places.output(0),
                scratch: places.scratch(0),
            })
        }))
    }
}

/// The gradient of a box extreme, added to a third operand where `added`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AddedBoxGrad {
    pub(crate) grad: BoxExtremeGrad,
    pub(crate) added: bool,
}

/// The gradient of a cross erosion, added to a third operand where `added`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AddedCrossGrad {
    pub(crate) added: bool,
}

/// The third operand, whose place a result may take to which it is added.
fn in_place(added: bool) -> Vec<(usize, usize)> {
    added.then_some((0, 2)).into_iter().collect()
}

/// The gradient of box extremes, channel by channel.
struct SpreadAll {
    spread: Spread,
}

impl BoundNode for SpreadAll {
    unsafe fn run(&self, machine: &Machine) {
        let Spread { source, radius, planes, scratch, .. } = self.spread;
        for channel in 0..source.grid.channels {
            let extremes = PlaneExtremes { source, channel, radius, result: planes, scratch };
            // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says. The rows
            // that the first kernel needs of the scratch are fewer than the second's.
            unsafe {
                machine.launch(&extremes);
                machine.launch(&Spread { channel, ..self.spread });
            }
        }
    }
}

impl Lower for BoxExtremeGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        AddedBoxGrad { grad: *self, added: false }.lower(cx)
    }
}

impl Lower for AddedBoxGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let AddedBoxGrad { grad, added } = *self;
        let radius = grad.of.radius;
        check_radius(cx, radius)?;
        let grid = grid(cx.input(1));
        let scratch =
            [rows(cx, Spread::per_thread(width(cx), radius)), bytes_of::<f32>(cx.input(0).shape.voxels())];
        let kernels = Kernels::new(scratch, move |places| {
            let spread = Spread {
                source: signed(grad.of, grid, places.input(1)),
                channel: 0,
                radius,
                planes: places.scratch(1),
                upstream: places.input(0),
                factor: grad.factor,
                known: added.then(|| places.input(2)),
                result: places.output(0),
                scratch: places.scratch(0),
            };
            Box::new(SpreadAll { spread })
        });
        let side = 2 * radius as u64 + 1;
        let flops = (side * (side + 1) + 12 * side) * cx.output(0).shape.count() as u64;
        Ok(kernels.in_place(in_place(added)).cost(cx.cost(flops)))
    }
}

impl Lower for CrossErosion {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let grid = grid(cx.input(0));
        Ok(Kernels::new([rows(cx, CrossErosions::per_thread(width(cx)))], move |places| {
            let (x, result, scratch) = (places.input(0), places.output(0), places.scratch(0));
            single(CrossErosions { grid, x, result, scratch })
        }))
    }
}

impl Lower for CrossErosionGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        AddedCrossGrad { added: false }.lower(cx)
    }
}

impl Lower for AddedCrossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (grid, added) = (grid(cx.input(1)), self.added);
        let kernels = Kernels::new([rows(cx, CrossSpread::per_thread(width(cx)))], move |places| {
            single(CrossSpread {
                grid,
                x: places.input(1),
                upstream: places.input(0),
                known: added.then(|| places.input(2)),
                result: places.output(0),
                scratch: places.scratch(0),
            })
        });
        let flops = 40 * cx.output(0).shape.count() as u64;
        Ok(kernels.in_place(in_place(added)).cost(cx.cost(flops)))
    }
}

/// The operands of a step of a skeleton, from `first` on.
fn skeleton(union: Union, grid: Grid, first: usize, has_skeleton: bool, places: &Places) -> SkeletonTerm {
    let dilation = BoxExtreme { radius: 1, extreme: Extreme::Max };
    SkeletonTerm {
        union,
        x: places.input(first),
        eroded: signed(dilation, grid, places.input(first + 1)),
        skeleton: has_skeleton.then(|| places.input(first + 2)),
        scratch: places.scratch(0),
    }
}

impl Lower for SkeletonStep {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, grid) = (*self, grid(cx.input(0)));
        let kernels = Kernels::new([rows(cx, SkeletonTerm::per_thread(width(cx)))], move |places| {
            let term = skeleton(op.union, grid, 0, !op.first, places);
            single(SkeletonSteps { term, result: places.output(0) })
        });
        Ok(kernels.in_place(if self.first { vec![(0, 0)] } else { vec![(0, 2), (0, 0)] }))
    }
}

impl Lower for SkeletonStepGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, grid) = (self.of, grid(cx.input(1)));
        let kernels = Kernels::new([rows(cx, SkeletonTerm::per_thread(width(cx)))], move |places| {
            single(SkeletonSlopes {
                term: skeleton(op.union, grid, 1, !op.first, places),
                upstream: places.input(0),
                by_x: places.output(0),
                by_skeleton: (!op.first).then(|| places.output(1)),
            })
        });
        let of_x = [(0, 0), (0, 1)];
        let of_skeleton = [(1, 3), (1, 0), (1, 1)];
        Ok(kernels.in_place(if op.first { of_x.to_vec() } else { [&of_x[..], &of_skeleton].concat() }))
    }
}

/// Sums of chunks, and what follows from them.
struct Reduced<K, F> {
    kernel: K,
    finish: F,
}

impl<K: Kernel + Send, F: Fn(&K) + Send + Sync> BoundNode for Reduced<K, F> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says.
        unsafe { machine.launch(&self.kernel) };
        (self.finish)(&self.kernel);
    }
}

/// Parts of a volume that have sums of their own, and elements of one.
fn parts(of: OverlapSums, shape: &Shape) -> (usize, usize) {
    let (batch, channels, voxels) = (shape.batch(), shape.channels(), shape.voxels());
    if of.by_channel { (batch * channels, voxels) } else { (batch, channels * voxels) }
}

impl Lower for OverlapSums {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (batch, elements) = parts(*self, &cx.input(0).shape);
        let scratch = [bytes_of::<f64>(product([batch, chunks(elements), 2]))];
        Ok(Kernels::new(scratch, move |places| {
            let (a, b, partial) = (places.input(0), places.input(1), places.scratch(0));
            let result: Ptr<f32> = places.output(0);
            let finish = move |kernel: &Overlaps| {
                let result = result;
                // SAFETY: the chunks' sums are written; the result has two numbers for each part.
                unsafe {
                    let table = ChunkTable { batch: kernel.batch, chunks: chunks(elements), rows: 2 };
                    add_chunks(kernel.partial, result, table, |sum| sum as f32);
                }
            };
            Box::new(Reduced { kernel: Overlaps { a, b, batch, elements, partial }, finish })
        }))
    }
}

impl Lower for OverlapSumsGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (by_first, (batch, elements)) = (self.by_first, parts(self.of, &cx.input(1).shape));
        let kernels = Kernels::single(move |places| OverlapSlopes {
            other: places.input(1),
            upstream: places.input(0),
            by_first,
            batch,
            elements,
            result: places.output(0),
        });
        Ok(kernels.in_place([(0, 1)]))
    }
}

/// The sums of a sample.
///
/// # Safety
/// Both tables must be written and have two numbers for each sample.
unsafe fn sums_of(sums: [Ptr<f32>; 2], sample: usize) -> [[f64; 2]; 2] {
    // SAFETY: each table has two numbers for the sample, as this function's contract says.
    sums.map(|sums| [0, 1].map(|row| f64::from(unsafe { *sums.0.add(2 * sample + row) })))
}

impl Lower for ClDice {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, samples) = (*self, cx.input(0).shape.dim(0));
        Ok(Kernels::new([], move |places| {
            let (sums, result): ([Ptr<f32>; 2], Ptr<f32>) =
                ([places.input(0), places.input(1)], places.output(0));
            let run = move || {
                // Whole pointers are captured, not their fields.
                let (sums, result) = (sums, result);
                // SAFETY: the sums are written before the loss is taken of them; the result is one number.
                unsafe {
                    let value = |sample: usize| {
                        let [precision, sensitivity] = sums_of(sums, sample);
                        op.from_sums(precision, sensitivity).0
                    };
                    *result.0 = ((0..samples).map(value).sum::<f64>() / samples as f64) as f32;
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for ClDiceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, samples) = (self.of, cx.input(1).shape.dim(0));
        Ok(Kernels::new([], move |places| {
            let upstream: Ptr<f32> = places.input(0);
            let sums: [Ptr<f32>; 2] = [places.input(1), places.input(2)];
            let results: [Ptr<f32>; 2] = [places.output(0), places.output(1)];
            let run = move || {
                let (upstream, sums, results) = (upstream, sums, results);
                for sample in 0..samples {
                    // SAFETY: the sums and the gradient are written; the results are like the sums.
                    unsafe {
                        let factor = f64::from(*upstream.0) / samples as f64;
                        let [precision, sensitivity] = sums_of(sums, sample);
                        let (_, slopes) = op.from_sums(precision, sensitivity);
                        for (result, slopes) in results.iter().zip(slopes) {
                            for (row, slope) in slopes.into_iter().enumerate() {
                                *result.0.add(2 * sample + row) = (factor * slope) as f32;
                            }
                        }
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

/// The recall of sums `[N, C, 2]`; `visit(place, slope)` gets its derivatives by the first of each pair, at `place`.
///
/// # Safety
/// The sums must be written.
unsafe fn recall(
    op: SoftRecall,
    samples: usize,
    classes: usize,
    sums: Ptr<f32>,
    mut visit: impl FnMut(usize, f64),
) -> f64 {
    let at = |sample: usize, class: usize, row: usize| (sample * classes + class) * 2 + row;
    let of = |sample: usize, class: usize| {
        // SAFETY: the sums are written, as this function's contract says, two for each sample and class.
        [0, 1].map(|row| f64::from(unsafe { *sums.0.add(at(sample, class, row)) }))
    };
    op.from_sums(samples, classes, of, |sample, class, slope| visit(at(sample, class, 0), slope))
}

impl Lower for SoftRecall {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, samples, classes) = (*self, cx.input(0).shape.dim(0), cx.input(0).shape.dim(1));
        Ok(Kernels::new([], move |places| {
            let (sums, result): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.output(0));
            let run = move || {
                let (sums, result) = (sums, result);
                // SAFETY: the sums are written before the loss is taken of them; the result is one number.
                unsafe { *result.0 = recall(op, samples, classes, sums, |_, _| {}) as f32 };
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for SoftRecallGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, samples, classes) = (self.of, cx.input(1).shape.dim(0), cx.input(1).shape.dim(1));
        Ok(Kernels::new([], move |places| {
            let (upstream, sums): (Ptr<f32>, Ptr<f32>) = (places.input(0), places.input(1));
            let result: Ptr<f32> = places.output(0);
            let run = move || {
                let (upstream, sums, result) = (upstream, sums, result);
                // SAFETY: the sums and the gradient are written; the result is like the sums, so it has both numbers of a pair.
                unsafe {
                    recall(op, samples, classes, sums, |place, slope| {
                        *result.0.add(place) = (f64::from(*upstream.0) * slope) as f32;
                        *result.0.add(place + 1) = 0.0;
                    });
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

/// The labels at an operand, of voxels with this number of channels.
fn labels(shape: &Shape, channels: usize, ignore: Option<u8>, operand: usize, places: &Places) -> Labels {
    Labels {
        labels: places.input(operand),
        batch: shape.batch(),
        channels,
        voxels: shape.voxels(),
        classes: channels + 1,
        ignore,
    }
}

impl Lower for OneHot {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (*self, cx.input(0).shape.clone());
        Ok(Kernels::single(move |places| {
            let labels = labels(&shape, op.foreground, op.ignore, 0, places);
            Classes { labels, result: places.output(0) }
        }))
    }
}

impl Lower for Counted {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (*self, cx.input(0).shape.clone());
        let kernels = Kernels::single(move |places| {
            let labels = labels(&shape, shape.channels(), op.ignore, 1, places);
            CountedOnly { labels, x: places.input(0), result: places.output(0) }
        });
        Ok(kernels.in_place([(0, 0)]))
    }
}

/// The volumes and labels of a difference, from operand `first` on.
fn pair(of: MeanDifference, shape: &Shape, first: usize, places: &Places) -> Pair {
    let labels = labels(shape, shape.channels(), of.ignore, first + 2, places);
    Pair {
        labels: Labels { classes: of.classes, ..labels },
        threshold: of.threshold,
        a: places.input(first),
        b: places.input(first + 1),
    }
}

impl Lower for MeanDifference {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (*self, cx.input(0).shape.clone());
        let chunks = chunks(shape.voxels());
        let scratch = [bytes_of::<f64>(product([shape.batch(), shape.channels(), chunks, 3]))];
        Ok(Kernels::new(scratch, move |places| {
            let kernel = Differences { pair: pair(op, &shape, 0, places), partial: places.scratch(0) };
            let results: [Ptr<f32>; 2] = [places.output(0), places.output(1)];
            Box::new(Reduced {
                kernel,
                finish: move |kernel: &Differences| mean(op, kernel, chunks, results),
            })
        }))
    }
}

/// The loss and the factors of its gradient, from the sums of chunks.
fn mean(of: MeanDifference, kernel: &Differences, chunks: usize, [loss, factors]: [Ptr<f32>; 2]) {
    let parts = kernel.pair.labels.parts();
    let mut sum = 0.0;
    for part in 0..parts {
        // SAFETY: the chunks' sums are written, three for each; there are two factors for each part.
        unsafe {
            let row = |row: usize| -> f64 {
                (0..chunks).map(|chunk| *kernel.partial.0.add((part * chunks + chunk) * 3 + row)).sum()
            };
            let (value, of_part) = of.from_sums([row(0), row(1)], row(2), parts);
            sum += value;
            for (i, factor) in of_part.into_iter().enumerate() {
                *factors.0.add(part * 2 + i) = factor as f32;
            }
        }
    }
    // SAFETY: the loss is one number.
    unsafe { *loss.0 = sum as f32 };
}

impl Lower for MeanDifferenceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (op, shape) = (self.of, cx.input(2).shape.clone());
        let kernels = Kernels::single(move |places| DifferenceSlopes {
            pair: pair(op, &shape, 2, places),
            upstream: places.input(0),
            factors: places.input(1),
            result: places.output(0),
        });
        Ok(kernels.in_place([(0, 2), (0, 3)]))
    }
}
