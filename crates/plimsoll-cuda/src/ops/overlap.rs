//! The overlap and the difference of two volumes, and losses of them.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    ClDice, ClDiceGrad, MeanDifference, MeanDifferenceGrad, OverlapSums, OverlapSumsGrad, SoftRecall,
    SoftRecallGrad,
};
use plimsoll_plan::Unsupported;

use super::loss::ignored;
use super::sums::{MOST_PARTS, SumPartsParameters};
use crate::lower::{Context, Lower, Work, address_or_null, parts, stretches};

/// A sample as a table of rows of voxels along the width, with all their channels, cut into parts of some rows.
struct Rows {
    rows: u32,
    columns: u32,
    /// Rows of a part.
    length: u32,
    /// The parts of a sample.
    parts: u32,
    /// Parts and columns of all samples.
    count: u32,
}

impl Rows {
    /// The rows, with this count of numbers for each part and column.
    fn new(cx: &Context<'_>, shape: &Shape, numbers: usize) -> Result<Rows, Unsupported> {
        let [depth, height, width] = shape.spatial();
        let (length, parts) = parts(depth * height, MOST_PARTS);
        let count = cx.count(&[shape.batch(), parts, width, shape.channels()])?;
        cx.count(&[count as usize, numbers])?;
        Ok(Rows {
            rows: cx.count(&[depth, height])?,
            columns: cx.count(&[width, shape.channels()])?,
            length: cx.count(&[length])?,
            parts: cx.count(&[parts])?,
            count,
        })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OverlapSumsParameters {
    a: u64,
    b: u64,
    parts: u64,
    rows: u32,
    columns: u32,
    length: u32,
    parts_count: u32,
    count: u32,
    unused: u32,
}

impl Lower for OverlapSums {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (a, b, y) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(a)?;
        let shape = &a.info.shape;
        let Rows { rows, columns, length, parts, count } = Rows::new(cx, shape, 2)?;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(2 * count as usize)?;
        let parameters = OverlapSumsParameters {
            a: a.address(),
            b: b.address(),
            parts: scratch.address,
            rows,
            columns,
            length,
            parts_count: parts,
            count,
            unused: 0,
        };
        work.each("overlap_parts", count, &parameters, &[a.at, b.at], &[scratch]);
        // What is left of columns in a result are channels, or nothing.
        let channels = if self.by_channel { shape.channels() as u32 } else { 1 };
        let sums = SumPartsParameters {
            parts: scratch.address,
            y: y.address(),
            count: 2 * channels,
            parts_count: parts * (columns / channels),
        };
        let batch = cx.count(&[shape.batch()])?;
        work.blocks("sum_many_parts", [2 * channels, batch], &sums, &[scratch], &[y.at])?;
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OverlapSumsGradParameters {
    sums: u64,
    other: u64,
    y: u64,
    elements: u32,
    columns: u32,
    by_first: u32,
    count: u32,
}

impl Lower for OverlapSumsGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (sums, other, y) = (cx.input(0), cx.input(1), cx.output(0));
        let (shape, count) = (&other.info.shape, cx.elements(other)?);
        let parameters = OverlapSumsGradParameters {
            sums: sums.address(),
            other: other.address(),
            y: y.address(),
            elements: cx.count(&[shape.channels(), shape.voxels()])?,
            columns: if self.of.by_channel { cx.count(&[shape.channels()])? } else { 1 },
            by_first: self.by_first.into(),
            count,
        };
        let mut work = Work::new(cx);
        work.each("overlap_sums_grad", count, &parameters, &[sums.at, other.at], &[y.at]);
        Ok(work.in_place(&[(0, 1)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SumLossParameters {
    upstream: u64,
    precision: u64,
    sensitivity: u64,
    loss: u64,
    dsensitivity: u64,
    samples: u32,
    classes: u32,
    batch: u32,
    smooth_numerator: f32,
    smooth_denominator: f32,
    smooth: f32,
}

/// A loss of sums, or its gradient, which has an operand more: a thread for each of `count`.
fn sum_loss(
    cx: &Context<'_>,
    kernel: &str,
    has_upstream: bool,
    count: u32,
    of: SumLossParameters,
) -> Result<Work, Unsupported> {
    let (upstream, sums) = cx.inputs.split_at(usize::from(has_upstream));
    cx.count(&[sums[0].info.shape.count()])?;
    let parameters = SumLossParameters {
        upstream: address_or_null(upstream.first()),
        precision: address_or_null(sums.first()),
        sensitivity: address_or_null(sums.get(1)),
        loss: cx.output(0).address(),
        dsensitivity: address_or_null(cx.outputs.get(1)),
        ..of
    };
    let mut work = Work::new(cx);
    work.each(kernel, count, &parameters, &stretches(&cx.inputs), &stretches(&cx.outputs));
    Ok(work)
}

fn cldice_parameters(cx: &Context<'_>, of: &ClDice, sums: usize) -> Result<SumLossParameters, Unsupported> {
    Ok(SumLossParameters {
        samples: cx.count(&[cx.input(sums).info.shape.dim(0)])?,
        classes: 1,
        smooth_numerator: of.smooth_numerator,
        smooth_denominator: of.smooth_denominator,
        smooth: of.smooth,
        ..SumLossParameters::zeroed()
    })
}

impl Lower for ClDice {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        sum_loss(cx, "cldice", false, 1, cldice_parameters(cx, self, 0)?)
    }
}

impl Lower for ClDiceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let parameters = cldice_parameters(cx, &self.of, 1)?;
        sum_loss(cx, "cldice_grad", true, parameters.samples, parameters)
    }
}

fn recall_parameters(
    cx: &Context<'_>,
    of: &SoftRecall,
    sums: usize,
) -> Result<SumLossParameters, Unsupported> {
    let shape = &cx.input(sums).info.shape;
    Ok(SumLossParameters {
        samples: cx.count(&[shape.dim(0)])?,
        classes: cx.count(&[shape.dim(1)])?,
        batch: of.batch.into(),
        smooth_numerator: of.smooth_numerator,
        smooth_denominator: of.smooth_denominator,
        ..SumLossParameters::zeroed()
    })
}

impl Lower for SoftRecall {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        sum_loss(cx, "soft_recall", false, 1, recall_parameters(cx, self, 0)?)
    }
}

impl Lower for SoftRecallGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let parameters = recall_parameters(cx, &self.of, 1)?;
        let quotients = cx.count(&[parameters.samples as usize, parameters.classes as usize])?;
        sum_loss(cx, "soft_recall_grad", true, quotients, parameters)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MeanDifferenceParameters {
    a: u64,
    b: u64,
    labels: u64,
    parts: u64,
    values: u64,
    loss: u64,
    factors: u64,
    upstream: u64,
    gradient: u64,
    voxels: u32,
    channels: u32,
    rows: u32,
    columns: u32,
    length: u32,
    parts_count: u32,
    count: u32,
    planes: u32,
    classes: u32,
    ignore: u32,
    has_threshold: u32,
    threshold: f32,
}

/// Those of volumes and labels that begin at `first`, all other addresses null.
fn difference_parameters(
    cx: &Context<'_>,
    of: &MeanDifference,
    first: usize,
) -> Result<MeanDifferenceParameters, Unsupported> {
    let [a, b, labels] = [0, 1, 2].map(|operand| cx.input(first + operand));
    let shape = &a.info.shape;
    Ok(MeanDifferenceParameters {
        a: a.address(),
        b: b.address(),
        labels: labels.address(),
        voxels: cx.count(&[shape.voxels()])?,
        channels: cx.count(&[shape.channels()])?,
        count: cx.elements(a)?,
        planes: cx.count(&[shape.batch(), shape.channels()])?,
        classes: cx.count(&[of.classes])?,
        ignore: ignored(of.ignore),
        has_threshold: of.threshold.is_some().into(),
        threshold: of.threshold.unwrap_or(0.0),
        ..MeanDifferenceParameters::zeroed()
    })
}

impl Lower for MeanDifference {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (loss, factors) = (cx.output(0), cx.output(1));
        let of_volumes = difference_parameters(cx, self, 0)?;
        let Rows { rows, columns, length, parts, count } = Rows::new(cx, &cx.input(0).info.shape, 3)?;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(3 * count as usize)?;
        let values = work.take::<f64>(of_volumes.planes as usize)?;
        let parameters = MeanDifferenceParameters {
            parts: scratch.address,
            values: values.address,
            loss: loss.address(),
            factors: factors.address(),
            rows,
            columns,
            length,
            parts_count: parts,
            count,
            ..of_volumes
        };
        let planes = [parameters.planes, 1];
        work.each("mean_difference_parts", count, &parameters, &stretches(&cx.inputs), &[scratch]);
        work.blocks("mean_difference_factors", planes, &parameters, &[scratch], &[values, factors.at])?;
        work.blocks("mean_difference", [1, 1], &parameters, &[values], &[loss.at])?;
        Ok(work)
    }
}

impl Lower for MeanDifferenceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (upstream, factors, gradient) = (cx.input(0), cx.input(1), cx.output(0));
        let parameters = MeanDifferenceParameters {
            factors: factors.address(),
            upstream: upstream.address(),
            gradient: gradient.address(),
            ..difference_parameters(cx, &self.of, 2)?
        };
        let mut work = Work::new(cx);
        let reads = stretches(&cx.inputs);
        work.each("mean_difference_grad", parameters.count, &parameters, &reads, &[gradient.at]);
        Ok(work.in_place(&[(0, 2), (0, 3)]))
    }
}
