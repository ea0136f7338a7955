//! Losses of logits and labels, and counts of right and wrong voxels.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::Shape;
use plimsoll_graph::ops::{
    Activation, Component, CompositeLoss, CompositeLossGrad, HardCounts, Loss, SoftmaxStats, VolumeWeight,
    VoxelSum,
};
use plimsoll_plan::Unsupported;

use super::sums::SumPartsParameters;
use crate::lower::{BLOCK, Context, Lower, Operand, Stretch, Work};

/// Sums of voxels beyond the four that all losses share, `MOST_SUMS` of the kernels.
pub(super) const MOST_SUMS: usize = 16;

/// Voxels of a block, `OF_BLOCK` of the kernels.
pub(super) const OF_BLOCK: usize = 8 * BLOCK;

/// Above all labels: none is ignored.
const NO_LABEL: u32 = 256;

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct VoxelSumParameters {
    kind: u32,
    activation: u32,
    number: f32,
    alpha: f32,
}

impl VoxelSumParameters {
    fn new(sum: VoxelSum) -> VoxelSumParameters {
        let of_activation = |activation| match activation {
            Activation::Softmax => 0,
            Activation::Sigmoid => 1,
        };
        let (kind, activation, number, alpha) = match sum {
            VoxelSum::Squares => (0, 0, 0.0, None),
            VoxelSum::MinusLog => (1, 0, 0.0, None),
            VoxelSum::Focal { gamma, alpha, activation } => (2, of_activation(activation), gamma, alpha),
            VoxelSum::Bce { pos_weight, activation } => (3, of_activation(activation), pos_weight, None),
        };
        VoxelSumParameters { kind, activation, number, alpha: alpha.unwrap_or(-1.0) }
    }
}

/// Sums of voxels, and how many.
pub(super) fn voxel_sums(
    cx: &Context<'_>,
    sums: impl Iterator<Item = VoxelSum>,
) -> Result<([VoxelSumParameters; MOST_SUMS], u32), Unsupported> {
    let sums: Vec<VoxelSumParameters> = sums.map(VoxelSumParameters::new).collect();
    let mut all = [VoxelSumParameters::default(); MOST_SUMS];
    match all.get_mut(..sums.len()) {
        Some(place) => place.copy_from_slice(&sums),
        None => return Err(cx.unsupported(format!("{} sums of voxels, of at most {MOST_SUMS}", sums.len()))),
    }
    Ok((all, cx.count(&[sums.len()])?))
}

/// A label that is left out, as kernels take it.
pub(super) fn ignored(ignore: Option<u8>) -> u32 {
    ignore.map_or(NO_LABEL, u32::from)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SoftmaxStatsParameters {
    logits: u64,
    labels: u64,
    parts: u64,
    voxels: u32,
    classes: u32,
    ignore: u32,
    squared: u32,
    extra: u32,
    unused: u32,
    sums: [VoxelSumParameters; MOST_SUMS],
}

impl Lower for SoftmaxStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (logits, labels, y) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(logits)?;
        let shape = &logits.info.shape;
        let (batch, classes, voxels) = (shape.batch(), shape.channels(), shape.voxels());
        let (parts, of_sample) = (voxels.div_ceil(OF_BLOCK), classes * self.rows());
        let all = cx.count(&[batch, parts, of_sample])?;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(all as usize)?;
        let (sums, extra) = voxel_sums(cx, self.extra.iter().copied())?;
        let parameters = SoftmaxStatsParameters {
            logits: logits.address(),
            labels: labels.address(),
            parts: scratch.address,
            voxels: cx.count(&[voxels])?,
            classes: cx.count(&[classes])?,
            ignore: ignored(self.ignore),
            squared: self.squared.into(),
            extra,
            unused: 0,
            sums,
        };
        let (parts, batch) = (cx.count(&[parts])?, cx.count(&[batch])?);
        work.blocks("softmax_stats_parts", [parts, batch], &parameters, &[logits.at, labels.at], &[scratch])?;
        work.each_turns(classes * (1 + extra as usize))?;
        let count = cx.count(&[of_sample])?;
        let parameters =
            SumPartsParameters { parts: scratch.address, y: y.address(), count, parts_count: parts };
        work.blocks("sum_many_parts", [count, batch], &parameters, &[scratch], &[y.at])?;
        work.each_turns((parts as usize).div_ceil(BLOCK))?;
        Ok(work)
    }
}

