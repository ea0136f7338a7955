//! Normalisation.

use plimsoll_graph::ops::{Load, SourceOperands};
use plimsoll_graph::{Kind, Op, TensorId};
use plimsoll_plan::Unsupported;

use super::conv::block_norms;
use super::{Context, Memory, Step, bytes_of, single, total};
use crate::blocks::blocks;
use crate::kernel::{Machine, Ptr};
use crate::kernels::norm::{
    ChunkStats, CombineStats, Extent, NormActMap, NormGrad, NormGradApply, NormGradMeans, NormGradSums,
};
use crate::simd::Element;

pub(super) fn supports(cx: &Context<'_>) -> Result<(), Unsupported> {
    match cx.input(0).kind {
        Kind::Features => Ok(()),
        _ => Err(cx.unsupported("only features can be normalised")),
    }
}

fn extent(cx: &Context<'_>) -> Extent {
    let shape = &cx.input(0).shape;
    Extent { batch: shape.batch(), blocks: blocks(shape.channels()), voxels: shape.voxels() }
}

fn pieces(cx: &Context<'_>) -> [usize; 2] {
    let extent = extent(cx);
    let means = if matches!(cx.node.op, Op::NormActGrad(_)) { extent.pairs() } else { 0 };
    [bytes_of::<f32>(extent.partial()), bytes_of::<f32>(means)]
}

pub(super) fn scratch(cx: &Context<'_>) -> usize {
    total(pieces(cx))
}

/// Two kernels, one after the other.
struct Stats<T> {
    chunks: ChunkStats<T>,
    combine: CombineStats,
}

impl<T: Element> Step for Stats<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            machine.launch(&self.chunks);
            machine.launch(&self.combine);
        }
    }
}

/// Three kernels, one after the other.
struct Grad<T> {
    sums: NormGradSums<T>,
    means: NormGradMeans,
    apply: NormGradApply<T>,
}

impl<T: Element> Step for Grad<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: passed on to the caller.
        unsafe {
            machine.launch(&self.sums);
            machine.launch(&self.means);
            machine.launch(&self.apply);
        }
    }
}

/// The normalised operand and what it is normalised with.
fn source(load: Load, operands: &[TensorId]) -> SourceOperands<TensorId> {
    match load.take(operands) {
        Some((source, _)) => source,
        None => unreachable!("the op's rule has counted its operands"),
    }
}

pub(super) fn bind<T: Element>(cx: &Context<'_>, memory: &Memory<'_>) -> Box<dyn Step> {
    let extent = extent(cx);
    let [partial, means] = memory.pieces(pieces(cx)).map(Ptr::cast::<f32>);
    match &cx.node.op {
        Op::NormStats(op) => Box::new(Stats {
            chunks: ChunkStats::<T> { extent, data: memory.tensor(cx.node.inputs[0]), partial },
            combine: CombineStats {
                extent,
                partial,
                statistics: memory.tensor(cx.node.outputs[0]),
                epsilon: op.epsilon,
            },
        }),
        Op::NormAct(op) => {
            let source = source(op.load(), &cx.node.inputs);
            single(NormActMap::<T> {
                extent,
                data: memory.tensor(source.value),
                norms: block_norms(&source, cx, memory),
                result: memory.tensor(cx.node.outputs[0]),
            })
        }
        Op::NormActGrad(op) => {
            let load = Load::NormAct { slope: op.slope, affine: op.affine };
            let source = source(load, &cx.node.inputs[1..]);
            let grad = || NormGrad::<T> {
                extent,
                upstream: memory.tensor(cx.node.inputs[0]),
                data: memory.tensor(source.value),
                norms: block_norms(&source, cx, memory),
            };
            let affine = match cx.node.outputs[..] {
                [_, scale, shift] => Some((memory.tensor(scale), memory.tensor(shift))),
                _ => None,
            };
            let result = memory.tensor(cx.node.outputs[0]);
            Box::new(Grad {
                sums: NormGradSums { grad: grad(), partial },
                means: NormGradMeans { extent, partial, means, affine },
                apply: NormGradApply { grad: grad(), means, result },
            })
        }
        op => unreachable!("{} is no normalisation", op.rule().name()),
    }
}
