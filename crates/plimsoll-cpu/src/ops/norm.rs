//! Normalisation.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{NormStats, Normalise, NormaliseGrad, Over};
use plimsoll_plan::Unsupported;

use super::source::{Load, SourceRef};
use crate::kernels::norm::{
    ChunkStats, CombineStats, Extent, NormActMap, NormGrad, NormGradApply, NormGradMeans, NormGradSums,
    Sharing,
};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, InTurn2, InTurn3, Kernels, Lower, NodeOperands, by_storage, bytes_of};
use crate::simd::Element;

/// Normalise and leaky ReLU in one: z = lrelu(γ · (y − μ) · r + β); slope 1 is no activation. Operands: as of
/// [`Normalise`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormAct {
    pub(crate) slope: f32,
    pub(crate) affine: bool,
}

/// The gradients of leaky ReLU and of [`Normalise`] in one. Operands: the gradient of z, then the operands of [`Normalise`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormActGrad {
    pub(crate) norm: NormAct,
    /// The values that share their statistics.
    pub(crate) over: Over,
    /// `true` if the first result is added to a volume, the last operand.
    pub(crate) added: bool,
}

impl NormAct {
    /// Returns a normalisation without an activation.
    pub(crate) fn alone(affine: bool) -> NormAct {
        NormAct { slope: 1.0, affine }
    }

    /// The number of operands it has.
    pub(crate) fn operands(self) -> usize {
        if self.affine { 4 } else { 2 }
    }
}

pub(super) fn extent(shape: &Shape) -> Extent {
    Extent { batch: shape.batch(), blocks: blocks(shape.channels()), voxels: shape.voxels() }
}

pub(super) fn sharing(over: Over, shape: &Shape) -> Sharing {
    Sharing { over, extent: extent(shape), channels: shape.channels() }
}

impl Lower for NormStats {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, NormStats { over, epsilon }: NormStats) -> Kernels {
            let sharing = sharing(over, &cx.input(0).shape);
            let extent = sharing.extent;
            Kernels::new([bytes_of::<f32>(extent.partial())], move |places| {
                let partial = places.scratch(0);
                let statistics = places.output(0);
                let variances = (over == Over::Batch).then(|| places.output(1));
                Box::new(InTurn2(
                    ChunkStats::<T> { extent, data: places.input(0), partial },
                    CombineStats { sharing, partial, statistics, variances, epsilon },
                ))
            })
        }
        Ok(by_storage!(cx.input(0), with(cx, *self)))
    }
}

impl Lower for Normalise {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        NormAct::alone(self.affine).lower(cx)
    }
}

impl Lower for NormaliseGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        NormActGrad { norm: NormAct::alone(self.affine), over: self.over, added: false }.lower(cx)
    }
}

impl Lower for NormAct {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, norm: NormAct) -> Kernels {
            let extent = extent(&cx.input(0).shape);
            let source = SourceRef::new(cx, Load::NormAct(norm), 0);
            Kernels::single(move |places| NormActMap::<T> {
                extent,
                data: places.input(0),
                norms: source.norms(places),
                result: places.output(0),
            })
        }
        let kernels = by_storage!(cx.input(0), with(cx, *self));
        Ok(kernels.in_place([(0, 0)]).cost(cx.streaming()))
    }
}

impl Lower for NormActGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, NormActGrad { norm, over, added }: NormActGrad) -> Kernels {
            let sharing = sharing(over, &cx.input(1).shape);
            let extent = sharing.extent;
            let source = SourceRef::new(cx, Load::NormAct(norm), 1);
            let known = 1 + norm.operands();
            let scratch = [bytes_of::<f32>(extent.partial()), bytes_of::<f32>(extent.pairs())];
            Kernels::new(scratch, move |places| {
                let (partial, means) = (places.scratch(0), places.scratch(1));
                let grad = || NormGrad::<T> {
                    extent,
                    upstream: places.input(0),
                    data: places.input(1),
                    norms: source.norms(places),
                };
                let affine = norm.affine.then(|| (places.output(1), places.output(2)));
                Box::new(InTurn3(
                    NormGradSums { grad: grad(), partial },
                    NormGradMeans { sharing, norms: source.norms(places), partial, means, affine },
                    NormGradApply {
                        grad: grad(),
                        means,
                        added_to: added.then(|| places.input(known)),
                        result: places.output(0),
                    },
                ))
            })
        }
        let kernels = by_storage!(cx.input(0), with(cx, *self));
        let known = self.added.then_some((0, 1 + self.norm.operands()));
        let in_place: Vec<(usize, usize)> = [(0, 0), (0, 1)].into_iter().chain(known).collect();
        Ok(kernels.in_place(in_place).cost(cx.streaming()))
    }
}
