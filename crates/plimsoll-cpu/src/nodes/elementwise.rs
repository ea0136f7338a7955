//! Element-wise ops, sums of channels, labels, and arithmetic on small tables.

use plimsoll_graph::ops::{DownsampleLabels, Dropout};
use plimsoll_graph::{DType, Kind, Op};

use super::{Context, Memory, Serial, Step, count, single};
use crate::blocks::blocks;
use crate::kernel::Ptr;
use crate::kernels;
use crate::kernels::pointwise::{FeatureSums, ImageSums, Op as Function, Pointwise};
use crate::simd::{Bf16, Element};

pub(super) fn bind(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    match &cx.node.op {
        Op::Add(_) | Op::Accumulate(_) => pointwise(cx, memory, Function::Add),
        Op::LeakyRelu(op) => pointwise(cx, memory, Function::Leaky(op.slope)),
        Op::LeakyReluGrad(op) => pointwise(cx, memory, Function::LeakyGrad(op.slope)),
        Op::ChannelSum(_) => channel_sum(cx, memory),
        Op::DownsampleLabels(op) => downsample(cx, memory, *op),
        Op::Dropout(op) => match cx.output(0).dtype {
            DType::Bf16 => dropout::<Bf16>(cx, memory, *op),
            _ => dropout::<f32>(cx, memory, *op),
        },
        Op::Fill(op) => {
            let (result, count, value) =
                (memory.tensor::<f32>(cx.node.outputs[0]), op.shape.count(), op.value);
            Box::new(Serial(move || {
                let result = result;
                // SAFETY: the result has `count` numbers.
                unsafe { std::slice::from_raw_parts_mut(result.0, count) }.fill(value);
            }))
        }
        Op::WeightedSum(op) => {
            let operands: Vec<(Ptr<f32>, f32)> =
                cx.node.inputs.iter().map(|id| memory.tensor(*id)).zip(op.weights.iter().copied()).collect();
            let (result, count) = (memory.tensor::<f32>(cx.node.outputs[0]), count(cx.output(0)));
            Box::new(Serial(move || {
                let result = result;
                for i in 0..count {
                    // SAFETY: all operands and the result have `count` numbers.
                    unsafe {
                        let term = |(x, w): &(Ptr<f32>, f32)| f64::from(*w) * f64::from(*x.0.add(i));
                        *result.0.add(i) = operands.iter().map(term).sum::<f64>() as f32;
                    }
                }
            }))
        }
        op => unreachable!("{} is not element-wise", op.rule().name()),
    }
}

fn pointwise(cx: &Context<'_>, memory: &Memory<'_>, op: Function) -> Box<dyn Step> {
    fn with<T: Element>(cx: &Context<'_>, memory: &Memory<'_>, op: Function) -> Box<dyn Step> {
        let (first, last) = (cx.node.inputs[0], cx.node.inputs[cx.node.inputs.len() - 1]);
        single(Pointwise::<T> {
            op,
            a: memory.tensor(first),
            b: memory.tensor(last),
            result: memory.tensor(cx.node.outputs[0]),
            count: count(cx.output(0)),
        })
    }
    match cx.output(0).dtype {
        DType::Bf16 => with::<Bf16>(cx, memory, op),
        _ => with::<f32>(cx, memory, op),
    }
}

fn dropout<T: Element>(cx: &Context<'_>, memory: &Memory<'_>, op: Dropout) -> Box<dyn Step> {
    let shape = &cx.output(0).shape;
    single(kernels::dropout::Dropout::<T> {
        op,
        noise: memory.tensor(cx.node.inputs[1]),
        source: memory.tensor(cx.node.inputs[0]),
        result: memory.tensor(cx.node.outputs[0]),
        batch: shape.batch(),
        blocks: blocks(shape.channels()),
        voxels: shape.voxels(),
    })
}

fn channel_sum(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    fn features<T: Element>(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
        let shape = &cx.input(0).shape;
        single(FeatureSums::<T> {
            data: memory.tensor(cx.node.inputs[0]),
            batch: shape.batch(),
            blocks: blocks(shape.channels()),
            voxels: shape.voxels(),
            result: memory.tensor(cx.node.outputs[0]),
        })
    }
    let operand = cx.input(0);
    match (&operand.kind, operand.dtype) {
        (Kind::Image, _) => {
            let shape = &operand.shape;
            let (data, result) = (memory.tensor(cx.node.inputs[0]), memory.tensor(cx.node.outputs[0]));
            let (batch, channels, voxels) = (shape.batch(), shape.channels(), shape.voxels());
            single(ImageSums { data, batch, channels, voxels, result })
        }
        (_, DType::Bf16) => features::<Bf16>(cx, memory),
        _ => features::<f32>(cx, memory),
    }
}

fn downsample(cx: &Context<'_>, memory: &Memory<'_>, op: DownsampleLabels) -> Box<dyn Step> {
    let (from, to) = (cx.input(0).shape.spatial(), op.output);
    let batch = cx.input(0).shape.batch();
    let (source, result) = (memory.tensor::<u8>(cx.node.inputs[0]), memory.tensor::<u8>(cx.node.outputs[0]));
    Box::new(Serial(move || {
        let (source, result) = (source, result);
        let at = |axis: usize, place: usize| DownsampleLabels::source(place, to[axis], from[axis]);
        let mut place = 0;
        for sample in 0..batch {
            for d in 0..to[0] {
                for h in 0..to[1] {
                    let row = ((sample * from[0] + at(0, d)) * from[1] + at(1, h)) * from[2];
                    for w in 0..to[2] {
                        // SAFETY: both places are inside their labels.
                        unsafe { *result.0.add(place) = *source.0.add(row + at(2, w)) };
                        place += 1;
                    }
                }
            }
        }
    }))
}
