//! Global response normalisation, and planes of zeroes in front of a volume: the ops of MedNeXt.

use plimsoll_graph::ops::{PadFront, PadFrontGrad, ResponseNorm, ResponseNormGrad};
use plimsoll_graph::{Shape, TensorInfo};
use plimsoll_plan::Unsupported;

use crate::kernel::Ptr;
use crate::kernels::planes::Planes;
use crate::kernels::resample::pad_front::{self, PaddedGrid};
use crate::kernels::response::{Addend, OfChannels, ResponseApply, ResponseNumbers, ResponseSums};
use crate::layout::blocks;
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, InTurn3, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, product};
use crate::simd::{Element, LANES};

/// Blocks of all samples.
fn all_blocks(shape: &Shape) -> usize {
    shape.batch() * blocks(shape.channels())
}

fn padded_grid(inner: &TensorInfo, padded: &TensorInfo) -> PaddedGrid {
    PaddedGrid {
        blocks: all_blocks(&inner.shape),
        inner: inner.shape.spatial(),
        padded: padded.shape.spatial(),
    }
}

impl Lower for PadFront {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(grid: PaddedGrid) -> Kernels {
            Kernels::single(move |places| pad_front::PadFront::<T> {
                grid,
                source: places.input(0),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(padded_grid(cx.input(0), cx.output(0)))))
    }
}

impl Lower for PadFrontGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(grid: PaddedGrid) -> Kernels {
            Kernels::single(move |places| pad_front::PadFrontGrad::<T> {
                grid,
                upstream: places.input(0),
                result: places.output(0),
            })
        }
        Ok(by_storage!(cx.input(0), with(padded_grid(cx.output(0), cx.input(0)))))
    }
}

/// The sizes of a response normalisation or its gradient.
#[derive(Clone, Copy)]
struct Responses {
    planes: Planes,
    batch: usize,
    channels: usize,
    epsilon: f32,
}

impl Responses {
    fn new(shape: &Shape, epsilon: f32) -> Responses {
        let planes = Planes { blocks: all_blocks(shape), voxels: shape.voxels() };
        Responses { planes, batch: shape.batch(), channels: shape.channels(), epsilon }
    }

    /// Bytes of the partial sums, and of the numbers that maps are multiplied by.
    fn scratch<T>(self) -> [usize; 3] {
        let numbers = bytes_of::<f32>(product([self.planes.blocks, LANES]));
        [bytes_of::<f64>(ResponseSums::<T>::partial(self.planes)), numbers, numbers]
    }

    /// The kernel of the numbers, whose places are pieces of scratch.
    fn numbers(self, places: &Places, scale: Ptr<f32>, of_channels: Option<OfChannels>) -> ResponseNumbers {
        ResponseNumbers {
            planes: self.planes,
            batch: self.batch,
            channels: self.channels,
            epsilon: self.epsilon,
            partial: places.scratch(0),
            scale,
            factors: places.scratch(1),
            slopes: places.scratch(2),
            of_channels,
        }
    }
}

impl Lower for ResponseNorm {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(of: Responses) -> Kernels {
            let planes = of.planes;
            Kernels::new(of.scratch::<T>(), move |places| {
                Box::new(InTurn3(
                    ResponseSums::<T> {
                        planes,
                        x: places.input(0),
                        upstream: None,
                        partial: places.scratch(0),
                    },
                    of.numbers(places, places.input(1), None),
                    ResponseApply::<T> {
                        planes,
                        of_sample: blocks(of.channels),
                        map: places.input(0),
                        factors: places.scratch(1),
                        addend: Addend::Shift(places.input(2)),
                        result: places.output(0),
                    },
                ))
            })
        }
        let of = Responses::new(&cx.input(0).shape, self.epsilon);
        Ok(by_storage!(cx.input(0), with(of)).in_place([(0, 0)]))
    }
}

impl Lower for ResponseNormGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(of: Responses) -> Kernels {
            let planes = of.planes;
            Kernels::new(of.scratch::<T>(), move |places| {
                let of_channels = OfChannels { scale: places.output(1), shift: places.output(2) };
                Box::new(InTurn3(
                    ResponseSums::<T> {
                        planes,
                        x: places.input(1),
                        upstream: Some(places.input(0)),
                        partial: places.scratch(0),
                    },
                    of.numbers(places, places.input(2), Some(of_channels)),
                    ResponseApply::<T> {
                        planes,
                        of_sample: blocks(of.channels),
                        map: places.input(0),
                        factors: places.scratch(1),
                        addend: Addend::Map(places.input(1), places.scratch(2)),
                        result: places.output(0),
                    },
                ))
            })
        }
        let of = Responses::new(&cx.input(1).shape, self.epsilon);
        Ok(by_storage!(cx.input(0), with(of)).in_place([(0, 0), (0, 1)]))
    }
}
