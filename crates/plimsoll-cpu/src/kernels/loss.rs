//! Softmax over a few classes, and what losses and scores sum over voxels, sixteen voxels at a time.

use plimsoll_graph::ops::VoxelSum;

use super::voxel_loss::{ClassLanes, complements};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd, exp::exp};

/// Voxels of a chunk.
pub(crate) const CHUNK: usize = 8192;

/// Logits `[N][C][voxels]` and labels `[N][voxels]`.
#[derive(Clone, Copy)]
pub(crate) struct Voxels {
    pub(crate) logits: Ptr<f32>,
    pub(crate) labels: Ptr<u8>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
    pub(crate) ignore: Option<u8>,
}

/// Sixteen voxels: their labels, which count, and where they are.
pub(super) struct Group {
    pub(super) labels: [usize; LANES],
    /// 1 where the voxel counts, else 0.
    pub(super) counts: [f32; LANES],
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Voxels {
    pub(crate) fn chunks(&self) -> usize {
        self.voxels.div_ceil(CHUNK)
    }

    pub(crate) fn tasks(&self) -> usize {
        self.batch * self.chunks()
    }

    /// The sample of a task.
    pub(super) fn sample(&self, task: usize) -> usize {
        task / self.chunks()
    }

    /// Calls `visit(group)` for the voxels of a task.
    ///
    /// # Safety
    /// The labels must be written.
    #[inline(always)]
    pub(super) unsafe fn for_each_group(&self, task: usize, mut visit: impl FnMut(&Group)) {
        let chunk = task % self.chunks();
        let end = self.voxels.min((chunk + 1) * CHUNK);
        for first in (chunk * CHUNK..end).step_by(LANES) {
            let count = LANES.min(end - first);
            let mut group = Group { labels: [usize::MAX; LANES], counts: [0.0; LANES], first, count };
            for i in 0..count {
                // SAFETY: the voxel is one of the sample's.
                let label = unsafe { *self.labels.0.add(self.sample(task) * self.voxels + first + i) };
                if usize::from(label) < self.classes && self.ignore != Some(label) {
                    group.labels[i] = usize::from(label);
                    group.counts[i] = 1.0;
                }
            }
            visit(&group);
        }
    }

    /// Calls `visit(group)` for the voxels of a task, whatever their labels.
    #[inline(always)]
    pub(super) fn for_each_sixteen(&self, task: usize, mut visit: impl FnMut(&Group)) {
        let chunk = task % self.chunks();
        let end = self.voxels.min((chunk + 1) * CHUNK);
        for first in (chunk * CHUNK..end).step_by(LANES) {
            let count = LANES.min(end - first);
            visit(&Group { labels: [usize::MAX; LANES], counts: [1.0; LANES], first, count });
        }
    }

    /// The place of a class's first voxel of a group.
    pub(super) fn place(&self, task: usize, class: usize, group: &Group) -> usize {
        (self.sample(task) * self.classes + class) * self.voxels + group.first
    }

    /// The logits of a class.
    #[inline(always)]
    pub(super) unsafe fn logits(&self, task: usize, class: usize, group: &Group) -> [f32; LANES] {
        let mut logits = [0.0; LANES];
        // SAFETY: the group has `count` voxels of the sample.
        unsafe {
            let from = self.logits.0.add(self.place(task, class, group));
            std::ptr::copy_nonoverlapping(from, logits.as_mut_ptr(), group.count);
        }
        logits
    }

    /// Writes the softmax of a group to `p`, `[class][16]`; returns the largest logit and the sum of exponentials.
    #[inline(always)]
    pub(super) unsafe fn softmax(
        &self,
        task: usize,
        group: &Group,
        p: *mut f32,
    ) -> ([f32; LANES], [f32; LANES]) {
        let mut top = [f32::NEG_INFINITY; LANES];
        let mut sum = [0.0; LANES];
        // SAFETY: `p` has room for sixteen numbers per class.
        unsafe {
            for class in 0..self.classes {
                let logits = self.logits(task, class, group);
                for (top, logit) in top.iter_mut().zip(logits) {
                    *top = if logit > *top { logit } else { *top };
                }
            }
            for class in 0..self.classes {
                let mut x = self.logits(task, class, group);
                for (x, top) in x.iter_mut().zip(&top) {
                    *x -= top;
                }
                let e = exp(&x);
                for (sum, e) in sum.iter_mut().zip(&e) {
                    *sum += e;
                }
                std::ptr::copy_nonoverlapping(e.as_ptr(), p.add(class * LANES), LANES);
            }
            let mut factor = [0.0; LANES];
            for (factor, sum) in factor.iter_mut().zip(&sum) {
                *factor = 1.0 / sum;
            }
            for class in 0..self.classes {
                for (i, factor) in factor.iter().enumerate() {
                    *p.add(class * LANES + i) *= factor;
                }
            }
        }
        (top, sum)
    }
}

/// The sums of `SoftmaxStats` for each chunk.
pub(crate) struct ChunkSums {
    pub(crate) voxels: Voxels,
    pub(crate) squared: bool,
    /// Sums beyond the four that all losses need.
    pub(crate) extra: Vec<VoxelSum>,
    /// See [`ChunkSums::per_thread`].
    pub(crate) scratch: Ptr<f32>,
    /// `[task][class][4 + extra]`
    pub(crate) partial: Ptr<f64>,
}

impl ChunkSums {
    /// Floats of scratch per thread: `[class][16]` probabilities and `[class][4][16]` sums; where there are extra ones,
    /// `[class][16]` of 1 − p and `[extra][class][16]` sums.
    pub(crate) fn per_thread(classes: usize, extra: usize) -> usize {
        classes * (5 + if extra > 0 { 1 + extra } else { 0 }) * LANES
    }

