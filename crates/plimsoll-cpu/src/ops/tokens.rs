//! Ops on tokens, the voxels of coarse maps.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    Gelu, GeluGrad, SampleDrop, SpaceToDepth, SpaceToDepthGrad, TokenNorm, TokenNormGrad,
};
use plimsoll_plan::Unsupported;

use super::elementwise::pointwise;
use crate::kernel::{Machine, Ptr};
use crate::kernels;
use crate::kernels::pointwise::Function;
use crate::kernels::sum_parts::SumParts;
use crate::kernels::token_norm::Tokens;
use crate::layout::rule::VolumeRule;
use crate::lower::{BoundNode, Context, Kernels, Lower, NodeOperands, by_storage, bytes_of};
use crate::simd::Element;

/// Operations of a number's distribution and density.
const NORMAL_FLOPS: u64 = 40;

impl Lower for Gelu {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let flops = NORMAL_FLOPS * cx.output(0).shape.count() as u64;
        Ok(pointwise(cx, Function::Gelu)?.in_place([(0, 0)]).cost(cx.cost(flops)))
    }
}

impl Lower for GeluGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let flops = NORMAL_FLOPS * cx.output(0).shape.count() as u64;
        Ok(pointwise(cx, Function::GeluGrad)?.in_place([(0, 0), (0, 1)]).cost(cx.cost(flops)))
    }
}

impl Lower for SampleDrop {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: SampleDrop) -> Kernels {
            let batch = cx.output(0).shape.batch();
            let of_sample = cx.output_count(0) / batch;
            Kernels::single(move |places| kernels::sample_drop::SampleDrop::<T> {
                op,
                noise: places.input(1),
                source: places.input(0),
                result: places.output(0),
                batch,
                of_sample,
            })
        }
        Ok(by_storage!(cx.output(0), with(cx, *self)).in_place([(0, 0)]))
    }
}

fn tokens(shape: &Shape, epsilon: f32) -> Tokens {
    Tokens { batch: shape.batch(), channels: shape.channels(), voxels: shape.voxels(), epsilon }
}

impl Lower for TokenNorm {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: TokenNorm) -> Kernels {
            let tokens = tokens(&cx.input(0).shape, op.epsilon);
            Kernels::single(move |places| kernels::token_norm::TokenNorm::<T> {
                tokens,
                data: places.input(0),
                affine: op.affine.then(|| (places.input(1), places.input(2))),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(cx, *self)).in_place([(0, 0)]))
    }
}

/// The gradient of tokens, then the sums of all tasks' parts of the gradients of scale and shift.
struct NormGrad<T> {
    grad: kernels::token_norm::TokenNormGrad<T>,
    sums: Vec<SumParts>,
}

impl<T: Element> BoundNode for NormGrad<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; each kernel
        // has ended before the next begins.
        unsafe {
            machine.launch(&self.grad);
            self.sums.iter().for_each(|sum| machine.launch(sum));
        }
    }
}

impl Lower for TokenNormGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: TokenNormGrad) -> Kernels {
            let tokens = tokens(&cx.input(0).shape, op.epsilon);
            let partial = if op.affine { bytes_of::<f32>(tokens.partial()) } else { 0 };
            Kernels::new([partial, partial], move |places| {
                let partial: [Ptr<f32>; 2] = [places.scratch(0), places.scratch(1)];
                let sum = |(which, partial): (usize, &Ptr<f32>)| SumParts {
                    partial: *partial,
                    result: places.output(1 + which),
                    parts: tokens.tasks(),
                    count: tokens.lanes(),
                };
                Box::new(NormGrad {
                    grad: kernels::token_norm::TokenNormGrad::<T> {
                        tokens,
                        upstream: places.input(0),
                        data: places.input(1),
                        affine: op.affine.then(|| (places.input(2), partial)),
                        result: places.output(0),
                    },
                    sums: partial.iter().enumerate().take(if op.affine { 2 } else { 0 }).map(sum).collect(),
                })
            })
        }
        Ok(by_storage!(cx.input(0), with(cx, *self)).in_place([(0, 0), (0, 1)]))
    }
}

impl Lower for SpaceToDepth {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: SpaceToDepth) -> Kernels {
            let shape = cx.input(0).shape.clone();
            Kernels::single(move |places| {
                let (batch, channels) = (shape.batch(), shape.channels());
                let (source, result) = (places.input(0), places.output(0));
                kernels::space_to_depth::SpaceToDepth::<T>::new(
                    &op,
                    batch,
                    channels,
                    shape.spatial(),
                    source,
                    result,
                )
            })
        }
        Ok(by_storage!(cx.input(0), with(cx, self.clone())))
    }
}

impl Lower for SpaceToDepthGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: SpaceToDepth) -> Kernels {
            let shape = cx.output(0).shape.clone();
            Kernels::single(move |places| {
                let (batch, channels) = (shape.batch(), shape.channels());
                let (source, result) = (places.input(0), places.output(0));
                kernels::space_to_depth::SpaceToDepthGrad::<T>::new(
                    &op,
                    batch,
                    channels,
                    shape.spatial(),
                    source,
                    result,
                )
            })
        }
        Ok(by_storage!(cx.input(0), with(cx, self.of.clone())))
    }
}
