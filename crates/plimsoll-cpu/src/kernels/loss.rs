//! The sums over voxels of losses and scores, and the gradient of plain losses, sixteen voxels at a time.

use plimsoll_graph::ops::VoxelSum;
use plimsoll_parallel::each;

use super::voxel_loss::{ClassLanes, complements};
use super::voxels::{Group, Voxels};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// The sums of `SoftmaxStats` for each chunk.
pub(crate) struct ChunkSums {
    pub(crate) voxels: Voxels,
    pub(crate) squared: bool,
    /// Sums beyond the four that all losses need.
    pub(crate) extra: Vec<VoxelSum>,
    /// Per thread: [`ChunkSums::per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
    /// The result, `[task][class][4 + extra]`.
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
    /// [`Kernel::task`]'s contract for this kernel, which has extra sums; `p` is a thread's scratch, with the softmax
    /// of the group.
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
        // SAFETY: scratch is `[6 + extra][class][16]`, of which p is the first, 1 − p the sixth and the extra sums the
        // rest; `class` and `k` are below those extents, and no two of these overlap.
        unsafe {
            let rest = p.add(5 * classes * LANES);
            complements(classes, p, rest);
            for class in 0..classes {
                let lanes = |from: *mut f32| &*from.add(class * LANES).cast::<[f32; LANES]>();
                let here = ClassLanes {
                    class,
                    here: each(group.labels, |label| label == class),
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
        // SAFETY: scratch has a part for `thread`: `[class][16]`, then `[class][4][16]`, then as `add_extra` says. Labels
        // of voxels that count are below `classes`. Tasks write disjoint sums.
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

/// The extents of a table of partial sums, `[batch][chunks][rows]`.
#[derive(Clone, Copy)]
pub(crate) struct ChunkTable {
    pub(crate) batch: usize,
    pub(crate) chunks: usize,
    pub(crate) rows: usize,
}

/// Adds up the chunks of each sample, in order: `[batch][rows]` from `[batch][chunks][rows]`. `round` converts a sum to the
/// type of the result.
///
/// # Safety
/// Both are aligned; `partial` is valid for reads of batch · chunks · rows numbers, which are initialised, and `result` for
/// writes of batch · rows. Nobody else touches the result.
pub(crate) unsafe fn add_chunks<R>(
    partial: Ptr<f64>,
    result: Ptr<R>,
    ChunkTable { batch, chunks, rows }: ChunkTable,
    round: impl Fn(f64) -> R,
) {
    for sample in 0..batch {
        for row in 0..rows {
            // SAFETY: `sample < batch`, `chunk < chunks` and `row < rows`, so places are as this function's contract says.
            unsafe {
                let chunk = |chunk: usize| *partial.0.add((sample * chunks + chunk) * rows + row);
                let sum: f64 = (0..chunks).map(chunk).sum();
                *result.0.add(sample * rows + row) = round(sum);
            }
        }
    }
}

/// The gradient of the logits, from the derivatives by the sums.
pub(crate) struct LogitGrad {
    pub(crate) voxels: Voxels,
    pub(crate) squared: bool,
    /// `[sample][class][2]`: derivatives by Σpt and by the second sum, with all weights.
    pub(crate) slopes: Ptr<f32>,
    /// `[1]`: the factor of (p − t).
    pub(crate) cross_entropy: Ptr<f32>,
    /// Per thread `[class][16]` probabilities.
    pub(crate) scratch: Ptr<f32>,
    /// Like the logits, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for LogitGrad {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let classes = self.voxels.classes;
        // SAFETY: scratch has a part for `thread`, `class < classes`, and the sample is below `batch`, since `task <
        // tasks`. Tasks write disjoint voxels; where the result aliases the logits, all classes of a group are read before
        // the first is written.
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
    /// The result, `[task][class][3]`.
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for ChunkCounts {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let rows = self.voxels.classes * 3;
        // SAFETY: each of `tasks` has `rows` counts; labels and classes are checked when they index these.
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
