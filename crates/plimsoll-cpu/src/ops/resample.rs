//! Means over windows, linear interpolation, and channels to voxels.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    AvgPool, AvgPoolGrad, Subpixel, SubpixelGrad, Upsample2, Upsample2Grad, UpsampleAligned,
};
use plimsoll_plan::Unsupported;

use crate::kernels::resample::avg_pool::{self, MeanWindows};
use crate::kernels::resample::subpixel::{self, Spread};
use crate::kernels::resample::upsample::{Doubling, Upsample, UpsampleGrad};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, Kernels, Lower, NodeOperands, by_storage};
use crate::simd::Element;

/// The gradient of an [`AvgPool`], added to a volume, the last operand, where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AddedPoolGrad {
    pub(crate) grad: AvgPoolGrad,
    pub(crate) added: bool,
}

/// An [`Upsample2`], added to a volume, the last operand, where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AddedUpsample {
    pub(crate) upsample: Upsample2,
    pub(crate) added: bool,
}

/// Blocks of all samples.
fn all_blocks(shape: &Shape) -> usize {
    shape.batch() * blocks(shape.channels())
}

impl Lower for AvgPool {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(windows: MeanWindows) -> Kernels {
            Kernels::single(move |places| avg_pool::AvgPool::<T> {
                windows,
                source: places.input(0),
                result: places.output(0),
            })
        }
        let (from, to) = (&cx.input(0).shape, &cx.output(0).shape);
        let windows = MeanWindows {
            blocks: all_blocks(from),
            fine: from.spatial(),
            coarse: to.spatial(),
            window: self.window,
        };
        Ok(by_storage!(cx.input(0), with(windows)))
    }
}

impl Lower for AvgPoolGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        AddedPoolGrad { grad: *self, added: false }.lower(cx)
    }
}

impl Lower for AddedPoolGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(windows: MeanWindows, added: bool) -> Kernels {
            Kernels::single(move |places| avg_pool::AvgPoolGrad::<T> {
                windows,
                upstream: places.input(0),
                added_to: added.then(|| places.input(1)),
                result: places.output(0),
            })
        }
        let (from, to) = (&cx.input(0).shape, &cx.output(0).shape);
        let windows = MeanWindows {
            blocks: all_blocks(from),
            fine: to.spatial(),
            coarse: from.spatial(),
            window: self.grad.window,
        };
        let kernels = by_storage!(cx.input(0), with(windows, self.added));
        Ok(kernels.in_place(in_place(self.added)).cost(cx.streaming()))
    }
}

/// A result that is added to the second operand may take its place.
fn in_place(added: bool) -> Vec<(usize, usize)> {
    if added { vec![(0, 1)] } else { Vec::new() }
}

impl Lower for Upsample2 {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        AddedUpsample { upsample: *self, added: false }.lower(cx)
    }
}

impl Lower for AddedUpsample {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let kernels =
            interpolated(cx, self.upsample.axes, Interpolation { aligned: false, added: self.added });
        Ok(kernels.in_place(in_place(self.added)).cost(cx.streaming()))
    }
}

impl Lower for UpsampleAligned {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let kernels = interpolated(cx, self.axes, Interpolation { aligned: true, added: false });
        Ok(kernels.cost(cx.streaming()))
    }
}

/// A way to interpolate to twice the extent.
#[derive(Clone, Copy)]
struct Interpolation {
    /// `true` if the outermost voxels keep their places.
    aligned: bool,
    /// `true` if the result is added to the second operand.
    added: bool,
}

/// The kernel of an interpolation of the first operand.
fn interpolated(
    cx: &Context<'_>,
    axes: [bool; 3],
    Interpolation { aligned, added }: Interpolation,
) -> Kernels {
    fn with<T: Element>(grid: Doubling, added: bool) -> Kernels {
        Kernels::single(move |places| Upsample::<T> {
            grid,
            source: places.input(0),
            added_to: added.then(|| places.input(1)),
            result: places.output(0),
        })
    }
    let coarse = &cx.input(0).shape;
    let grid = Doubling { blocks: all_blocks(coarse), coarse: coarse.spatial(), axes, aligned };
    by_storage!(cx.input(0), with(grid, added))
}

impl Lower for Upsample2Grad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(grid: Doubling) -> Kernels {
            Kernels::single(move |places| UpsampleGrad::<T> {
                grid,
                upstream: places.input(0),
                result: places.output(0),
            })
        }
        let coarse = &cx.output(0).shape;
        let grid = Doubling {
            blocks: all_blocks(coarse),
            coarse: coarse.spatial(),
            axes: self.axes,
            aligned: false,
        };
        Ok(by_storage!(cx.input(0), with(grid)))
    }
}

impl Lower for Subpixel {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(spread: Spread) -> Kernels {
            Kernels::single(move |places| subpixel::Subpixel::<T> {
                spread,
                source: places.input(0),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(spread(*self, &cx.input(0).shape, &cx.output(0).shape))))
    }
}

impl Lower for SubpixelGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(spread: Spread) -> Kernels {
            Kernels::single(move |places| subpixel::SubpixelGrad::<T> {
                spread,
                upstream: places.input(0),
                result: places.output(0),
            })
        }
        let op = Subpixel { axes: self.axes };
        Ok(by_storage!(cx.input(0), with(spread(op, &cx.output(0).shape, &cx.input(0).shape))))
    }
}

/// From a coarse grid to a fine one.
fn spread(op: Subpixel, coarse: &Shape, fine: &Shape) -> Spread {
    Spread { op, batch: coarse.batch(), coarse: coarse.spatial(), channels: fine.channels() }
}
