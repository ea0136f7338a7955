//! Global response normalisation, and its gradient.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{ResponseNorm, ResponseNormGrad};
use plimsoll_plan::Unsupported;

use super::squeeze::{Planes, plane_sums};
use super::sums::{Summed, channel_sum};
use crate::lower::{BLOCK, Context, Lower, Operand, Stretch, Work, address_or_null, start_or_null};

/// Numbers that `responses` makes of a channel of a sample.
const NUMBERS: usize = 3;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ResponsesParameters {
    squares: u64,
    products: u64,
    scale: u64,
    numbers: u64,
    channels: u32,
    epsilon: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ResponseNormParameters {
    dz: u64,
    x: u64,
    numbers: u64,
    shift: u64,
    y: u64,
    voxels: u32,
    channels: u32,
    count: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ResponseScaleGradParameters {
    numbers: u64,
    y: u64,
    channels: u32,
    samples: u32,
}

/// A volume, its upstream gradient if there is one, and the learned scale.
struct Operands<'a> {
    dz: Option<&'a Operand<'a>>,
    x: &'a Operand<'a>,
    scale: &'a Operand<'a>,
    epsilon: f32,
}

impl Operands<'_> {
    /// Sums over voxels, and makes the numbers of each channel of each sample of the sums.
    fn numbers(&self, cx: &Context<'_>, work: &mut Work) -> Result<Stretch, Unsupported> {
        cx.elements(self.x)?;
        let shape = &self.x.info.shape;
        let (samples, channels) = (shape.batch(), shape.channels());
        let planes = Planes { samples, voxels: shape.voxels(), channels };
        let squares = work.take::<f32>(samples * channels)?;
        plane_sums(cx, work, planes, &[self.x, self.x], 1.0, squares)?;
        let products = match self.dz {
            Some(dz) => {
                let products = work.take::<f32>(samples * channels)?;
                plane_sums(cx, work, planes, &[self.x, dz], 1.0, products)?;
                Some(products)
            }
            None => None,
        };
        let numbers = work.take::<f32>(samples * channels * NUMBERS)?;
        let parameters = ResponsesParameters {
            squares: squares.address,
            products: start_or_null(products),
            scale: self.scale.address(),
            numbers: numbers.address,
            channels: cx.count(&[channels])?,
            epsilon: self.epsilon,
        };
        let reads: Vec<Stretch> = [squares, self.scale.at].into_iter().chain(products).collect();
        work.blocks("responses", [cx.count(&[samples])?, 1], &parameters, &reads, &[numbers])?;
        work.each_turns(channels.div_ceil(BLOCK))?;
        Ok(numbers)
    }

    /// Makes the result of the numbers, or the gradient of x.
    fn apply(
        &self,
        cx: &Context<'_>,
        work: &mut Work,
        numbers: Stretch,
        shift: Option<&Operand<'_>>,
    ) -> Result<(), Unsupported> {
        let (shape, y) = (&self.x.info.shape, cx.output(0));
        let count = cx.elements(y)?;
        let parameters = ResponseNormParameters {
            dz: address_or_null(self.dz),
            x: self.x.address(),
            numbers: numbers.address,
            shift: address_or_null(shift),
            y: y.address(),
            voxels: cx.count(&[shape.voxels()])?,
            channels: cx.count(&[shape.channels()])?,
            count,
            unused: 0,
        };
        let others = [self.dz, shift].into_iter().flatten().map(|operand| operand.at);
        let reads: Vec<Stretch> = [self.x.at, numbers].into_iter().chain(others).collect();
        let kernel = if self.dz.is_some() { "response_norm_grad" } else { "response_norm" };
        work.each(cx.kernel(kernel, &[y])?, count, &parameters, &reads, &[y.at]);
        Ok(())
    }
}

impl Lower for ResponseNorm {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let of = Operands { dz: None, x: cx.input(0), scale: cx.input(1), epsilon: self.epsilon };
        let mut work = Work::new(cx);
        let numbers = of.numbers(cx, &mut work)?;
        of.apply(cx, &mut work, numbers, Some(cx.input(2)))?;
        Ok(work.in_place(&[(0, 0)]))
    }
}

impl Lower for ResponseNormGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (dz, x, scale) = (cx.input(0), cx.input(1), cx.input(2));
        let of = Operands { dz: Some(dz), x, scale, epsilon: self.epsilon };
        let mut work = Work::new(cx);
        let numbers = of.numbers(cx, &mut work)?;
        let (dscale, dshift, shape) = (cx.output(1), cx.output(2), &x.info.shape);
        let (samples, channels) = (shape.batch(), shape.channels());
        let parameters = ResponseScaleGradParameters {
            numbers: numbers.address,
            y: dscale.address(),
            channels: cx.count(&[channels])?,
            samples: cx.count(&[samples])?,
        };
        work.each("response_scale_grad", parameters.channels, &parameters, &[numbers], &[dscale.at]);
        work.each_turns(samples)?;
        let summed = Summed { at: dz.at, dtype: dz.info.dtype, voxels: samples * shape.voxels(), channels };
        channel_sum(cx, &mut work, summed, dshift.at)?;
        // The gradient of the map may take the place of an operand, so it is made last.
        of.apply(cx, &mut work, numbers, None)?;
        Ok(work.in_place(&[(0, 0), (0, 1)]))
    }
}
