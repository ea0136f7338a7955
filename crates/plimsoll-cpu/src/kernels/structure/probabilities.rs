//! The softmax without the background, and its gradient, sixteen voxels at a time.

use super::super::voxel_loss::complements;
use super::super::voxels::Voxels;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// The softmax of logits; their labels are not read.
pub(crate) struct Foreground {
    pub(crate) voxels: Voxels,
    /// Per thread: `[class][16]`.
    pub(crate) scratch: Ptr<f32>,
    /// `[sample][class − 1][voxel]`
    pub(crate) result: Ptr<f32>,
}

impl Kernel for Foreground {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let Voxels { classes, voxels, .. } = self.voxels;
        // SAFETY: scratch has a part for `thread`, and the sample is below `batch`, since `task < tasks`. A group has
        // `count` voxels of the sample, and each task writes its own.
        unsafe {
            let p = self.scratch.0.add(thread * classes * LANES);
            let sample = self.result.0.add(self.voxels.sample(task) * (classes - 1) * voxels);
            self.voxels.for_each_sixteen(task, |group| {
                self.voxels.softmax(task, group, p);
                for class in 1..classes {
                    let to = sample.add((class - 1) * voxels + group.first);
                    std::ptr::copy_nonoverlapping(p.add(class * LANES), to, group.count);
                }
            });
        }
    }
}

/// The gradient of the logits, from the gradient of the probabilities.
pub(crate) struct ForegroundGrad {
    pub(crate) voxels: Voxels,
    /// The gradient of the probabilities, `[sample][class − 1][voxel]`.
    pub(crate) upstream: Ptr<f32>,
    /// Per thread: [`ForegroundGrad::per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
    /// Like the logits, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl ForegroundGrad {
    /// Floats of scratch per thread: `[class][16]` of p, of 1 − p, and of p times its gradient.
    pub(crate) fn per_thread(classes: usize) -> usize {
        3 * classes * LANES
    }
}

impl Kernel for ForegroundGrad {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let Voxels { classes, voxels, .. } = self.voxels;
        let size = classes * LANES;
        // SAFETY: scratch has a part for `thread`, `[3][class][16]`; classes are below `classes`, and the sample below
        // `batch`, since `task < tasks`. Tasks write disjoint voxels; where the result aliases the logits, all classes of a
        // group are read before the first is written.
        unsafe {
            let p = self.scratch.0.add(thread * Self::per_thread(classes));
            let rest = p.add(size);
            let terms = std::slice::from_raw_parts_mut(p.add(2 * size), size);
            let sample = self.upstream.0.add(self.voxels.sample(task) * (classes - 1) * voxels);
            self.voxels.for_each_sixteen(task, |group| {
                self.voxels.softmax(task, group, p);
                complements(classes, p, rest);
                let p = |class: usize| &*p.add(class * LANES).cast::<[f32; LANES]>();
                let rest = |class: usize| &*rest.add(class * LANES).cast::<[f32; LANES]>();
                terms[..LANES].fill(0.0);
                for class in 1..classes {
                    let mut slopes = [0.0; LANES];
                    let from = sample.add((class - 1) * voxels + group.first);
                    std::ptr::copy_nonoverlapping(from, slopes.as_mut_ptr(), group.count);
                    for i in 0..LANES {
                        terms[class * LANES + i] = p(class)[i] * slopes[i];
                    }
                }
                for class in 0..classes {
                    // Others are summed apart, so that nothing cancels where p is nearly 1.
                    let mut others = [0.0; LANES];
                    for other in (0..classes).filter(|other| *other != class) {
                        for i in 0..LANES {
                            others[i] += terms[other * LANES + i];
                        }
                    }
                    let mut gradient = [0.0; LANES];
                    for i in 0..LANES {
                        gradient[i] = terms[class * LANES + i] * rest(class)[i] - p(class)[i] * others[i];
                    }
                    let to = self.result.0.add(self.voxels.place(task, class, group));
                    std::ptr::copy_nonoverlapping(gradient.as_ptr(), to, group.count);
                }
            });
        }
    }
}
