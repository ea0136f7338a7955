//! Parts of transformers and of their decoders: gated linear units, factors of channels, and channels spread over voxels.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    ChannelScale, ChannelScaleGrad, DepthToSpace, DepthToSpaceGrad, SwiGlu, SwiGluGrad,
};
use plimsoll_plan::Unsupported;

use crate::kernels::channel_scale::{self, FactorSums, Factors};
use crate::kernels::depth_to_space::{self, Spread};
use crate::kernels::planes::Planes;
use crate::kernels::swiglu;
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, InTurn2, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of};
use crate::simd::Element;

/// Operations of a logistic function.
const LOGISTIC_FLOPS: u64 = 24;

impl Lower for SwiGlu {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>) -> Kernels {
            let count = cx.output_count(0);
            Kernels::single(move |places| swiglu::SwiGlu::<T> {
                gate: places.input(0),
                values: places.input(1),
                result: places.output(0),
                count,
            })
        }
        let flops = LOGISTIC_FLOPS * cx.output(0).shape.count() as u64;
        Ok(by_storage!(cx.input(0), with(cx)).in_place([(0, 0), (0, 1)]).cost(cx.cost(flops)))
    }
}

impl Lower for SwiGluGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>) -> Kernels {
            let count = cx.output_count(0);
            Kernels::single(move |places| swiglu::SwiGluGrad::<T> {
                upstream: places.input(0),
                gate: places.input(1),
                values: places.input(2),
                of_gate: places.output(0),
                of_values: places.output(1),
                count,
            })
        }
        let flops = LOGISTIC_FLOPS * cx.output(0).shape.count() as u64;
        Ok(by_storage!(cx.input(0), with(cx)).in_place([(0, 1), (1, 2)]).cost(cx.cost(flops)))
    }
}

/// Blocks of all samples.
fn planes(shape: &Shape) -> Planes {
    Planes { blocks: shape.batch() * blocks(shape.channels()), voxels: shape.voxels() }
}

/// The factors that an operand is, of a map of this shape.
fn factors(shape: &Shape, shared: bool, operand: usize, places: &Places) -> Factors {
    Factors { of_sample: blocks(shape.channels()), shared, numbers: places.input(operand) }
}

impl Lower for ChannelScale {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: Shape, shared: bool) -> Kernels {
            Kernels::single(move |places| channel_scale::ChannelScale::<T> {
                planes: planes(&shape),
                factors: factors(&shape, shared, 1, places),
                map: places.input(0),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(cx.input(0).shape.clone(), self.shared)).in_place([(0, 0)]))
    }
}

impl Lower for ChannelScaleGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: Shape, shared: bool) -> Kernels {
            let planes = planes(&shape);
            let scratch = [bytes_of::<f64>(channel_scale::ChannelScaleGrad::<T>::partial(planes))];
            Kernels::new(scratch, move |places| {
                let partial = places.scratch(0);
                Box::new(InTurn2(
                    channel_scale::ChannelScaleGrad::<T> {
                        planes,
                        factors: factors(&shape, shared, 2, places),
                        upstream: places.input(0),
                        map: places.input(1),
                        result: places.output(0),
                        partial,
                    },
                    FactorSums {
                        batch: shape.batch(),
                        of_sample: blocks(shape.channels()),
                        parts: planes.parts(),
                        shared,
                        partial,
                        result: places.output(1),
                    },
                ))
            })
        }
        let kernels = by_storage!(cx.input(0), with(cx.input(0).shape.clone(), self.shared));
        Ok(kernels.in_place([(0, 0), (0, 1)]))
    }
}

/// The grids of a fine volume and its blocks.
fn spread(fine: &Shape, block: [usize; 3]) -> Spread {
    let spatial = fine.spatial();
    let coarse = [0, 1, 2].map(|axis| spatial[axis] / block[axis]);
    Spread { planes: fine.batch() * fine.channels(), channels: fine.channels(), block, coarse }
}

impl Lower for DepthToSpace {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let spread = spread(&cx.output(0).shape, self.block);
        Ok(Kernels::single(move |places| depth_to_space::DepthToSpace {
            spread,
            source: places.input(0),
            shift: places.input(1),
            result: places.output(0),
        }))
    }
}

impl Lower for DepthToSpaceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let spread = spread(&cx.input(0).shape, self.block);
        Ok(Kernels::single(move |places| depth_to_space::DepthToSpaceGrad {
            spread,
            upstream: places.input(0),
            result: places.output(0),
        }))
    }
}
