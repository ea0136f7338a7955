//! Normalisations, their gradient, and running statistics.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    NormFromRunning, NormStats, Normalise, NormaliseGrad, Over, RunningFactors, RunningUpdate,
};
use plimsoll_plan::Unsupported;

use super::sums::{BLOCK_PARTS, MOST_PARTS, column_turns, sums_packs};
use crate::lower::{
    BLOCK, Context, Lower, Operand, Stretch, Work, address_or_null, parts, product, stretches,
};

/// The division of a volume into parts, and of its planes into sets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Planes {
    batch: u32,
    voxels: u32,
    channels: u32,
    length: u32,
    parts: u32,
    set_samples: u32,
    set_channels: u32,
    unused: u32,
}

impl Planes {
    fn new(cx: &Context<'_>, volume: &Operand<'_>, over: Over) -> Result<Planes, Unsupported> {
        let shape = &volume.info.shape;
        let (batch, channels, voxels) = (shape.batch(), shape.channels(), shape.voxels());
        cx.count(&[batch, channels, voxels])?;
        let by_packs = sums_packs(volume.info.dtype, channels);
        let (length, parts) = parts(voxels, if by_packs { BLOCK_PARTS } else { MOST_PARTS });
        // Three numbers of each part are the most.
        cx.count(&[batch, channels, parts, 3])?;
        let (set_samples, set_channels) = match over {
            Over::Instance => (1, 1),
            Over::Group(groups) => (1, channels / groups),
            Over::Batch => (batch, 1),
        };
        Ok(Planes {
            batch: cx.count(&[batch])?,
            voxels: cx.count(&[voxels])?,
            channels: cx.count(&[channels])?,
            length: cx.count(&[length])?,
            parts: cx.count(&[parts])?,
            set_samples: cx.count(&[set_samples])?,
            set_channels: cx.count(&[set_channels])?,
            unused: 0,
        })
    }

    fn count(&self) -> u32 {
        self.batch * self.channels
    }

    /// Parts of all planes of a set.
    fn parts_of_set(&self) -> usize {
        [self.parts, self.set_samples, self.set_channels].iter().map(|count| *count as usize).product()
    }

    fn sets(&self) -> u32 {
        self.count() / self.set_samples / self.set_channels
    }
}

/// The sums of the parts of a volume's planes.
struct PartSums<'a, P> {
    /// The kernel with a thread for each part and channel, and the one with a block for each part, which sums packs of channels.
    kernels: [&'static str; 2],
    volume: &'a Operand<'a>,
    planes: Planes,
    parameters: P,
    reads: &'a [Stretch],
    write: Stretch,
}

impl<P: Pod> PartSums<'_, P> {
    fn launch(&self, cx: &Context<'_>, work: &mut Work) -> Result<(), Unsupported> {
        let PartSums { kernels: [kernel, of_packs], volume, planes, parameters, reads, write } = self;
        let parts = planes.batch * planes.parts;
        if sums_packs(volume.info.dtype, planes.channels as usize) {
            let kernel = cx.kernel(of_packs, &[volume])?;
            work.blocks(kernel, [parts, 1], parameters, reads, &[*write])?;
            let length = planes.length.min(planes.voxels);
            let [parts, length, channels] = [parts, length, planes.channels].map(|count| count as usize);
            column_turns(work, [parts, length, channels], volume.info.dtype)?;
            return Ok(());
        }
        let kernel = cx.kernel(kernel, &[volume])?;
        work.each(kernel, parts * planes.channels, parameters, reads, &[*write]);
        work.each_turns(planes.length.min(planes.voxels) as usize)?;
        Ok(())
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormStatsPartsParameters {
    x: u64,
    parts: u64,
    planes: Planes,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormStatsParameters {
    parts: u64,
    statistics: u64,
    variances: u64,
    epsilon: f32,
    unused: u32,
    planes: Planes,
}

impl Lower for NormStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, statistics, variances) = (cx.input(0), cx.output(0), cx.outputs.get(1));
        let planes = Planes::new(cx, x, self.over)?;
        let threads = planes.count() * planes.parts;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(3 * threads as usize)?;
        let sums = PartSums {
            kernels: ["norm_stats_parts", "norm_stats_packs"],
            volume: x,
            planes,
            parameters: NormStatsPartsParameters { x: x.address(), parts: scratch.address, planes },
            reads: &[x.at],
            write: scratch,
        };
        sums.launch(cx, &mut work)?;
        let parameters = NormStatsParameters {
            parts: scratch.address,
            statistics: statistics.address(),
            variances: address_or_null(variances),
            epsilon: self.epsilon,
            unused: 0,
            planes,
        };
        work.blocks("norm_stats", [planes.sets(), 1], &parameters, &[scratch], &stretches(&cx.outputs))?;
        work.each_turns(planes.parts_of_set().div_ceil(BLOCK))?;
        Ok(work)
    }
}

