//! Grey morphology, and sums over its results.

use plimsoll_graph::ops::{BoxExtreme, ClDice, Extreme, MeanDifference, OverlapSums, SoftRecall, Union};
use plimsoll_graph::{Op, Shape, TensorInfo};
use plimsoll_plan::Unsupported;

use super::{Context, Memory, Serial, Step, bytes_of, single, total};
use crate::kernel::{Kernel, Machine, Ptr};
use crate::kernels::loss::add_chunks;
use crate::kernels::morphology::Grid;
use crate::kernels::morphology::cross::{CrossErosions, CrossSpread};
use crate::kernels::morphology::extreme::{BoxExtremes, PlaneExtremes, Source};
use crate::kernels::morphology::reduce::{
    Classes, CountedOnly, DifferenceSlopes, Differences, Labels, OverlapSlopes, Overlaps, Pair, chunks,
};
use crate::kernels::morphology::skeleton::{SkeletonSlopes, SkeletonSteps, Step as Skeleton};
use crate::kernels::morphology::spread::Spread;

pub(super) fn supports(cx: &Context<'_>) -> Result<(), Unsupported> {
    let radius = match &cx.node.op {
        Op::BoxExtreme(op) => op.radius,
        Op::BoxExtremeGrad(op) => op.of.radius,
        _ => return Ok(()),
    };
    match radius {
        1 | 2 => Ok(()),
        radius => Err(cx.unsupported(format!("the radius is {radius}; it must be 1 or 2"))),
    }
}

fn grid(tensor: &TensorInfo) -> Grid {
    let shape = &tensor.shape;
    Grid { channels: shape.batch() * shape.channels(), extent: shape.spatial() }
}

/// Parts that have sums of their own, and elements of one.
fn parts(of: OverlapSums, tensor: &TensorInfo) -> (usize, usize) {
    let (batch, channels, voxels) = (tensor.shape.batch(), tensor.shape.channels(), tensor.shape.voxels());
    if of.by_channel { (batch * channels, voxels) } else { (batch, channels * voxels) }
}

/// Bytes of the pieces of a node's scratch.
fn pieces(cx: &Context<'_>) -> [usize; 2] {
    let width = cx.input(0).shape.dim(4);
    let rows = |floats: usize| bytes_of::<f32>(cx.threads * floats);
    match &cx.node.op {
        Op::BoxExtreme(_) => [rows(BoxExtremes::per_thread(width)), 0],
        Op::BoxExtremeGrad(op) => {
            [rows(Spread::per_thread(width, op.of.radius)), bytes_of::<f32>(cx.input(0).shape.voxels())]
        }
        Op::CrossErosion(_) => [rows(CrossErosions::per_thread(width)), 0],
        Op::CrossErosionGrad(_) => [rows(CrossSpread::per_thread(width)), 0],
        Op::SkeletonStep(_) | Op::SkeletonStepGrad(_) => [rows(Skeleton::per_thread(width)), 0],
        Op::OverlapSums(op) => {
            let (batch, elements) = parts(*op, cx.input(0));
            [bytes_of::<f64>(batch * chunks(elements) * 2), 0]
        }
        Op::MeanDifference(_) => {
            let grid = grid(cx.input(0));
            [bytes_of::<f64>(grid.channels * chunks(grid.voxels()) * 3), 0]
        }
        _ => [0; 2],
    }
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total(pieces(cx))
}

/// The gradient of box extremes, channel by channel.
struct SpreadAll {
    spread: Spread,
}

impl Step for SpreadAll {
    unsafe fn run(&self, machine: &Machine) {
        let Spread { source, radius, planes, scratch, .. } = self.spread;
        for channel in 0..source.grid.channels {
            let extremes = PlaneExtremes { source, channel, radius, result: planes, scratch };
            // SAFETY: passed on to the caller. The rows that the first kernel needs of the scratch are fewer than the second's.
            unsafe {
                machine.launch(&extremes);
                machine.launch(&Spread { channel, ..self.spread });
            }
        }
    }
}

/// Sums of chunks, and what follows from them.
struct Reduced<K, F> {
    kernel: K,
    finish: F,
}

