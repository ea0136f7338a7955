//! Ops of single elements, and arithmetic on small tables.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    Accumulate, Add, DownsampleLabels, Dropout, Elu, EluGrad, Fill, Gelu, GeluGrad, Join, LeakyRelu,
    LeakyReluGrad, SampleDrop, Sigmoid, SigmoidGrad, WeightedSum, ZeroClass, ZeroClassGrad,
};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Operand, Stretch, Work, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PointwiseParameters {
    a: u64,
    b: u64,
    y: u64,
    count: u32,
    slope: f32,
}

/// Returns the parameters for `count` elements of the first operand, or of the first and the last.
fn parameters(cx: &Context<'_>, count: u32, slope: f32) -> PointwiseParameters {
    let [a, b, y] = [cx.input(0), cx.input(cx.inputs.len() - 1), cx.output(0)].map(Operand::address);
    PointwiseParameters { a, b, y, count, slope }
}

/// A function of them with a thread for each pack of elements, which may be stored in several ways.
fn float_work(cx: &Context<'_>, kernel: &str, slope: f32) -> Result<Work, Unsupported> {
    let (y, count) = (cx.output(0), cx.elements(cx.output(0))?);
    let mut work = Work::new(cx);
    let kernel = cx.kernel(kernel, &[y])?;
    work.packs(kernel, y, count, &parameters(cx, count, slope), &stretches(&cx.inputs), &[y.at]);
    Ok(work)
}

/// A function of the operands with a thread for each of `count` elements or voxels.
fn pointwise(cx: &Context<'_>, kernel: impl Into<String>, count: u32) -> Result<Work, Unsupported> {
    let mut work = Work::new(cx);
    work.each(kernel, count, &parameters(cx, count, 0.0), &stretches(&cx.inputs), &[cx.output(0).at]);
    Ok(work)
}

impl Lower for Add {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "add", 0.0)?.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for Accumulate {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        float_work(cx, "add", 0.0)
    }
}

impl Lower for LeakyRelu {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "leaky_relu", self.slope)?.in_place(&[(0, 0)]))
    }
}

impl Lower for LeakyReluGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "leaky_relu_grad", self.slope)?.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for Sigmoid {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "sigmoid", 0.0)?.in_place(&[(0, 0)]))
    }
}

impl Lower for SigmoidGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "sigmoid_grad", 0.0)?.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for Elu {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "elu", 0.0)?.in_place(&[(0, 0)]))
    }
}

impl Lower for EluGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(float_work(cx, "elu_grad", 0.0)?.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for Gelu {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(pointwise(cx, cx.kernel("gelu", &[cx.output(0)])?, cx.elements(cx.output(0))?)?
            .in_place(&[(0, 0)]))
    }
}

impl Lower for GeluGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(pointwise(cx, cx.kernel("gelu_grad", &[cx.output(0)])?, cx.elements(cx.output(0))?)?
            .in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for ZeroClass {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        // Indices go to twice the voxels.
        cx.elements(cx.output(0))?;
        pointwise(cx, "zero_class", cx.elements(cx.input(0))?)
    }
}

impl Lower for ZeroClassGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        cx.elements(cx.input(0))?;
        pointwise(cx, "zero_class_grad", cx.elements(cx.output(0))?)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FillParameters {
    y: u64,
    count: u32,
    value: f32,
}

/// Writes one value to `count` places.
pub(super) fn fill(work: &mut Work, y: Stretch, count: u32, value: f32) {
    work.each("fill", count, &FillParameters { y: y.address, count, value }, &[], &[y]);
}

impl Lower for Fill {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let mut work = Work::new(cx);
        fill(&mut work, cx.output(0).at, cx.elements(cx.output(0))?, self.value);
        Ok(work)
    }
}

/// Tables that an op takes at once, `MOST_TABLES` of the kernels.
const MOST_TABLES: usize = 32;