/// Components of a loss, and weights of all their classes, `MOST_COMPONENTS` and `MOST_CLASS_WEIGHTS` of the kernels.
const MOST_COMPONENTS: usize = 16;
const MOST_CLASS_WEIGHTS: usize = 512;

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct ComponentParameters {
    kind: u32,
    weight: f32,
    batch: u32,
    first_class: u32,
    squared: u32,
    volume_weight: u32,
    smooth_numerator: f32,
    smooth_denominator: f32,
    alpha: f32,
    beta: f32,
    power: f32,
    smoothing: f32,
    own_row: u32,
    own: u32,
    class_weights: u32,
    has_class_weights: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CompositeLossParameters {
    sums: u64,
    upstream: u64,
    loss: u64,
    parts: u64,
    slopes: u64,
    batch: u32,
    classes: u32,
    rows: u32,
    squares_row: u32,
    components_count: u32,
    own_count: u32,
    regions: u32,
    unused: u32,
    components: [ComponentParameters; MOST_COMPONENTS],
    class_weights: [f32; MOST_CLASS_WEIGHTS],
}

/// Returns a component in the kernel's form, without its class weights and the place of its own sum.
fn component(component: &Component) -> ComponentParameters {
    let mut c = ComponentParameters { weight: component.weight(), ..ComponentParameters::default() };
    let smooth = |c: &mut ComponentParameters, numerator, denominator| {
        (c.smooth_numerator, c.smooth_denominator) = (numerator, denominator);
    };
    match component {
        Component::SoftDice(dice) | Component::LogCoshDice(dice) => {
            c.kind = matches!(component, Component::LogCoshDice(_)).into();
            (c.batch, c.squared) = (dice.batch.into(), dice.squared.into());
            smooth(&mut c, dice.smooth_numerator, dice.smooth_denominator);
        }
        Component::GeneralizedDice(dice) => {
            (c.kind, c.batch) = (2, dice.batch.into());
            c.volume_weight = match dice.volume_weight {
                VolumeWeight::Square => 0,
                VolumeWeight::Simple => 1,
                VolumeWeight::Uniform => 2,
            };
            smooth(&mut c, dice.smooth_numerator, dice.smooth_denominator);
        }
        Component::Tversky(t) => {
            (c.kind, c.batch, c.alpha, c.beta) = (3, t.batch.into(), t.alpha, t.beta);
            smooth(&mut c, t.smooth_numerator, t.smooth_denominator);
        }
        Component::FocalTversky(t) => {
            (c.kind, c.batch, c.alpha, c.beta) = (4, t.batch.into(), t.alpha, t.beta);
            c.power = 1.0 / t.gamma;
            smooth(&mut c, t.smooth_numerator, t.smooth_denominator);
        }
        Component::CrossEntropy(entropy) => (c.kind, c.smoothing) = (5, entropy.label_smoothing),
        Component::WeightedBce(_) | Component::Focal(_) => c.kind = 6,
    }
    c
}

/// Returns the kernels' parameters for a loss of sums `[N, C, rows]`, with all addresses null.
fn parameters(cx: &Context<'_>, loss: &Loss, sums: &Shape) -> Result<CompositeLossParameters, Unsupported> {
    let classes = sums.dim(1);
    if loss.components.len() > MOST_COMPONENTS {
        let found = loss.components.len();
        return Err(cx.unsupported(format!("{found} components, of at most {MOST_COMPONENTS}")));
    }
    let stats = loss.stats();
    let squares = stats.extra.first() == Some(&VoxelSum::Squares);
    let mut all = CompositeLossParameters {
        batch: cx.count(&[sums.dim(0)])?,
        classes: cx.count(&[classes])?,
        rows: cx.count(&[stats.rows()])?,
        squares_row: if squares { 4 } else { 1 },
        components_count: cx.count(&[loss.components.len()])?,
        regions: loss.regions.is_some().into(),
        ..CompositeLossParameters::zeroed()
    };
    let (mut own, mut weights) = (0, 0);
    for (place, of_loss) in all.components.iter_mut().zip(&loss.components) {
        *place = component(of_loss);
        place.first_class = cx.count(&[loss.first_class(of_loss, classes)])?;
        if of_loss.own_sum().is_some() {
            (place.own, place.own_row) = (own, 4 + u32::from(squares) + own);
            own += 1;
        }
        let given = of_loss.class_weights();
        if given.is_empty() {
            continue;
        }
        (place.class_weights, place.has_class_weights) = (cx.count(&[weights])?, 1);
        // A class beyond those that are given weighs 1.
        for class in 0..classes {
            let Some(weight) = all.class_weights.get_mut(weights) else {
                let why = format!("more than {MOST_CLASS_WEIGHTS} weights of classes in all components");
                return Err(cx.unsupported(why));
            };
            *weight = given.get(class).copied().unwrap_or(1.0);
            weights += 1;
        }
    }
    all.own_count = own;
    Ok(all)
}

impl Lower for CompositeLoss {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (sums, loss, parts) = (cx.input(0), cx.output(0), cx.output(1));
        let parameters = CompositeLossParameters {
            sums: sums.address(),
            loss: loss.address(),
            parts: parts.address(),
            ..parameters(cx, &self.loss, &sums.info.shape)?
        };
        let mut work = Work::new(cx);
        work.blocks("composite_loss", [1, 1], &parameters, &[sums.at], &[loss.at, parts.at])?;
        Ok(work)
    }
}