impl<K: Kernel + Send, F: Fn(&K) + Send> Step for Reduced<K, F> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe { machine.launch(&self.kernel) };
        (self.finish)(&self.kernel);
    }
}

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let [first, second] = memory.pieces(pieces(cx));
    let input = |operand: usize| memory.tensor::<f32>(cx.node.inputs[operand]);
    let output = |result: usize| memory.tensor::<f32>(cx.node.outputs[result]);
    let scratch: Ptr<f32> = first.cast();
    let source = |op: BoxExtreme, operand: usize| Source {
        x: input(operand),
        grid: grid(cx.input(operand)),
        sign: if op.extreme == Extreme::Max { 1.0 } else { -1.0 },
    };
    let dilation = BoxExtreme { radius: 1, extreme: Extreme::Max };
    let skeleton = |union: Union, operand: usize| Skeleton {
        union,
        x: input(operand),
        eroded: source(dilation, operand + 1),
        skeleton: (cx.node.inputs.len() > operand + 2).then(|| input(operand + 2)),
        scratch,
    };
    match &cx.node.op {
        Op::BoxExtreme(op) => {
            single(BoxExtremes { source: source(*op, 0), radius: op.radius, result: output(0), scratch })
        }
        Op::BoxExtremeGrad(op) => {
            let spread = Spread {
                source: source(op.of, 1),
                channel: 0,
                radius: op.of.radius,
                planes: second.cast(),
                upstream: input(0),
                factor: op.factor,
                known: op.accumulate.then(|| input(2)),
                result: output(0),
                scratch,
            };
            Box::new(SpreadAll { spread })
        }
        Op::CrossErosion(_) => {
            single(CrossErosions { grid: grid(cx.input(0)), x: input(0), result: output(0), scratch })
        }
        Op::CrossErosionGrad(op) => single(CrossSpread {
            grid: grid(cx.input(1)),
            x: input(1),
            upstream: input(0),
            known: op.accumulate.then(|| input(2)),
            result: output(0),
            scratch,
        }),
        Op::SkeletonStep(op) => single(SkeletonSteps { step: skeleton(op.union, 0), result: output(0) }),
        Op::SkeletonStepGrad(op) => single(SkeletonSlopes {
            step: skeleton(op.of.union, 1),
            upstream: input(0),
            by_x: output(0),
            by_skeleton: (!op.of.first).then(|| output(1)),
        }),
        Op::OverlapSums(op) => {
            let (batch, elements) = parts(*op, cx.input(0));
            let kernel = Overlaps { a: input(0), b: input(1), batch, elements, partial: first.cast() };
            let result = output(0);
            Box::new(Reduced {
                kernel,
                finish: move |kernel: &Overlaps| {
                    let result = result;
                    let chunks = chunks(kernel.elements);
                    // SAFETY: the chunks' sums are written; the result has two numbers for each sample.
                    unsafe { add_chunks(kernel.partial, result, kernel.batch, chunks, 2) };
                },
            })
        }
        Op::OverlapSumsGrad(op) => {
            let (batch, elements) = parts(op.of, cx.input(1));
            let (other, upstream, result) = (input(1), input(0), output(0));
            single(OverlapSlopes { other, upstream, by_first: op.by_first, batch, elements, result })
        }
        Op::ClDice(op) => cldice(*op, cx.input(0).shape.dim(0), [input(0), input(1)], output(0)),
        Op::ClDiceGrad(op) => {
            let results = [output(0), output(1)];
            cldice_slopes(op.of, cx.input(1).shape.dim(0), input(0), [input(1), input(2)], results)
        }
        Op::SoftRecall(op) => recall(*op, &cx.input(0).shape, None, input(0), output(0)),
        Op::SoftRecallGrad(op) => recall(op.of, &cx.input(1).shape, Some(input(0)), input(1), output(0)),
        Op::OneHot(op) => {
            let labels = labels(cx, memory, 0, op.foreground, op.ignore);
            single(Classes { labels, result: output(0) })
        }
        Op::Counted(op) => {
            let labels = labels(cx, memory, 1, cx.input(0).shape.channels(), op.ignore);
            single(CountedOnly { labels, x: input(0), result: output(0) })
        }
        Op::MeanDifference(op) => {
            let kernel = Differences { pair: pair(cx, memory, *op, 0), partial: first.cast() };
            let (of, results) = (*op, [output(0), output(1)]);
            Box::new(Reduced { kernel, finish: move |kernel: &Differences| mean(of, kernel, results) })
        }
        Op::MeanDifferenceGrad(op) => {
            let pair = pair(cx, memory, op.of, 2);
            single(DifferenceSlopes { pair, upstream: input(0), factors: input(1), result: output(0) })
        }
        op => unreachable!("{} is no morphology", op.rule().name()),
    }
}

fn labels(
    cx: &Context<'_>,
    memory: &Memory<'_>,
    operand: usize,
    channels: usize,
    ignore: Option<u8>,
) -> Labels {
    let shape = &cx.input(operand).shape;
    Labels {
        labels: memory.tensor(cx.node.inputs[operand]),
        batch: shape.batch(),
        channels,
        voxels: shape.voxels(),
        classes: channels + 1,
        ignore,
    }
}