/// A number for each table, zero where there is none.
fn by_table<T: Copy + Default>(
    cx: &Context<'_>,
    number: impl Fn(usize, &Operand<'_>) -> T,
) -> Result<[T; MOST_TABLES], Unsupported> {
    let mut numbers = [T::default(); MOST_TABLES];
    if cx.inputs.len() > MOST_TABLES {
        return Err(cx.unsupported(format!("{} tables, of at most {MOST_TABLES}", cx.inputs.len())));
    }
    for (i, (place, table)) in numbers.iter_mut().zip(&cx.inputs).enumerate() {
        *place = number(i, table);
    }
    Ok(numbers)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WeightedSumParameters {
    x: [u64; MOST_TABLES],
    weights: [f32; MOST_TABLES],
    y: u64,
    tables: u32,
    count: u32,
}

impl Lower for WeightedSum {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (y, count) = (cx.output(0), cx.elements(cx.output(0))?);
        let x = by_table(cx, |_, table| table.address())?;
        let mut weights = [0.0; MOST_TABLES];
        match weights.get_mut(..self.weights.len()) {
            Some(to) if to.len() == cx.inputs.len() => to.copy_from_slice(&self.weights),
            _ => {
                let why = format!("{} weights of {} tables", self.weights.len(), cx.inputs.len());
                return Err(cx.unsupported(why));
            }
        }
        let parameters = WeightedSumParameters {
            x,
            weights,
            y: y.address(),
            tables: cx.count(&[cx.inputs.len()])?,
            count,
        };
        let mut work = Work::new(cx);
        work.each("weighted_sum", count, &parameters, &stretches(&cx.inputs), &[y.at]);
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct JoinParameters {
    x: [u64; MOST_TABLES],
    counts: [u32; MOST_TABLES],
    y: u64,
    tables: u32,
    count: u32,
}

impl Lower for Join {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        // Each has fewer elements than all of them, whose number is checked.
        let (y, count) = (cx.output(0), cx.elements(cx.output(0))?);
        let parameters = JoinParameters {
            x: by_table(cx, |_, table| table.address())?,
            counts: by_table(cx, |_, table| table.info.shape.count() as u32)?,
            y: y.address(),
            tables: cx.count(&[cx.inputs.len()])?,
            count,
        };
        let mut work = Work::new(cx);
        work.each("join", count, &parameters, &stretches(&cx.inputs), &[y.at]);
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DropoutParameters {
    x: u64,
    noise: u64,
    y: u64,
    count: u32,
    channels: u32,
    voxels: u32,
    threshold: u32,
    layer: u32,
    whole_channels: u32,
    scale: f32,
    unused: u32,
}

/// The threshold below which elements are dropped, and the factor of the others.
struct Drop {
    threshold: u32,
    scale: f32,
    layer: u32,
    whole_channels: bool,
}

/// Drops elements, channels or samples of a volume by the noise that is the second operand.
fn drop(cx: &Context<'_>, kernel: &str, of: &Drop) -> Result<Work, Unsupported> {
    let (x, noise, y) = (cx.input(0), cx.input(1), cx.output(0));
    let (shape, count) = (&y.info.shape, cx.elements(y)?);
    let parameters = DropoutParameters {
        x: x.address(),
        noise: noise.address(),
        y: y.address(),
        count,
        channels: cx.count(&[shape.channels()])?,
        voxels: cx.count(&[shape.voxels()])?,
        threshold: of.threshold,
        layer: of.layer,
        whole_channels: of.whole_channels.into(),
        scale: of.scale,
        unused: 0,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[y])?, count, &parameters, &[x.at, noise.at], &[y.at]);
    Ok(work.in_place(&[(0, 0)]))
}

impl Lower for Dropout {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (threshold, scale) = (self.threshold(), self.scale());
        let of = Drop { threshold, scale, layer: self.layer, whole_channels: self.whole_channels };
        drop(cx, "dropout", &of)
    }
}

impl Lower for SampleDrop {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        // The same choice as of an element, by another counter.
        let alike = Dropout { p: self.p, layer: self.layer, whole_channels: false };
        let (threshold, scale) = (alike.threshold(), alike.scale());
        drop(cx, "sample_drop", &Drop { threshold, scale, layer: self.layer, whole_channels: false })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DownsampleParameters {
    x: u64,
    y: u64,
    from: [u32; 3],
    to: [u32; 3],
    count: u32,
    unused: u32,
}

impl Lower for DownsampleLabels {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, y) = (cx.input(0), cx.output(0));
        cx.elements(x)?;
        let count = cx.elements(y)?;
        let parameters = DownsampleParameters {
            x: x.address(),
            y: y.address(),
            from: cx.axes(x.info.shape.spatial())?,
            to: cx.axes(self.output)?,
            count,
            unused: 0,
        };
        let mut work = Work::new(cx);
        work.each("downsample_labels", count, &parameters, &[x.at], &[y.at]);
        Ok(work)
    }
}
