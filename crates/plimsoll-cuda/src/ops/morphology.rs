//! Grey morphology: extremes of cubes, the erosion of soft skeletons and their steps.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    BoxExtreme, BoxExtremeGrad, CrossErosion, CrossErosionGrad, Extreme, SkeletonStep, SkeletonStepGrad,
    Union,
};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Operand, Stretch, Work, address_or_null, start_or_null, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WindowParameters {
    from: u64,
    to: u64,
    codes: u64,
    extent: [u32; 3],
    axis: u32,
    channels: u32,
    count: u32,
    radius: u32,
    is_max: u32,
    factor: f32,
    unused: u32,
}

impl WindowParameters {
    /// Those of a volume, all addresses null.
    fn new(cx: &Context<'_>, x: &Operand<'_>, of: &BoxExtreme) -> Result<WindowParameters, Unsupported> {
        Ok(WindowParameters {
            extent: cx.axes(x.info.shape.spatial())?,
            channels: cx.count(&[x.info.shape.channels()])?,
            count: cx.elements(x)?,
            radius: cx.count(&[of.radius])?,
            is_max: (of.extreme == Extreme::Max).into(),
            factor: 1.0,
            ..WindowParameters::zeroed()
        })
    }

    /// Launches a kernel that goes along an axis from one volume to another, and writes or reads which of a window its extreme is.
    fn launch(
        self,
        work: &mut Work,
        kernel: &str,
        axis: u32,
        from: Stretch,
        to: Option<Stretch>,
        codes: Option<Stretch>,
    ) {
        let parameters = WindowParameters {
            from: from.address,
            to: start_or_null(to),
            codes: start_or_null(codes),
            axis,
            ..self
        };
        let (reads, writes): (Vec<Stretch>, Vec<Stretch>) = match kernel {
            GATHER => ([from].into_iter().chain(codes).collect(), to.into_iter().collect()),
            _ => (vec![from], to.into_iter().chain(codes).collect()),
        };
        work.each(kernel, self.count, &parameters, &reads, &writes);
    }
}

/// The kernel that finds extremes, and the one that sums what belongs to them.
const FIND: &str = "window_extreme";
const GATHER: &str = "window_extreme_grad";

impl Lower for BoxExtreme {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, y) = (cx.input(0), cx.output(0).at);
        let all = WindowParameters::new(cx, x, self)?;
        let mut work = Work::new(cx);
        let between = work.take::<f32>(all.count as usize)?;
        all.launch(&mut work, FIND, 2, x.at, Some(y), None);
        all.launch(&mut work, FIND, 1, y, Some(between), None);
        all.launch(&mut work, FIND, 0, between, Some(y), None);
        Ok(work)
    }
}

impl Lower for BoxExtremeGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (g, x, dx) = (cx.input(0), cx.input(1), cx.output(0).at);
        let all = WindowParameters::new(cx, x, &self.of)?;
        let mut work = Work::new(cx);
        let first = work.take::<f32>(all.count as usize)?;
        let second = work.take::<f32>(all.count as usize)?;
        let [depth, height, width] = [
            work.take::<u8>(all.count as usize)?,
            work.take::<u8>(all.count as usize)?,
            work.take::<u8>(all.count as usize)?,
        ];
        all.launch(&mut work, FIND, 2, x.at, Some(first), Some(width));
        all.launch(&mut work, FIND, 1, first, Some(second), Some(height));
        all.launch(&mut work, FIND, 0, second, None, Some(depth));
        // The way back, axis by axis.
        all.launch(&mut work, GATHER, 0, g.at, Some(first), Some(depth));
        all.launch(&mut work, GATHER, 1, first, Some(second), Some(height));
        let last = WindowParameters { factor: self.factor, ..all };
        last.launch(&mut work, GATHER, 2, second, Some(dx), Some(width));
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CrossParameters {
    x: u64,
    g: u64,
    codes: u64,
    y: u64,
    extent: [u32; 3],
    channels: u32,
    count: u32,
    unused: u32,
}

impl CrossParameters {
    /// Those of a volume and a result, all other addresses null.
    fn new(cx: &Context<'_>, x: &Operand<'_>) -> Result<CrossParameters, Unsupported> {
        Ok(CrossParameters {
            x: x.address(),
            y: cx.output(0).address(),
            extent: cx.axes(x.info.shape.spatial())?,
            channels: cx.count(&[x.info.shape.channels()])?,
            count: cx.elements(x)?,
            ..CrossParameters::zeroed()
        })
    }
}

impl Lower for CrossErosion {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, y) = (cx.input(0), cx.output(0));
        let parameters = CrossParameters::new(cx, x)?;
        let mut work = Work::new(cx);
        work.each("cross_erosion", parameters.count, &parameters, &[x.at], &[y.at]);
        Ok(work)
    }
}

impl Lower for CrossErosionGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (g, x, dx) = (cx.input(0), cx.input(1), cx.output(0));
        let of_volume = CrossParameters::new(cx, x)?;
        let count = of_volume.count;
        let mut work = Work::new(cx);
        let codes = work.take::<u16>(count as usize)?;
        let parameters = CrossParameters { g: g.address(), codes: codes.address, ..of_volume };
        work.each("cross_erosion_codes", count, &parameters, &[x.at], &[codes]);
        work.each("cross_erosion_grad", count, &parameters, &[g.at, codes], &[dx.at]);
        // x is read before anything is written.
        Ok(work.in_place(&[(0, 1)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SkeletonStepParameters {
    x: u64,
    eroded: u64,
    skeleton: u64,
    g: u64,
    y: u64,
    dskeleton: u64,
    extent: [u32; 3],
    channels: u32,
    count: u32,
    is_maximum: u32,
}

/// A step, or its gradient, whose operands begin at `first`. A thread reads one element of all operands but the erosion, and then writes it.
fn skeleton_step(
    cx: &Context<'_>,
    of: &SkeletonStep,
    kernel: &str,
    first: usize,
) -> Result<Work, Unsupported> {
    let x = cx.input(first);
    let parameters = SkeletonStepParameters {
        x: x.address(),
        eroded: cx.input(first + 1).address(),
        skeleton: address_or_null(cx.inputs.get(first + 2)),
        g: if first > 0 { cx.input(0).address() } else { 0 },
        y: cx.output(0).address(),
        dskeleton: address_or_null(cx.outputs.get(1)),
        extent: cx.axes(x.info.shape.spatial())?,
        channels: cx.count(&[x.info.shape.channels()])?,
        count: cx.elements(x)?,
        is_maximum: (of.union == Union::Maximum).into(),
    };
    let mut work = Work::new(cx);
    work.each(kernel, parameters.count, &parameters, &stretches(&cx.inputs), &stretches(&cx.outputs));
    Ok(work)
}

impl Lower for SkeletonStep {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        // Of the skeleton so far, where there is one, or of x.
        Ok(skeleton_step(cx, self, "skeleton_step", 0)?.in_place(&[(0, 2), (0, 0)]))
    }
}

impl Lower for SkeletonStepGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(skeleton_step(cx, &self.of, "skeleton_step_grad", 1)?.in_place(&[(0, 0), (0, 1), (1, 3)]))
    }
}
