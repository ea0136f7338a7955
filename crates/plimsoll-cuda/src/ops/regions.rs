//! Losses and counts of regions, each of which has a logit of its own.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{RegionCounts, RegionLossGrad, RegionStats, Regions};
use plimsoll_plan::Unsupported;

use super::loss::{MOST_SUMS, OF_BLOCK, VoxelSumParameters, ignored, slopes, voxel_sums};
use super::sums::SumPartsParameters;
use crate::lower::{Context, Lower, Work};

/// Regions of a loss, `MOST_REGIONS` of the kernels: a bit of a number for each.
const MOST_REGIONS: usize = 64;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RegionsParameters {
    /// A bit for each region that voxels with a label belong to.
    of_label: [u64; 256],
    labels: u32,
    ignore: u32,
}

impl RegionsParameters {
    fn new(
        cx: &Context<'_>,
        regions: &Regions,
        ignore: Option<u8>,
    ) -> Result<RegionsParameters, Unsupported> {
        let found = regions.sets.len();
        if found > MOST_REGIONS {
            let why =
                format!("a loss of {found} regions, of at most {MOST_REGIONS}: ‹device=cpu› has no limit");
            return Err(cx.unsupported(why));
        }
        let mut of_label = [0; 256];
        for (region, set) in regions.sets.iter().enumerate() {
            for label in set {
                of_label[usize::from(*label)] |= 1 << region;
            }
        }
        Ok(RegionsParameters { of_label, labels: cx.count(&[regions.labels])?, ignore: ignored(ignore) })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RegionStatsParameters {
    logits: u64,
    labels: u64,
    parts: u64,
    voxels: u32,
    count: u32,
    squared: u32,
    extra: u32,
    sums: [VoxelSumParameters; MOST_SUMS],
    regions: RegionsParameters,
}

impl Lower for RegionStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (logits, labels, y) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(logits)?;
        let shape = &logits.info.shape;
        let (batch, regions, voxels) = (shape.batch(), shape.channels(), shape.voxels());
        let (parts, of_sample) = (voxels.div_ceil(OF_BLOCK), regions * self.rows());
        let all = cx.count(&[batch, parts, of_sample])?;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(all as usize)?;
        let (sums, extra) = voxel_sums(cx, self.extra.iter().copied())?;
        let parameters = RegionStatsParameters {
            logits: logits.address(),
            labels: labels.address(),
            parts: scratch.address,
            voxels: cx.count(&[voxels])?,
            count: cx.count(&[regions])?,
            squared: self.squared.into(),
            extra,
            sums,
            regions: RegionsParameters::new(cx, &self.regions, self.ignore)?,
        };
        let (parts, batch) = (cx.count(&[parts])?, cx.count(&[batch])?);
        work.blocks("region_stats_parts", [parts, batch], &parameters, &[logits.at, labels.at], &[scratch])?;
        let count = cx.count(&[of_sample])?;
        let parameters =
            SumPartsParameters { parts: scratch.address, y: y.address(), count, parts_count: parts };
        work.blocks("sum_many_parts", [count, batch], &parameters, &[scratch], &[y.at])?;
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RegionLossGradParameters {
    logits: u64,
    labels: u64,
    slopes: u64,
    dlogits: u64,
    voxels: u32,
    count: u32,
    batch: u32,
    own: u32,
    all: u32,
    unused: u32,
    sums: [VoxelSumParameters; MOST_SUMS],
    regions: RegionsParameters,
}

impl Lower for RegionLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let [logits, labels, sums, upstream] = [0, 1, 2, 3].map(|operand| cx.input(operand));
        let dlogits = cx.output(0);
        cx.elements(logits)?;
        let Some(regions) = &self.loss.regions else {
            return Err(cx.unsupported("internal error: a loss of classes"));
        };
        let mut work = Work::new(cx);
        let slopes = slopes(cx, &mut work, &self.loss, [sums, upstream])?;
        let shape = &logits.info.shape;
        let all = cx.count(&[shape.batch(), shape.voxels()])?;
        let (sums, own) = voxel_sums(cx, self.loss.voxel_sums())?;
        let parameters = RegionLossGradParameters {
            logits: logits.address(),
            labels: labels.address(),
            slopes: slopes.address,
            dlogits: dlogits.address(),
            voxels: cx.count(&[shape.voxels()])?,
            count: cx.count(&[shape.channels()])?,
            batch: cx.count(&[shape.batch()])?,
            own,
            all,
            unused: 0,
            sums,
            regions: RegionsParameters::new(cx, regions, self.loss.ignore)?,
        };
        let reads = [logits.at, labels.at, slopes];
        work.each("region_loss_grad", all, &parameters, &reads, &[dlogits.at]);
        // A thread reads the logit of a region before it writes its gradient, and not afterwards.
        Ok(work.in_place(&[(0, 0)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RegionCountsParameters {
    logits: u64,
    labels: u64,
    parts: u64,
    all: u32,
    count: u32,
    regions: RegionsParameters,
}

impl Lower for RegionCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (logits, labels, y) = (cx.input(0), cx.input(1), cx.output(0));
        cx.elements(logits)?;
        let shape = &logits.info.shape;
        let (voxels, regions) = (shape.batch() * shape.voxels(), shape.channels());
        let parts = voxels.div_ceil(OF_BLOCK);
        let mut work = Work::new(cx);
        let scratch = work.take::<u32>(cx.count(&[parts, 3, regions])? as usize)?;
        let parameters = RegionCountsParameters {
            logits: logits.address(),
            labels: labels.address(),
            parts: scratch.address,
            all: cx.count(&[voxels])?,
            count: cx.count(&[regions])?,
            regions: RegionsParameters::new(cx, &self.regions, self.ignore)?,
        };
        let parts = cx.count(&[parts])?;
        work.blocks("region_counts_parts", [parts, 1], &parameters, &[logits.at, labels.at], &[scratch])?;
        let count = cx.count(&[3, regions])?;
        let parameters =
            SumPartsParameters { parts: scratch.address, y: y.address(), count, parts_count: parts };
        work.each("hard_counts", count, &parameters, &[scratch], &[y.at]);
        Ok(work)
    }
}
