//! Logits and labels, sixteen voxels at a time, and their softmax over a few classes.

use plimsoll_graph::Shape;
use plimsoll_parallel::pairs;

use crate::kernel::Ptr;
use crate::simd::{LANES, exp::exp};

/// Voxels of a chunk.
pub(crate) const CHUNK: usize = 8192;

/// Logits and labels. Any label may be stored: a voxel whose label is not known, or ignored, does not count.
#[derive(Clone, Copy)]
pub(crate) struct Voxels {
    /// `[sample][class][voxel]`
    pub(crate) logits: Ptr<f32>,
    /// `[sample][voxel]`
    pub(crate) labels: Ptr<u8>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    /// Labels below it are known: the classes, but of logits of regions, in which voxels with some labels are.
    pub(crate) known: usize,
    pub(crate) voxels: usize,
    pub(crate) ignore: Option<u8>,
}

/// At most sixteen voxels of a sample: their labels, which count, and where they are. `first + count <= voxels`.
pub(crate) struct Group {
    /// A known label where the voxel counts, else `usize::MAX`.
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

    /// The tasks of voxels of a shape `[N, …, D, H, W]`.
    pub(crate) fn tasks_of(shape: &Shape) -> usize {
        shape.batch() * shape.voxels().div_ceil(CHUNK)
    }

    /// The sample of a task.
    pub(super) fn sample(&self, task: usize) -> usize {
        task / self.chunks()
    }

    /// Calls `visit(group)` for the voxels of a task.
    ///
    /// # Safety
    /// `task < self.tasks()`; the labels are as the field says, and initialised.
    #[inline(always)]
    pub(super) unsafe fn for_each_group(&self, task: usize, mut visit: impl FnMut(&Group)) {
        let chunk = task % self.chunks();
        let end = self.voxels.min((chunk + 1) * CHUNK);
        // `step_by` would take the first step by itself, with a second copy of what is called.
        let mut first = chunk * CHUNK;
        while first < end {
            let count = LANES.min(end - first);
            let mut group = Group { labels: [usize::MAX; LANES], counts: [0.0; LANES], first, count };
            for i in 0..count {
                // SAFETY: the sample is below `batch`, since `task < tasks`, and `first + i < end <= voxels`.
                let label = unsafe { *self.labels.0.add(self.sample(task) * self.voxels + first + i) };
                if usize::from(label) < self.known && self.ignore != Some(label) {
                    group.labels[i] = usize::from(label);
                    group.counts[i] = 1.0;
                }
            }
            visit(&group);
            first += LANES;
        }
    }

    /// Calls `visit(group)` for the voxels of a task, whatever their labels.
    #[inline(always)]
    pub(super) fn for_each_sixteen(&self, task: usize, mut visit: impl FnMut(&Group)) {
        let chunk = task % self.chunks();
        let end = self.voxels.min((chunk + 1) * CHUNK);
        let mut first = chunk * CHUNK;
        while first < end {
            let count = LANES.min(end - first);
            visit(&Group { labels: [usize::MAX; LANES], counts: [1.0; LANES], first, count });
            first += LANES;
        }
    }

    /// The place of a class's first voxel of a group.
    pub(super) fn place(&self, task: usize, class: usize, group: &Group) -> usize {
        (self.sample(task) * self.classes + class) * self.voxels + group.first
    }

    /// The logits of a class, and zeroes behind the last voxel.
    ///
    /// # Safety
    /// `task < self.tasks()` and `class < self.classes`; the logits are as the field says, and initialised.
    #[inline(always)]
    pub(super) unsafe fn logits(&self, task: usize, class: usize, group: &Group) -> [f32; LANES] {
        let mut logits = [0.0; LANES];
        // SAFETY: a group has `count` voxels of the sample from `first` on, and no more than sixteen.
        unsafe {
            let from = self.logits.0.add(self.place(task, class, group));
            std::ptr::copy_nonoverlapping(from, logits.as_mut_ptr(), group.count);
        }
        logits
    }

    /// Writes the softmax of a group to `p`, `[class][16]`; returns the largest logit and the sum of exponentials.
    ///
    /// # Safety
    /// `task < self.tasks()`; the logits are as the field says, and initialised; `p` is aligned and valid for reads and
    /// writes of `classes` · 16 floats, which are not the logits.
    #[inline(always)]
    pub(super) unsafe fn softmax(
        &self,
        task: usize,
        group: &Group,
        p: *mut f32,
    ) -> ([f32; LANES], [f32; LANES]) {
        let mut top = [f32::NEG_INFINITY; LANES];
        let mut sum = [0.0; LANES];
        // SAFETY: `class < classes`, for each of which `p` has sixteen floats, as this function's contract says.
        unsafe {
            for class in 0..self.classes {
                let logits = self.logits(task, class, group);
                for (top, logit) in pairs(top.iter_mut(), logits) {
                    *top = if logit > *top { logit } else { *top };
                }
            }
            for class in 0..self.classes {
                let mut x = self.logits(task, class, group);
                for (x, top) in pairs(x.iter_mut(), &top) {
                    *x -= top;
                }
                let e = exp(&x);
                for (sum, e) in pairs(sum.iter_mut(), &e) {
                    *sum += e;
                }
                std::ptr::copy_nonoverlapping(e.as_ptr(), p.add(class * LANES), LANES);
            }
            let mut factor = [0.0; LANES];
            for (factor, sum) in pairs(factor.iter_mut(), &sum) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_are_no_class_do_not_count() {
        let mut labels: Vec<u8> = (0..=u8::MAX).chain([0, 1, 2]).collect();
        let voxels = Voxels {
            logits: Ptr(std::ptr::null_mut()),
            labels: Ptr(labels.as_mut_ptr()),
            batch: 1,
            classes: 3,
            known: 3,
            voxels: labels.len(),
            ignore: Some(1),
        };
        let mut counted = Vec::new();
        // SAFETY: there is one task, and as many labels as voxels; logits are not read.
        unsafe {
            voxels.for_each_group(0, |group| {
                for (label, counts) in group.labels.iter().zip(group.counts) {
                    assert_eq!(counts == 1.0, *label < 3, "a label that indexes a table is a class");
                    counted.extend((counts == 1.0).then_some(*label));
                }
            });
        }
        assert_eq!(counted, [0, 2, 0, 2]);
    }
}