    /// Adds the extra sums of a group.
    ///
    /// # Safety
    /// `p` and what follows are a thread's scratch, with the softmax of the group.
    #[inline(always)]
    unsafe fn add_extra(
        &self,
        task: usize,
        group: &Group,
        p: *mut f32,
        top: &[f32; LANES],
        total: &[f32; LANES],
    ) {
        let classes = self.voxels.classes;
        // SAFETY: passed on to the caller.
        unsafe {
            let rest = p.add(5 * classes * LANES);
            complements(classes, p, rest);
            for class in 0..classes {
                let lanes = |from: *mut f32| &*from.add(class * LANES).cast::<[f32; LANES]>();
                let here = ClassLanes {
                    class,
                    here: group.labels.map(|label| label == class),
                    p: lanes(p),
                    rest: lanes(rest),
                    logits: self.voxels.logits(task, class, group),
                    top,
                    total,
                };
                for (k, extra) in self.extra.iter().enumerate() {
                    let sums = rest.add(((1 + k) * classes + class) * LANES);
                    for (i, value) in here.value(extra).into_iter().enumerate() {
                        *sums.add(i) += group.counts[i] * value;
                    }
                }
            }
        }
    }
}

impl Kernel for ChunkSums {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let classes = self.voxels.classes;
        // SAFETY: each thread has scratch of its own; tasks write disjoint sums.
        unsafe {
            let extra = self.extra.len();
            let size = Self::per_thread(classes, extra);
            let p = self.scratch.0.add(thread * size);
            std::slice::from_raw_parts_mut(p, size).fill(0.0);
            let sums = std::slice::from_raw_parts_mut(p.add(classes * LANES), classes * 4 * LANES);
            self.voxels.for_each_group(task, |group| {
                let (top, total) = self.voxels.softmax(task, group, p);
                for class in 0..classes {
                    let p = &*p.add(class * LANES).cast::<[f32; LANES]>();
                    let sums = &mut sums[class * 4 * LANES..][..4 * LANES];
                    for i in 0..LANES {
                        let here = if group.labels[i] == class { 1.0 } else { 0.0 };
                        sums[i] += here * p[i];
                        sums[LANES + i] += group.counts[i] * if self.squared { p[i] * p[i] } else { p[i] };
                        sums[2 * LANES + i] += here;
                    }
                }
                for i in (0..group.count).filter(|i| group.counts[*i] > 0.0) {
                    let label = group.labels[i];
                    let logit = *self.voxels.logits.0.add(self.voxels.place(task, label, group) + i);
                    sums[(label * 4 + 3) * LANES + i] += total[i].ln() - (logit - top[i]);
                }
                if extra > 0 {
                    self.add_extra(task, group, p, &top, &total);
                }
            });
            for class in 0..classes {
                for row in 0..4 + extra {
                    let lanes = if row < 4 { classes + class * 4 + row } else { (row + 2) * classes + class };
                    let lanes = &*p.add(lanes * LANES).cast::<[f32; LANES]>();
                    let sum: f64 = lanes.iter().map(|x| f64::from(*x)).sum();
                    *self.partial.0.add((task * classes + class) * (4 + extra) + row) = sum;
                }
            }
        }
    }
}

