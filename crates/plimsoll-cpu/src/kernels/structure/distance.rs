//! Masks of what is predicted, and distances to them.

use plimsoll_morphology::{Distance, EdtOptions, edt, scratch_bytes};

use super::super::voxels::Voxels;
use crate::kernel::{Kernel, Ptr};
use crate::simd::Simd;

/// Distances to the predicted mask of each class of each sample. The logits of `voxels` are not read.
pub(crate) struct Distances {
    pub(crate) voxels: Voxels,
    /// `[sample][class − 1][voxel]`
    pub(crate) probabilities: Ptr<f32>,
    /// The extent of a sample, whose product is the number of voxels.
    pub(crate) extent: [usize; 3],
    pub(crate) spacing: [f64; 3],
    pub(crate) signed: bool,
    /// [`Distances::per_task`] bytes for each of [`Distances::at_once`] tasks.
    pub(crate) scratch: Ptr<u8>,
    pub(crate) threads: usize,
    /// Like the probabilities.
    pub(crate) result: Ptr<f32>,
}

/// From outside a mask to it, or from both sides to the other.
fn options(signed: bool) -> EdtOptions {
    EdtOptions { distance: if signed { Distance::Signed } else { Distance::ToBackground }, squared: false }
}

impl Distances {
    /// The number of tasks that may run at a time.
    pub(crate) fn at_once(tasks: usize, threads: usize) -> usize {
        tasks.min(threads)
    }

    /// Bytes of scratch of a task: a mask, and what the transform takes.
    #[inline]
    pub(crate) fn per_task(extent: [usize; 3], signed: bool) -> usize {
        extent.iter().product::<usize>() + scratch_bytes(extent, &options(signed), 1)
    }
}

impl Kernel for Distances {
    fn tasks(&self) -> usize {
        self.voxels.batch * (self.voxels.classes - 1)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let Voxels { classes, voxels, labels, ignore, .. } = self.voxels;
        let size = Self::per_task(self.extent, self.signed);
        // With as many threads as tasks, or more, each task has scratch of its own; else each thread has.
        let place = if self.tasks() <= self.threads { task } else { thread };
        // SAFETY: `place` is below `at_once`, whether it is a task or a thread, and no two tasks that run at a time have
        // the same. `task` is a class of a sample, whose voxels and whose sample's labels are read and whose distances are
        // written.
        let (scratch, p, labels, result) = unsafe {
            (
                std::slice::from_raw_parts_mut(self.scratch.0.add(place * size), size),
                std::slice::from_raw_parts(self.probabilities.0.add(task * voxels), voxels),
                std::slice::from_raw_parts(labels.0.add(task / (classes - 1) * voxels), voxels),
                std::slice::from_raw_parts_mut(self.result.0.add(task * voxels), voxels),
            )
        };
        let (mask, scratch) = scratch.split_at_mut(voxels);
        for ((mask, p), label) in mask.iter_mut().zip(p).zip(labels) {
            let counts = usize::from(*label) < classes && ignore != Some(*label);
            // A transform goes from what is in a mask to what is not.
            *mask = u8::from((*p > 0.5 && counts) == self.signed);
        }
        let done = edt::<u8>(mask, self.extent, self.spacing, &options(self.signed), result, scratch, 1);
        assert!(done.is_ok(), "the spacing and the sizes were checked when the node was planned");
    }
}