fn pair(cx: &Context<'_>, memory: &Memory<'_>, of: MeanDifference, operand: usize) -> Pair {
    let channels = cx.input(operand).shape.channels();
    let labels = labels(cx, memory, operand + 2, channels, of.ignore);
    Pair {
        labels: Labels { classes: of.classes, ..labels },
        threshold: of.threshold,
        a: memory.tensor(cx.node.inputs[operand]),
        b: memory.tensor(cx.node.inputs[operand + 1]),
    }
}

/// The loss and the factors of its gradient, from the sums of chunks.
fn mean(of: MeanDifference, kernel: &Differences, [loss, factors]: [Ptr<f32>; 2]) {
    let (parts, chunks) = (kernel.pair.labels.parts(), chunks(kernel.pair.labels.voxels));
    let mut sum = 0.0;
    for part in 0..parts {
        // SAFETY: the chunks' sums are written; there are two factors for each part.
        unsafe {
            let row = |row: usize| -> f64 {
                (0..chunks).map(|chunk| *kernel.partial.0.add((part * chunks + chunk) * 3 + row)).sum()
            };
            let (value, of_part) = of.of_sums([row(0), row(1)], row(2), parts);
            sum += value;
            for (i, factor) in of_part.into_iter().enumerate() {
                *factors.0.add(part * 2 + i) = factor as f32;
            }
        }
    }
    // SAFETY: the loss is one number.
    unsafe { *loss.0 = sum as f32 };
}

/// The sums of a sample.
///
/// # Safety
/// Both tables must be written and have two numbers for each sample.
unsafe fn rows(sums: [Ptr<f32>; 2], sample: usize) -> [[f64; 2]; 2] {
    // SAFETY: passed on to the caller.
    sums.map(|sums| [0, 1].map(|row| f64::from(unsafe { *sums.0.add(2 * sample + row) })))
}

fn cldice(op: ClDice, samples: usize, sums: [Ptr<f32>; 2], result: Ptr<f32>) -> Box<dyn Step> {
    Box::new(Serial(move || {
        // Whole pointers are captured, not their fields.
        let (sums, result) = (sums, result);
        // SAFETY: the sums are written before the loss is taken of them; the result is one number.
        unsafe {
            let value = |sample: usize| {
                let [precision, sensitivity] = rows(sums, sample);
                op.of_sums(precision, sensitivity).0
            };
            *result.0 = ((0..samples).map(value).sum::<f64>() / samples as f64) as f32;
        }
    }))
}

fn cldice_slopes(
    op: ClDice,
    samples: usize,
    upstream: Ptr<f32>,
    sums: [Ptr<f32>; 2],
    results: [Ptr<f32>; 2],
) -> Box<dyn Step> {
    Box::new(Serial(move || {
        let (upstream, sums, results) = (upstream, sums, results);
        for sample in 0..samples {
            // SAFETY: as in `cldice`; the results are like the sums.
            unsafe {
                let factor = f64::from(*upstream.0) / samples as f64;
                let [precision, sensitivity] = rows(sums, sample);
                let (_, slopes) = op.of_sums(precision, sensitivity);
                for (result, slopes) in results.iter().zip(slopes) {
                    for (row, slope) in slopes.into_iter().enumerate() {
                        *result.0.add(2 * sample + row) = (factor * slope) as f32;
                    }
                }
            }
        }
    }))
}

/// The loss, or with an upstream gradient that of the sums.
fn recall(
    op: SoftRecall,
    shape: &Shape,
    upstream: Option<Ptr<f32>>,
    sums: Ptr<f32>,
    result: Ptr<f32>,
) -> Box<dyn Step> {
    let (samples, classes) = (shape.dim(0), shape.dim(1));
    Box::new(Serial(move || {
        let (upstream, sums, result) = (upstream, sums, result);
        // SAFETY: the sums are written and have two numbers for each sample and class; the result has one number, or is
        // like the sums.
        unsafe {
            let at = |sample: usize, class: usize, row: usize| (sample * classes + class) * 2 + row;
            let of = |sample: usize, class: usize| {
                [0, 1].map(|row| f64::from(*sums.0.add(at(sample, class, row))))
            };
            let loss = op.of_sums((samples, classes), of, |sample, class, slope| {
                if let Some(upstream) = upstream {
                    *result.0.add(at(sample, class, 0)) = (f64::from(*upstream.0) * slope) as f32;
                    *result.0.add(at(sample, class, 1)) = 0.0;
                }
            });
            if upstream.is_none() {
                *result.0 = loss as f32;
            }
        }
    }))
}