/// Adds up the chunks of each sample: `[N][rows]` from `[N][chunk][rows]`.
///
/// # Safety
/// Both must have room; nobody else may touch the result.
pub(crate) unsafe fn add_chunks(
    partial: Ptr<f64>,
    result: Ptr<f32>,
    batch: usize,
    chunks: usize,
    rows: usize,
) {
    for sample in 0..batch {
        for row in 0..rows {
            // SAFETY: passed on to the caller.
            unsafe {
                let chunk = |chunk: usize| *partial.0.add((sample * chunks + chunk) * rows + row);
                let sum: f64 = (0..chunks).map(chunk).sum();
                *result.0.add(sample * rows + row) = sum as f32;
            }
        }
    }
}

/// The gradient of the logits, from the derivatives by the sums.
pub(crate) struct LogitGrad {
    pub(crate) voxels: Voxels,
    pub(crate) squared: bool,
    /// `[N][class][2]`: derivatives by Σpt and by the second sum, with all weights.
    pub(crate) slopes: Ptr<f32>,
    /// `[1]`: the factor of (p − t).
    pub(crate) cross_entropy: Ptr<f32>,
    /// Per thread `[class][16]` probabilities.
    pub(crate) scratch: Ptr<f32>,
    pub(crate) result: Ptr<f32>,
}

impl Kernel for LogitGrad {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let classes = self.voxels.classes;
        // SAFETY: each thread has scratch of its own. Tasks write disjoint voxels; where the result takes the place of the
        // logits, all classes of a group are read before the first is written.
        unsafe {
            let p = self.scratch.0.add(thread * classes * LANES);
            let slopes = self.slopes.0.add(self.voxels.sample(task) * classes * 2);
            let cross_entropy = *self.cross_entropy.0;
            self.voxels.for_each_group(task, |group| {
                self.voxels.softmax(task, group, p);
                let p = |class: usize| &*p.add(class * LANES).cast::<[f32; LANES]>();
                let by_p = |class: usize, i: usize| {
                    let overlap = if group.labels[i] == class { *slopes.add(class * 2) } else { 0.0 };
                    let size = *slopes.add(class * 2 + 1);
                    overlap + size * if self.squared { 2.0 * p(class)[i] } else { 1.0 }
                };
                let mut mean = [0.0; LANES];
                for class in 0..classes {
                    for (i, mean) in mean.iter_mut().enumerate() {
                        *mean += p(class)[i] * by_p(class, i);
                    }
                }
                for class in 0..classes {
                    let mut gradient = [0.0; LANES];
                    for (i, gradient) in gradient.iter_mut().enumerate() {
                        let here = if group.labels[i] == class { 1.0 } else { 0.0 };
                        let region = p(class)[i] * (by_p(class, i) - mean[i]);
                        *gradient = group.counts[i] * (region + cross_entropy * (p(class)[i] - here));
                    }
                    let to = self.result.0.add(self.voxels.place(task, class, group));
                    std::ptr::copy_nonoverlapping(gradient.as_ptr(), to, group.count);
                }
            });
        }
    }
}

/// True positives, false positives and false negatives of each class, for each chunk.
pub(crate) struct ChunkCounts {
    pub(crate) voxels: Voxels,
    /// `[task][class][3]`
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for ChunkCounts {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let rows = self.voxels.classes * 3;
        // SAFETY: tasks write disjoint counts.
        unsafe {
            let counts = std::slice::from_raw_parts_mut(self.partial.0.add(task * rows), rows);
            counts.fill(0.0);
            self.voxels.for_each_group(task, |group| {
                let mut top = self.voxels.logits(task, 0, group);
                let mut best = [0; LANES];
                for class in 1..self.voxels.classes {
                    let logits = self.voxels.logits(task, class, group);
                    for i in 0..LANES {
                        if logits[i] > top[i] {
                            (top[i], best[i]) = (logits[i], class);
                        }
                    }
                }
                for i in (0..group.count).filter(|i| group.counts[*i] > 0.0) {
                    let (label, best) = (group.labels[i], best[i]);
                    if label == best {
                        counts[3 * label] += 1.0;
                    } else {
                        counts[3 * best + 1] += 1.0;
                        counts[3 * label + 2] += 1.0;
                    }
                }
            });
        }
    }
}
