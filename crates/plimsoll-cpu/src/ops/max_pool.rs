//! Max pooling of features.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{MaxPool, MaxPoolGrad};
use plimsoll_plan::Unsupported;

use crate::kernels::max_pool::{self as kernels, PoolWindows};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, Kernels, Lower, NodeOperands, by_storage, bytes_of, product, single};
use crate::simd::{Element, LANES};

/// The windows over a volume, and blocks of channels of all samples.
fn windows(op: MaxPool, input: &Shape, output: &Shape) -> (PoolWindows, usize) {
    let windows = PoolWindows { op, input: input.spatial(), output: output.spatial() };
    (windows, input.batch() * blocks(input.channels()))
}

/// Places of voxels are stored in 32 bits.
fn expect_countable(cx: &Context<'_>, windows: &PoolWindows) -> Result<(), Unsupported> {
    match u32::try_from(windows.voxels()) {
        Ok(_) => Ok(()),
        Err(_) => Err(cx.unsupported(format!("{} voxels; {} are the most", windows.voxels(), u32::MAX))),
    }
}

impl Lower for MaxPool {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(windows: PoolWindows, blocks: usize) -> Kernels {
            Kernels::single(move |places| kernels::MaxPool::<T> {
                windows,
                blocks,
                data: places.input(0),
                result: places.output(0),
            })
        }
        let (windows, blocks) = windows(*self, &cx.input(0).shape, &cx.output(0).shape);
        expect_countable(cx, &windows)?;
        Ok(by_storage!(cx.input(0), with(windows, blocks)))
    }
}

impl Lower for MaxPoolGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(windows: PoolWindows, blocks: usize, threads: usize) -> Kernels {
            let scratch = bytes_of::<u32>(product([threads, windows.count(), LANES]));
            Kernels::new([scratch], move |places| {
                single(kernels::MaxPoolGrad::<T> {
                    windows,
                    blocks,
                    upstream: places.input(0),
                    data: places.input(1),
                    from: places.scratch(0),
                    result: places.output(0),
                })
            })
        }
        let (windows, blocks) = windows(self.of, &cx.input(1).shape, &cx.input(0).shape);
        expect_countable(cx, &windows)?;
        Ok(by_storage!(cx.input(0), with(windows, blocks, cx.threads)))
    }
}
