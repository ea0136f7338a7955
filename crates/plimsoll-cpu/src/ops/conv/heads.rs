//! Convolutions of one voxel to rows: heads, and their gradients.

use super::weight_grad::Partial;
use crate::kernel::Ptr;
use crate::kernels::dot::{DotHead, PackHeadWeights};
use crate::kernels::head::{HeadBack, HeadLogits, HeadWeightGrad};
use crate::kernels::weight_grad::SumParts;
use crate::layout::blocks;
use crate::lower::{Context, Kernels, bytes_of, product};
use crate::ops::forward::Packed;
use crate::ops::source::{SourceRef, all_views};
use crate::simd::{Bf16, Element, LANES};

/// The operands of a head.
pub(super) struct HeadOperands {
    pub(super) sources: Vec<SourceRef>,
    /// The place of the weights among the operands; a bias follows them.
    pub(super) weights: usize,
    pub(super) bias: bool,
}

pub(super) fn f32_head<T: Element>(cx: &Context<'_>, operands: HeadOperands) -> Kernels {
    head::<T, f32>(cx, operands)
}

pub(super) fn bf16_head<T: Element>(cx: &Context<'_>, operands: HeadOperands) -> Kernels {
    head::<T, Bf16>(cx, operands)
}

/// A convolution to rows.
fn head<T: Element, O: Element>(
    cx: &Context<'_>,
    HeadOperands { sources, weights, bias }: HeadOperands,
) -> Kernels {
    let shape = cx.output(0).shape.clone();
    Kernels::single(move |places| HeadLogits::<T, O> {
        source: all_views(&sources, places),
        weights: places.input(weights),
        bias: bias.then(|| places.input(weights + 1)),
        logits: places.output(0),
        batch: shape.batch(),
        classes: shape.channels(),
        voxels: shape.voxels(),
    })
}

/// The same of products of bf16.
pub(super) fn dot_head(cx: &Context<'_>, HeadOperands { sources, weights, bias }: HeadOperands) -> Kernels {
    let shape = cx.output(0).shape.clone();
    let blocks: usize = sources.iter().map(|source| blocks(source.channels)).sum();
    let packed = bytes_of::<u16>(product([shape.channels(), blocks, LANES]));
    Kernels::new([packed], move |places| {
        let (packed, classes) = (places.scratch(0), shape.channels());
        Box::new(Packed {
            pack: PackHeadWeights { weights: places.input(weights), packed, classes, blocks },
            conv: DotHead {
                source: all_views(&sources, places),
                packed,
                bias: bias.then(|| places.input(weights + 1)),
                logits: places.output(0),
                batch: shape.batch(),
                classes,
                voxels: shape.voxels(),
            },
        })
    })
}

/// The gradient of a head by its map. Operands: the gradient in rows, weights, and what the result is added to.
pub(super) fn head_back<T: Element>(cx: &Context<'_>, added_to: Option<usize>) -> Kernels {
    let (logits, blocks) = (cx.input(0).shape.clone(), blocks(cx.output(0).shape.channels()));
    Kernels::single(move |places| HeadBack::<T> {
        logits: places.input(0),
        weights: places.input(1),
        added_to: added_to.map(|operand| places.input(operand)),
        features: places.output(0),
        batch: logits.batch(),
        classes: logits.channels(),
        blocks,
        voxels: logits.voxels(),
        block_stride: logits.voxels(),
    })
}

/// The gradient of a head by its weights.
pub(super) fn head_weight_grad<T: Element>(
    cx: &Context<'_>,
    sources: Vec<SourceRef>,
    gradient: SourceRef,
    batch: usize,
) -> Kernels {
    let parts = HeadWeightGrad::<T>::parts(batch, gradient.voxels);
    let count = cx.output_count(0);
    let classes = gradient.channels;
    Kernels::new([bytes_of::<f32>(product([parts, count]))], move |places| {
        let partial: Ptr<f32> = places.scratch(0);
        let sums = HeadWeightGrad {
            source: all_views::<T>(&sources, places),
            logits: gradient.image(places).data,
            partial,
            batch,
            classes,
            voxels: gradient.voxels,
        };
        let add = Some(SumParts { partial, result: places.output(0), parts, count });
        Box::new(Partial { sums, add, clear: None })
    })
}
