//! Sums, gradients and counts of regions, each of which has a logit of its own, sixteen voxels at a time.

use plimsoll_parallel::{each, each_index};
use std::sync::Arc;

use plimsoll_graph::ops::{Regions, VoxelSum};

use super::voxel_loss::ClassLanes;
use super::voxels::{Group, Voxels};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd, exp::exp};

/// Logits of regions, and labels, each of which may belong to any number of regions.
#[derive(Clone)]
pub(crate) struct RegionVoxels {
    /// Its classes are the regions.
    pub(crate) voxels: Voxels,
    /// `true` for each region and label if voxels with the label belong to the region: `[region][label]`.
    members: Arc<[[bool; 256]]>,
}

impl RegionVoxels {
    /// Regions of logits and labels, of which those below `regions.labels` count.
    pub(crate) fn new(voxels: Voxels, regions: &Regions) -> RegionVoxels {
        let members = |region: usize| each_index(|label| regions.contain(region, label as u8));
        let voxels = Voxels { known: regions.labels, ..voxels };
        RegionVoxels { voxels, members: (0..regions.sets.len()).map(members).collect() }
    }

    /// Returns `true` for each voxel of a group that belongs to a region. Voxels that do not count belong to none.
    #[inline(always)]
    fn here(&self, region: usize, group: &Group) -> [bool; LANES] {
        let members = &self.members[region];
        each(group.labels, |label| members.get(label).copied().unwrap_or(false))
    }

    /// A region of a group, from its logits, their probabilities and the opposite probabilities.
    #[inline(always)]
    fn lanes<'a>(
        &self,
        region: usize,
        group: &Group,
        logits: &[f32; LANES],
        p: &'a [f32; LANES],
        rest: &'a [f32; LANES],
    ) -> ClassLanes<'a> {
        // No sum of regions is of the softmax, which these two would be of.
        const UNREAD: &[f32; LANES] = &[0.0; LANES];
        let here = self.here(region, group);
        ClassLanes { class: region, here, p, rest, logits: *logits, top: UNREAD, total: UNREAD }
    }
}

/// σ(x) and σ(−x), both exact where they are small.
#[inline(always)]
fn sigmoids(logits: &[f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
    let e = exp(&each(*logits, |x| -x.abs()));
    let (mut p, mut rest) = ([0.0; LANES], [0.0; LANES]);
    for i in 0..LANES {
        let (small, large) = (e[i] / (1.0 + e[i]), 1.0 / (1.0 + e[i]));
        (p[i], rest[i]) = if logits[i] > 0.0 { (large, small) } else { (small, large) };
    }
    (p, rest)
}

/// The sums of `RegionStats` for each chunk.
pub(crate) struct RegionSums {
    pub(crate) of: RegionVoxels,
    pub(crate) squared: bool,
    /// Sums beyond the four that all losses need.
    pub(crate) extra: Vec<VoxelSum>,
    /// Per thread: [`RegionSums::per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
    /// The result, `[task][region][4 + extra]`.
    pub(crate) partial: Ptr<f64>,
}

impl RegionSums {
    /// Floats of scratch per thread: `[region][4 + extra][16]` sums.
    pub(crate) fn per_thread(regions: usize, extra: usize) -> usize {
        regions * (4 + extra) * LANES
    }
}

impl Kernel for RegionSums {
    fn tasks(&self) -> usize {
        self.of.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let voxels = &self.of.voxels;
        let (regions, rows) = (voxels.classes, 4 + self.extra.len());
        let size = Self::per_thread(regions, self.extra.len());
        // SAFETY: scratch has a part for `thread` of that size; the logits are of `regions` regions, of which each index is one;
        // tasks write disjoint sums.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(self.scratch.0.add(thread * size), size);
            sums.fill(0.0);
            voxels.for_each_group(task, |group| {
                for (region, sums) in sums.chunks_exact_mut(rows * LANES).enumerate() {
                    let logits = voxels.logits(task, region, group);
                    let (p, rest) = sigmoids(&logits);
                    let lanes = self.of.lanes(region, group, &logits, &p, &rest);
                    for i in 0..LANES {
                        let (here, counts) = (if lanes.here[i] { 1.0 } else { 0.0 }, group.counts[i]);
                        sums[i] += here * p[i];
                        sums[LANES + i] += counts * if self.squared { p[i] * p[i] } else { p[i] };
                        sums[2 * LANES + i] += here;
                        sums[3 * LANES + i] += counts;
                    }
                    for (extra, sums) in self.extra.iter().zip(sums[4 * LANES..].chunks_exact_mut(LANES)) {
                        for (i, value) in lanes.value(extra).into_iter().enumerate() {
                            sums[i] += group.counts[i] * value;
                        }
                    }
                }
            });
            for (row, lanes) in sums.chunks_exact(LANES).enumerate() {
                let sum: f64 = lanes.iter().map(|x| f64::from(*x)).sum();
                *self.partial.0.add(task * regions * rows + row) = sum;
            }
        }
    }
}