/// The derivatives of a loss by its sums, written to scratch: `[sample][class][3]`, `[class]` of the cross-entropy, and factors of the
/// sums of components, `[own sum][class]`.
pub(super) fn slopes(
    cx: &Context<'_>,
    work: &mut Work,
    loss: &Loss,
    [sums, upstream]: [&Operand<'_>; 2],
) -> Result<Stretch, Unsupported> {
    let of_loss = parameters(cx, loss, &sums.info.shape)?;
    let rows = 3 * of_loss.batch as usize + 1 + of_loss.own_count as usize;
    cx.count(&[rows, of_loss.classes as usize])?;
    let slopes: Stretch = work.take::<f64>(rows * of_loss.classes as usize)?;
    let of_loss = CompositeLossParameters {
        sums: sums.address(),
        upstream: upstream.address(),
        slopes: slopes.address,
        ..of_loss
    };
    work.blocks("composite_loss_slopes", [1, 1], &of_loss, &[sums.at, upstream.at], &[slopes])?;
    Ok(slopes)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CompositeLossGradParameters {
    logits: u64,
    labels: u64,
    slopes: u64,
    dlogits: u64,
    voxels: u32,
    classes: u32,
    ignore: u32,
    own: u32,
    batch: u32,
    count: u32,
    sums: [VoxelSumParameters; MOST_SUMS],
}

impl Lower for CompositeLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let [logits, labels, sums, upstream] = [0, 1, 2, 3].map(|operand| cx.input(operand));
        let dlogits = cx.output(0);
        cx.elements(logits)?;
        let mut work = Work::new(cx);
        let slopes = slopes(cx, &mut work, &self.loss, [sums, upstream])?;
        let (sums, own) = voxel_sums(cx, self.loss.voxel_sums())?;
        let shape = &logits.info.shape;
        let count = cx.count(&[shape.batch(), shape.voxels()])?;
        let parameters = CompositeLossGradParameters {
            logits: logits.address(),
            labels: labels.address(),
            slopes: slopes.address,
            dlogits: dlogits.address(),
            voxels: cx.count(&[shape.voxels()])?,
            classes: cx.count(&[shape.channels()])?,
            ignore: ignored(self.loss.ignore),
            own,
            batch: cx.count(&[shape.batch()])?,
            count,
            sums,
        };
        let reads = [logits.at, labels.at, slopes];
        work.each("composite_loss_grad", count, &parameters, &reads, &[dlogits.at]);
        work.each_turns(shape.channels() * (1 + own as usize))?;
        // A thread reads the logit of a class before it writes its gradient, and not afterwards.
        Ok(work.in_place(&[(0, 0)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct HardCountsParameters {
    logits: u64,
    labels: u64,
    parts: u64,
    count: u32,
    classes: u32,
    ignore: u32,
    unused: u32,
}

impl Lower for HardCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (logits, labels, y) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(logits)?;
        let shape = &logits.info.shape;
        let (voxels, classes) = (shape.batch() * shape.voxels(), shape.channels());
        let parts = voxels.div_ceil(OF_BLOCK);
        let mut work = Work::new(cx);
        let scratch = work.take::<u32>(cx.count(&[parts, 3, classes])? as usize)?;
        let parameters = HardCountsParameters {
            logits: logits.address(),
            labels: labels.address(),
            parts: scratch.address,
            count: cx.count(&[voxels])?,
            classes: cx.count(&[classes])?,
            ignore: ignored(self.ignore),
            unused: 0,
        };
        let parts = cx.count(&[parts])?;
        work.blocks("hard_counts_parts", [parts, 1], &parameters, &[logits.at, labels.at], &[scratch])?;
        let count = cx.count(&[3, classes])?;
        let parameters =
            SumPartsParameters { parts: scratch.address, y: y.address(), count, parts_count: parts };
        work.each("hard_counts", count, &parameters, &[scratch], &[y.at]);
        Ok(work)
    }
}
