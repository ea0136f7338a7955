//! Embeddings of positions, of Vision Transformers.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{AddPositions, AddPositionsGrad};
use plimsoll_plan::Unsupported;

use crate::kernels::planes::Planes;
use crate::kernels::positions::{self, PositionSums, Rows};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, Kernels, Lower, NodeOperands, by_storage};
use crate::simd::Element;

impl Lower for AddPositions {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: &Shape) -> Kernels {
            let (channels, of_sample) = (shape.channels(), blocks(shape.channels()));
            let planes = Planes { blocks: shape.batch() * of_sample, voxels: shape.voxels() };
            Kernels::single(move |places| positions::AddPositions::<T> {
                planes,
                of_sample,
                map: places.input(0),
                rows: Rows { channels, table: places.input(1) },
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(&cx.input(0).shape)).in_place([(0, 0)]))
    }
}

impl Lower for AddPositionsGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(shape: &Shape) -> Kernels {
            let (channels, batch) = (shape.channels(), shape.batch());
            let planes = Planes { blocks: blocks(channels), voxels: shape.voxels() };
            Kernels::single(move |places| PositionSums::<T> {
                planes,
                batch,
                map: places.input(0),
                rows: Rows { channels, table: places.output(0) },
            })
        }
        Ok(by_storage!(cx.input(0), with(&cx.input(0).shape)))
    }
}
