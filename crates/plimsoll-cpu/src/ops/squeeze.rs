//! Vectors for each sample, made of features and applied to them: global means, gates, the logistic function.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{Gate, GateGrad, GlobalMean, GlobalMeanGrad, Sigmoid};
use plimsoll_plan::Unsupported;

use super::source::{Load, SourceRef};
use crate::kernels::lane_sums::SumLanes;
use crate::kernels::planes::{self, Logistic, PlaneFill, PlaneScale, PlaneSource, PlaneSums, Planes};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, InTurn2, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, product};
use crate::simd::{Element, LANES};

fn planes(shape: &Shape) -> Planes {
    Planes { blocks: shape.batch() * blocks(shape.channels()), voxels: shape.voxels() }
}

/// An op that reads each voxel once, and may normalise it while it reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Squeeze {
    /// [`GlobalMean`].
    Mean,
    /// [`Gate`].
    Gate,
    /// [`GateGrad`].
    GateGrad,
}

/// A [`Squeeze`] whose volume is read by its load. Operands: for the mean, the operands of the load; for the gate, of
/// the load and the factors; for the gradient, the gradient of the result, then the operands of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FusedSqueeze {
    pub(crate) of: Squeeze,
    pub(crate) load: Load,
}

/// lrelu(factors · map + summand). Operands: the operands of the map's load, the factors, the summand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GateSum {
    pub(crate) load: Load,
    pub(crate) summand: Summand,
    /// The slope of the leaky ReLU; 1 if there is none.
    pub(crate) slope: f32,
}

/// The other summand of a [`GateSum`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Summand {
    /// A map.
    Map,
    /// The [`GlobalMeanGrad`] of the operand.
    Mean,
}

impl Squeeze {
    /// The place of the volume among the operands.
    pub(crate) fn source(self) -> usize {
        match self {
            Squeeze::Mean | Squeeze::Gate => 0,
            Squeeze::GateGrad => 1,
        }
    }

    fn lower(self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        FusedSqueeze { of: self, load: Load::Plain }.lower(cx)
    }
}

impl Lower for FusedSqueeze {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: FusedSqueeze) -> Kernels {
            let FusedSqueeze { of, load } = op;
            let source = SourceRef::new(cx, load, of.source());
            let planes = planes(&cx.input(of.source()).shape);
            let read = move |places: &Places| PlaneSource::<T> {
                data: source.data(places),
                norms: source.norms(places),
            };
            if of == Squeeze::Gate {
                let kernels = Kernels::single(move |places| PlaneScale::<T> {
                    planes,
                    source: read(places),
                    factors: places.input(load.operands()),
                    summand: planes::Summand::None,
                    slope: 1.0,
                    result: places.output(0),
                });
                return kernels.in_place([(0, 0)]);
            }
            let factor = if of == Squeeze::Mean { 1.0 / planes.voxels as f64 } else { 1.0 };
            let (blocks, parts) = (planes.blocks, planes.parts());
            let scratch = [bytes_of::<f64>(product([blocks, parts, LANES]))];
            Kernels::new(scratch, move |places| {
                let (partial, source) = (places.scratch(0), read(places));
                let other = (of == Squeeze::GateGrad).then(|| places.input(0));
                Box::new(InTurn2(
                    PlaneSums::<T> { planes, source, other, partial },
                    SumLanes { partial, blocks, parts, factor, result: places.output(0) },
                ))
            })
        }
        Ok(by_storage!(cx.input(self.of.source()), with(cx, *self)).cost(cx.streaming()))
    }
}

impl Lower for GateSum {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: GateSum) -> Kernels {
            let source = SourceRef::new(cx, op.load, 0);
            let planes = planes(&cx.input(0).shape);
            let factors = op.load.operands();
            Kernels::single(move |places| PlaneScale::<T> {
                planes,
                source: PlaneSource { data: source.data(places), norms: source.norms(places) },
                factors: places.input(factors),
                summand: match op.summand {
                    Summand::Map => planes::Summand::Map(places.input(factors + 1)),
                    Summand::Mean => {
                        planes::Summand::Plane(places.input(factors + 1), 1.0 / planes.voxels as f32)
                    }
                },
                slope: op.slope,
                result: places.output(0),
            })
        }
        let kernels = by_storage!(cx.input(0), with(cx, *self));
        let kernels = match self.summand {
            Summand::Map => kernels.in_place([(0, 0), (0, self.load.operands() + 1)]),
            Summand::Mean => kernels.in_place([(0, 0)]),
        };
        Ok(kernels.cost(cx.streaming()))
    }
}

impl Lower for GlobalMean {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Squeeze::Mean.lower(cx)
    }
}

impl Lower for GlobalMeanGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(planes: Planes) -> Kernels {
            let factor = 1.0 / planes.voxels as f32;
            Kernels::single(move |places| PlaneFill::<T> {
                planes,
                numbers: places.input(0),
                factor,
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.output(0), with(planes(&cx.output(0).shape))))
    }
}

impl Lower for Gate {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Squeeze::Gate.lower(cx)
    }
}

impl Lower for GateGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Squeeze::GateGrad.lower(cx)
    }
}

impl Lower for Sigmoid {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>) -> Kernels {
            let shape = &cx.output(0).shape;
            let (planes, channels) = (planes(shape), shape.channels());
            Kernels::single(move |places| Logistic::<T> {
                planes,
                channels,
                data: places.input(0),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.output(0), with(cx)).in_place([(0, 0)]))
    }
}