/// Launches a kernel over all elements of a volume: in packs, where they fill the channels of a voxel.
fn by_element<P: Pod>(
    cx: &Context<'_>,
    work: &mut Work,
    kernel: &str,
    volume: &Operand<'_>,
    parameters: &P,
    reads: &[Stretch],
    write: Stretch,
) -> Result<(), Unsupported> {
    let count = cx.elements(volume)?;
    if volume.info.shape.channels().is_multiple_of(volume.pack()) {
        let kernel = cx.kernel(&format!("{kernel}_packs"), &[volume])?;
        work.packs(kernel, volume, count, parameters, reads, &[write]);
    } else {
        work.each(cx.kernel(kernel, &[volume])?, count, parameters, reads, &[write]);
    }
    Ok(())
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormaliseParameters {
    y: u64,
    statistics: u64,
    scale: u64,
    shift: u64,
    u: u64,
    voxels: u32,
    channels: u32,
    count: u32,
    slope: f32,
}

/// Normalise and leaky ReLU in one: z = lrelu(γ · (y − μ) · r + β); slope 1 is no activation. Operands: as of [`Normalise`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormAct {
    pub(crate) slope: f32,
    pub(crate) affine: bool,
}

/// The gradients of leaky ReLU and of [`Normalise`] in one. Operands: the gradient of z, then the operands of [`Normalise`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormActGrad {
    pub(crate) norm: NormAct,
    /// The values that share their statistics.
    pub(crate) over: Over,
}

impl NormAct {
    /// The number of operands it has.
    pub(crate) fn operands(self) -> usize {
        if self.affine { 4 } else { 2 }
    }
}

impl Lower for Normalise {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        NormAct { slope: 1.0, affine: self.affine }.lower(cx)
    }
}

