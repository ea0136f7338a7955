//! Element-wise ops, sums of channels, labels, and arithmetic on small tables.

use plimsoll_graph::DType;
use plimsoll_graph::ops::{
    Accumulate, Add, ChannelSum, DownsampleLabels, Dropout, Elu, EluGrad, Fill, Join, LeakyRelu,
    LeakyReluGrad, SigmoidGrad, WeightedSum,
};
use plimsoll_plan::Unsupported;

use crate::kernel::Ptr;
use crate::kernels;
use crate::kernels::lane_sums::SumLanes;
use crate::kernels::pointwise::{FeatureSums, Function, ImageSums, Pointwise};
use crate::layout::rule::VolumeRule;
use crate::layout::{Layout, blocks};
use crate::lower::{Context, InTurn2, Kernels, Lower, NodeOperands, by_storage, bytes_of, product, serial};
use crate::simd::{Element, LANES};

/// A function of the first operand, or of the first and the last, element by element as they are stored.
pub(super) fn pointwise(cx: &Context<'_>, function: Function) -> Result<Kernels, Unsupported> {
    fn with<T: Element>(cx: &Context<'_>, function: Function) -> Kernels {
        let (count, last) = (cx.output_count(0), cx.inputs.len() - 1);
        Kernels::single(move |places| Pointwise::<T> {
            function,
            a: places.input(0),
            b: places.input(last),
            result: places.output(0),
            count,
        })
    }
    match cx.output(0).dtype {
        DType::F32 | DType::Bf16 => Ok(by_storage!(cx.output(0), with(cx, function))),
        dtype => Err(cx.unsupported(format!("elements of {dtype}"))),
    }
}

impl Lower for Add {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pointwise(cx, Function::Add)?.in_place([(0, 0), (0, 1)]))
    }
}

impl Lower for Accumulate {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        pointwise(cx, Function::Add)
    }
}

impl Lower for LeakyRelu {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pointwise(cx, Function::Leaky(self.slope))?.in_place([(0, 0)]))
    }
}

impl Lower for LeakyReluGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pointwise(cx, Function::LeakyGrad(self.slope))?.in_place([(0, 0), (0, 1)]))
    }
}

/// Operations of an exponential.
const EXP_FLOPS: u64 = 20;

impl Lower for Elu {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let flops = EXP_FLOPS * cx.output(0).shape.count() as u64;
        Ok(pointwise(cx, Function::Elu)?.in_place([(0, 0)]).cost(cx.cost(flops)))
    }
}

impl Lower for EluGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pointwise(cx, Function::EluGrad)?.in_place([(0, 0), (0, 1)]))
    }
}

impl Lower for SigmoidGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Alike
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        Ok(pointwise(cx, Function::LogisticGrad)?.in_place([(0, 0), (0, 1)]))
    }
}

impl Lower for Dropout {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, op: Dropout) -> Kernels {
            let shape = cx.output(0).shape.clone();
            Kernels::single(move |places| kernels::dropout::Dropout::<T> {
                op,
                noise: places.input(1),
                source: places.input(0),
                result: places.output(0),
                batch: shape.batch(),
                blocks: blocks(shape.channels()),
                voxels: shape.voxels(),
            })
        }
        Ok(by_storage!(cx.output(0), with(cx, *self)).in_place([(0, 0)]))
    }
}

impl Lower for ChannelSum {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Any
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn block_kernels<T: Element>(cx: &Context<'_>) -> Kernels {
            let shape = &cx.input(0).shape;
            let (batch, blocks, voxels) = (shape.batch(), blocks(shape.channels()), shape.voxels());
            let parts = FeatureSums::<T>::parts(batch, voxels);
            let scratch = [bytes_of::<f64>(product([blocks, parts, LANES]))];
            Kernels::new(scratch, move |places| {
                let partial = places.scratch(0);
                Box::new(InTurn2(
                    FeatureSums::<T> { data: places.input(0), batch, blocks, voxels, partial },
                    SumLanes { partial, blocks, parts, factor: 1.0, result: places.output(0) },
                ))
            })
        }
        if *cx.input_layout(0) == Layout::Blocks {
            return Ok(by_storage!(cx.input(0), block_kernels(cx)));
        }
        let shape = cx.input(0).shape.clone();
        Ok(Kernels::single(move |places| ImageSums {
            data: places.input(0),
            batch: shape.batch(),
            channels: shape.channels(),
            voxels: shape.voxels(),
            result: places.output(0),
        }))
    }
}

impl Lower for DownsampleLabels {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (from, to, batch) = (cx.input(0).shape.spatial(), self.output, cx.input(0).shape.batch());
        Ok(Kernels::new([], move |places| {
            let (source, result): (Ptr<u8>, Ptr<u8>) = (places.input(0), places.output(0));
            let run = move || {
                let (source, result) = (source, result);
                let at = |axis: usize, place: usize| DownsampleLabels::source(place, to[axis], from[axis]);
                let mut place = 0;
                for sample in 0..batch {
                    for d in 0..to[0] {
                        for h in 0..to[1] {
                            let row = ((sample * from[0] + at(0, d)) * from[1] + at(1, h)) * from[2];
                            for w in 0..to[2] {
                                // SAFETY: `at` is below the extent that labels are taken from, and `place` below the number
                                // of voxels that there are to fill.
                                unsafe { *result.0.add(place) = *source.0.add(row + at(2, w)) };
                                place += 1;
                            }
                        }
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for Fill {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (value, count) = (self.value, cx.output_count(0));
        Ok(Kernels::new([], move |places| {
            let result: Ptr<f32> = places.output(0);
            let run = move || {
                let result = result;
                // SAFETY: the result has `count` numbers, which nobody else touches while the node runs.
                unsafe { std::slice::from_raw_parts_mut(result.0, count) }.fill(value);
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for WeightedSum {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let (weights, count) = (self.weights.clone(), cx.output_count(0));
        Ok(Kernels::new([], move |places| {
            let operands: Vec<(Ptr<f32>, f32)> =
                weights.iter().enumerate().map(|(i, weight)| (places.input(i), *weight)).collect();
            let result: Ptr<f32> = places.output(0);
            let run = move || {
                let result = result;
                for i in 0..count {
                    // SAFETY: all operands and the result have `count` numbers.
                    unsafe {
                        let term = |(x, w): &(Ptr<f32>, f32)| f64::from(*w) * f64::from(*x.0.add(i));
                        *result.0.add(i) = operands.iter().map(term).sum::<f64>() as f32;
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}

impl Lower for Join {
    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        let counts: Vec<usize> = (0..cx.inputs.len()).map(|operand| cx.input_count(operand)).collect();
        Ok(Kernels::new([], move |places| {
            let tables: Vec<(Ptr<f32>, usize)> =
                counts.iter().enumerate().map(|(i, count)| (places.input(i), *count)).collect();
            let result: Ptr<f32> = places.output(0);
            let run = move || {
                let mut to = result;
                for (table, count) in &tables {
                    // SAFETY: each table has its count of numbers, and the result room for all; it lies apart from them.
                    unsafe {
                        std::ptr::copy_nonoverlapping(table.0, to.0, *count);
                        to = to.add(*count);
                    }
                }
            };
            // SAFETY: `run` accesses only the operands and results of this node, within their sizes.
            unsafe { serial(run) }
        }))
    }
}
