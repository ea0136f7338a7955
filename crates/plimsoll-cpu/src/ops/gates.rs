//! Gates of voxels, and leaky ReLUs with a learned slope: the ops of AttentionUnet.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{Prelu, PreluGrad, VoxelGate, VoxelGateGrad};
use plimsoll_plan::Unsupported;

use crate::kernels::planes::Planes;
use crate::kernels::prelu::{self, SlopeSum};
use crate::kernels::voxel_gate::{self, VoxelProducts};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, InTurn2, Kernels, Lower, NodeOperands, by_storage, bytes_of};
use crate::simd::Element;

/// Blocks of all samples.
fn planes(shape: &Shape) -> Planes {
    Planes { blocks: shape.batch() * blocks(shape.channels()), voxels: shape.voxels() }
}

impl Lower for VoxelGate {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: &Shape) -> Kernels {
            let (planes, of_sample) = (planes(shape), blocks(shape.channels()));
            Kernels::single(move |places| voxel_gate::VoxelGate::<T> {
                planes,
                of_sample,
                map: places.input(0),
                factors: places.input(1),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(&cx.input(0).shape)).in_place([(0, 0)]))
    }
}

impl Lower for VoxelGateGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: &Shape) -> Kernels {
            let planes = Planes { blocks: shape.batch(), voxels: shape.voxels() };
            let of_sample = blocks(shape.channels());
            Kernels::single(move |places| VoxelProducts::<T> {
                planes,
                of_sample,
                maps: [places.input(0), places.input(1)],
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(&cx.input(0).shape)))
    }
}

impl Lower for Prelu {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(planes: Planes) -> Kernels {
            Kernels::single(move |places| prelu::Prelu::<T> {
                planes,
                x: places.input(0),
                slope: places.input(1),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(planes(&cx.input(0).shape))).in_place([(0, 0)]))
    }
}

impl Lower for PreluGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(planes: Planes) -> Kernels {
            let parts = prelu::PreluGrad::<T>::partial(planes);
            Kernels::new([bytes_of::<f64>(parts)], move |places| {
                let partial = places.scratch(0);
                Box::new(InTurn2(
                    prelu::PreluGrad::<T> {
                        planes,
                        upstream: places.input(0),
                        x: places.input(1),
                        slope: places.input(2),
                        result: places.output(0),
                        partial,
                    },
                    SlopeSum { parts, partial, result: places.output(1) },
                ))
            })
        }
        let kernels = by_storage!(cx.input(0), with(planes(&cx.input(0).shape)));
        Ok(kernels.in_place([(0, 0), (0, 1)]))
    }
}