impl Lower for NormAct {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (y, u) = (cx.input(0), cx.output(0));
        let (count, shape) = (cx.elements(y)?, &y.info.shape);
        let parameters = NormaliseParameters {
            y: y.address(),
            statistics: cx.input(1).address(),
            scale: address_or_null(cx.inputs.get(2)),
            shift: address_or_null(cx.inputs.get(3)),
            u: u.address(),
            voxels: cx.count(&[shape.voxels()])?,
            channels: cx.count(&[shape.channels()])?,
            count,
            slope: self.slope,
        };
        let mut work = Work::new(cx);
        by_element(cx, &mut work, "normalise", y, &parameters, &stretches(&cx.inputs), u.at)?;
        Ok(work.in_place(&[(0, 0)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradPartsParameters {
    g: u64,
    y: u64,
    statistics: u64,
    scale: u64,
    shift: u64,
    parts: u64,
    planes: Planes,
    slope: f32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradSumsParameters {
    parts: u64,
    sums: u64,
    planes: Planes,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradMeansParameters {
    sums: u64,
    scale: u64,
    means: u64,
    dscale: u64,
    dshift: u64,
    planes: Planes,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradParameters {
    g: u64,
    y: u64,
    statistics: u64,
    scale: u64,
    shift: u64,
    means: u64,
    dy: u64,
    voxels: u32,
    channels: u32,
    count: u32,
    slope: f32,
}

impl Lower for NormaliseGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        NormActGrad { norm: NormAct { slope: 1.0, affine: self.affine }, over: self.over }.lower(cx)
    }
}

impl Lower for NormActGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (g, y, statistics) = (cx.input(0), cx.input(1), cx.input(2));
        let (scale, shift) = (cx.inputs.get(3), cx.inputs.get(4));
        let (dy, dscale, dshift) = (cx.output(0), cx.outputs.get(1), cx.outputs.get(2));
        let planes = Planes::new(cx, y, self.over)?;
        let threads = planes.count() * planes.parts;
        let mut work = Work::new(cx);
        let of_parts = work.take::<f32>(2 * threads as usize)?;
        let sums = work.take::<f64>(2 * planes.count() as usize)?;
        let means = work.take::<f32>(2 * planes.count() as usize)?;
        let parameters = GradPartsParameters {
            g: g.address(),
            y: y.address(),
            statistics: statistics.address(),
            scale: address_or_null(scale),
            shift: address_or_null(shift),
            parts: of_parts.address,
            planes,
            slope: self.norm.slope,
            unused: 0,
        };
        let part_sums = PartSums {
            kernels: ["normalise_grad_parts", "normalise_grad_parts_packs"],
            volume: y,
            planes,
            parameters,
            reads: &stretches(&cx.inputs),
            write: of_parts,
        };
        part_sums.launch(cx, &mut work)?;
        let parameters = GradSumsParameters { parts: of_parts.address, sums: sums.address, planes };
        work.blocks("normalise_grad_sums", [planes.count(), 1], &parameters, &[of_parts], &[sums])?;
        work.each_turns((planes.parts as usize).div_ceil(BLOCK))?;
        let parameters = GradMeansParameters {
            sums: sums.address,
            scale: address_or_null(scale),
            means: means.address,
            dscale: address_or_null(dscale),
            dshift: address_or_null(dshift),
            planes,
        };
        let of_scale = |operand: Option<&Operand<'_>>| operand.map(|operand| operand.at);
        let (mut reads, mut writes) = (vec![sums], vec![means]);
        reads.extend(of_scale(scale));
        writes.extend(of_scale(dscale).into_iter().chain(of_scale(dshift)));
        work.each("normalise_grad_means", planes.count(), &parameters, &reads, &writes);
        work.each_turns(product(&[planes.set_samples as usize, planes.set_channels as usize]) as usize)?;
        let count = cx.elements(y)?;
        let parameters = GradParameters {
            g: g.address(),
            y: y.address(),
            statistics: statistics.address(),
            scale: address_or_null(scale),
            shift: address_or_null(shift),
            means: means.address,
            dy: dy.address(),
            voxels: planes.voxels,
            channels: planes.channels,
            count,
            slope: self.norm.slope,
        };
        let mut reads = stretches(&cx.inputs);
        reads.push(means);
        by_element(cx, &mut work, "normalise_grad", y, &parameters, &reads, dy.at)?;
        Ok(work.in_place(&[(0, 0), (0, 1)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormFromRunningParameters {
    mean: u64,
    variance: u64,
    statistics: u64,
    channels: u32,
    count: u32,
    epsilon: f32,
    unused: u32,
}

impl Lower for NormFromRunning {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (mean, variance, statistics) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(statistics)?;
        let channels = mean.info.shape.count();
        let count = cx.count(&[self.batch, channels])?;
        let parameters = NormFromRunningParameters {
            mean: mean.address(),
            variance: variance.address(),
            statistics: statistics.address(),
            channels: cx.count(&[channels])?,
            count,
            epsilon: self.epsilon,
            unused: 0,
        };
        let mut work = Work::new(cx);
        work.each("norm_from_running", count, &parameters, &[mean.at, variance.at], &[statistics.at]);
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RunningFactorsParameters {
    variance: u64,
    scale: u64,
    factors: u64,
    channels: u32,
    count: u32,
    epsilon: f32,
    unused: u32,
}

impl Lower for RunningFactors {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (variance, scale, factors) = (cx.input(0), cx.input(1), cx.output(0));
        let count = cx.elements(factors)?;
        let parameters = RunningFactorsParameters {
            variance: variance.address(),
            scale: scale.address(),
            factors: factors.address(),
            channels: cx.elements(variance)?,
            count,
            epsilon: self.epsilon,
            unused: 0,
        };
        let mut work = Work::new(cx);
        work.each("running_factors", count, &parameters, &[variance.at, scale.at], &[factors.at]);
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RunningUpdateParameters {
    mean: u64,
    variance: u64,
    batches: u64,
    statistics: u64,
    batch_variance: u64,
    norm: u64,
    channels: u32,
    momentum: f32,
}

impl Lower for RunningUpdate {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        cx.elements(cx.input(3))?;
        let channels = cx.elements(cx.input(0))?;
        let parameters = RunningUpdateParameters {
            mean: cx.input(0).address(),
            variance: cx.input(1).address(),
            batches: cx.input(2).address(),
            statistics: cx.input(3).address(),
            batch_variance: cx.input(4).address(),
            norm: address_or_null(cx.inputs.get(5)),
            channels,
            momentum: self.momentum,
        };
        let mut work = Work::new(cx);
        let (reads, writes) = (stretches(&cx.inputs), stretches(&cx.outputs));
        work.each("running_update", channels, &parameters, &reads, &writes);
        Ok(work)
    }
}