/// The gradient of the logits, from the derivatives by the sums.
pub(crate) struct RegionGrad {
    pub(crate) of: RegionVoxels,
    /// The terms of voxels.
    pub(crate) sums: Vec<VoxelSum>,
    /// `[sample][region][3]`: derivatives by Σpt, Σp and Σp², with all weights.
    pub(crate) slopes: Ptr<f32>,
    /// Behind `[region]`, which is of the softmax alone, `[sum][region]`: factors of terms.
    pub(crate) factors: Ptr<f32>,
    /// Like the logits, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for RegionGrad {
    fn tasks(&self) -> usize {
        self.of.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let voxels = &self.of.voxels;
        let regions = voxels.classes;
        // SAFETY: there are three slopes for each region of each sample, of which `task < tasks` has one, and a factor for each sum
        // and region. Tasks write disjoint voxels; where the result aliases the logits, those of a region and group are read before
        // they are written, and by nobody afterwards.
        unsafe {
            let slopes = self.slopes.0.add(voxels.sample(task) * regions * 3);
            voxels.for_each_group(task, |group| {
                for region in 0..regions {
                    let [by_overlap, by_size, by_squares] = each([0, 1, 2], |k| *slopes.add(region * 3 + k));
                    let logits = voxels.logits(task, region, group);
                    let (p, rest) = sigmoids(&logits);
                    let lanes = self.of.lanes(region, group, &logits, &p, &rest);
                    let (mut by_p, mut direct) = ([0.0; LANES], [0.0; LANES]);
                    for i in 0..LANES {
                        let overlap = if lanes.here[i] { by_overlap } else { 0.0 };
                        by_p[i] = p[i] * (overlap + by_size + 2.0 * p[i] * by_squares);
                    }
                    for (k, sum) in self.sums.iter().enumerate() {
                        let factor = *self.factors.0.add((1 + k) * regions + region);
                        if factor != 0.0 {
                            lanes.add_slopes(sum, factor, &mut by_p, &mut direct);
                        }
                    }
                    let mut gradient = [0.0; LANES];
                    for i in 0..LANES {
                        gradient[i] = group.counts[i] * (by_p[i] * rest[i] + direct[i]);
                    }
                    let to = self.result.0.add(voxels.place(task, region, group));
                    std::ptr::copy_nonoverlapping(gradient.as_ptr(), to, group.count);
                }
            });
        }
    }
}

/// True positives, false positives and false negatives of each region, for each chunk.
pub(crate) struct RegionChunkCounts {
    pub(crate) of: RegionVoxels,
    /// The result, `[task][region][3]`.
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for RegionChunkCounts {
    fn tasks(&self) -> usize {
        self.of.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let voxels = &self.of.voxels;
        let rows = voxels.classes * 3;
        // SAFETY: each of `tasks` has `rows` counts, and the logits are of as many regions.
        unsafe {
            let counts = std::slice::from_raw_parts_mut(self.partial.0.add(task * rows), rows);
            counts.fill(0.0);
            voxels.for_each_group(task, |group| {
                for (region, counts) in counts.chunks_exact_mut(3).enumerate() {
                    let logits = voxels.logits(task, region, group);
                    let here = self.of.here(region, group);
                    for i in (0..group.count).filter(|i| group.counts[*i] > 0.0) {
                        match (logits[i] > 0.0, here[i]) {
                            (true, true) => counts[0] += 1.0,
                            (true, false) => counts[1] += 1.0,
                            (false, true) => counts[2] += 1.0,
                            (false, false) => {}
                        }
                    }
                }
            });
        }
    }
}
