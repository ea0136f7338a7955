//! Terms of probabilities and distances: their sum, and their gradient.

use plimsoll_graph::ops::{DistanceTerm, SurfaceForm};
use plimsoll_parallel::each;

use super::super::voxels::{Group, Voxels};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

type LaneArray = [f32; LANES];

/// Probabilities, labels and distances. The logits of `voxels` are not read.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) voxels: Voxels,
    pub(crate) term: DistanceTerm,
    /// `[sample][class − 1][voxel]`
    pub(crate) probabilities: Ptr<f32>,
    /// The distances to the target, of the same shape.
    pub(crate) target: Ptr<f32>,
    /// The distances to the prediction, of the same shape; those to the target if the term does not use them.
    pub(crate) predicted: Ptr<f32>,
}

fn finite(distance: f32) -> f32 {
    if distance.is_finite() { distance } else { 0.0 }
}

/// |x|^α of what is finite.
#[inline(always)]
fn power(distance: f32, alpha: f32) -> f32 {
    let distance = finite(distance).abs();
    if alpha == 2.0 { distance * distance } else { distance.powf(alpha) }
}

impl Field {
    fn place(&self, task: usize, class: usize, group: &Group) -> usize {
        let Voxels { classes, voxels, .. } = self.voxels;
        (self.voxels.sample(task) * (classes - 1) + class - 1) * voxels + group.first
    }

    /// Calls `visit(place, p, t, Dₜ, Dₚ)` for each foreground class.
    ///
    /// # Safety
    /// `task < self.voxels.tasks()`; the three volumes are as the fields say, and initialised.
    #[inline(always)]
    unsafe fn classes(
        &self,
        task: usize,
        group: &Group,
        mut visit: impl FnMut(usize, &LaneArray, &LaneArray, &LaneArray, &LaneArray),
    ) {
        for class in 1..self.voxels.classes {
            let place = self.place(task, class, group);
            let read = |from: Ptr<f32>| {
                let mut lanes = [0.0; LANES];
                // SAFETY: the sample and the class are below theirs, and a group has `count` voxels of them, at most
                // sixteen.
                unsafe { std::ptr::copy_nonoverlapping(from.0.add(place), lanes.as_mut_ptr(), group.count) };
                lanes
            };
            let t = each(group.labels, |label| f32::from(u8::from(label == class)));
            visit(place, &read(self.probabilities), &t, &read(self.target), &read(self.predicted));
        }
    }

    #[inline(always)]
    fn value(&self, p: f32, t: f32, target: f32, predicted: f32) -> f32 {
        match self.term {
            DistanceTerm::Boundary => finite(target) * p,
            DistanceTerm::Hausdorff { alpha, .. } => {
                (p - t) * (p - t) * (power(predicted, alpha) + power(target, alpha))
            }
            DistanceTerm::Surface { tolerance, form } => {
                let bounded = |distance: f32| (distance.max(0.0) / tolerance).min(1.0);
                match form {
                    SurfaceForm::Symmetric => bounded(target) * p + bounded(predicted) * t * (1.0 - p),
                    SurfaceForm::AsPublished => bounded(target) * (1.0 - p) + bounded(predicted) * t,
                }
            }
        }
    }

    #[inline(always)]
    fn slope(&self, p: f32, t: f32, target: f32, predicted: f32) -> f32 {
        match self.term {
            DistanceTerm::Boundary => finite(target),
            DistanceTerm::Hausdorff { alpha, .. } => {
                2.0 * (p - t) * (power(predicted, alpha) + power(target, alpha))
            }
            DistanceTerm::Surface { tolerance, form } => {
                let bounded = |distance: f32| (distance.max(0.0) / tolerance).min(1.0);
                match form {
                    SurfaceForm::Symmetric => bounded(target) - bounded(predicted) * t,
                    SurfaceForm::AsPublished => -bounded(target),
                }
            }
        }
    }
}

/// The sum of each chunk, and how many of its voxels count.
pub(crate) struct FieldSums {
    pub(crate) field: Field,
    /// `[task][2]`
    pub(crate) partial: Ptr<f64>,
}

impl Kernel for FieldSums {
    fn tasks(&self) -> usize {
        self.field.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let mut sums = [0.0f64; LANES];
        let mut voxels = 0.0;
        // SAFETY: labels and volumes are as the kernel's contract says, and each of `tasks` has two sums of its own.
        unsafe {
            self.field.voxels.for_each_group(task, |group| {
                voxels += f64::from(group.counts.iter().sum::<f32>());
                self.field.classes(task, group, |_, p, t, target, predicted| {
                    for i in 0..LANES {
                        let value = self.field.value(p[i], t[i], target[i], predicted[i]);
                        sums[i] += f64::from(group.counts[i] * value);
                    }
                });
            });
            *self.partial.0.add(task * 2) = sums.iter().sum();
            *self.partial.0.add(task * 2 + 1) = voxels;
        }
    }
}

/// The gradient of the probabilities.
pub(crate) struct FieldGrad {
    pub(crate) field: Field,
    /// `[1]`: the factor of all slopes.
    pub(crate) factor: Ptr<f32>,
    /// `[sample][class − 1][voxel]`, which may alias one of the volumes.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for FieldGrad {
    fn tasks(&self) -> usize {
        self.field.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: labels and volumes are as the kernel's contract says; a group has `count` voxels of the class at `place`.
        // Tasks write disjoint voxels, each after it is read.
        unsafe {
            let factor = *self.factor.0;
            self.field.voxels.for_each_group(task, |group| {
                self.field.classes(task, group, |place, p, t, target, predicted| {
                    let mut gradient = [0.0; LANES];
                    for i in 0..LANES {
                        let slope = self.field.slope(p[i], t[i], target[i], predicted[i]);
                        gradient[i] = group.counts[i] * factor * slope;
                    }
                    std::ptr::copy_nonoverlapping(gradient.as_ptr(), self.result.0.add(place), group.count);
                });
            });
        }
    }
}
