//! The difference of two soft boundaries, and its gradient.

use plimsoll_graph::Shape;
use plimsoll_parallel::each;

use super::super::voxels::Voxels;
use crate::kernel::{Kernel, Ptr};
use crate::simd::Simd;

/// The voxel itself and the six that share a face with it.
const NEIGHBOURS: usize = 7;

/// Probabilities and labels, as planes. The logits of `voxels` are not read.
#[derive(Clone, Copy)]
pub(crate) struct Boundaries {
    pub(crate) voxels: Voxels,
    /// `[sample][class − 1][voxel]`
    pub(crate) probabilities: Ptr<f32>,
    /// The extent of a sample, whose product is the number of voxels.
    pub(crate) extent: [usize; 3],
}

/// Encodes the index of the least neighbour of a voxel and the sign of the difference in one byte; 0 if there is no
/// slope.
fn code(least: usize, difference: f32) -> u8 {
    match difference {
        d if d > 0.0 => 1 + least as u8,
        d if d < 0.0 => 1 + (NEIGHBOURS + least) as u8,
        _ => 0,
    }
}

/// The slope that the voxel of a code gives to its neighbour `least`, or to itself as the middle: see [`code`].
fn sign(code: u8) -> f32 {
    match usize::from(code) {
        0 => 0.0,
        code if code <= NEIGHBOURS => 1.0,
        _ => -1.0,
    }
}

#[inline]
fn neighbour(code: u8) -> usize {
    (usize::from(code).max(1) - 1) % NEIGHBOURS
}

impl Boundaries {
    /// One task for each plane of each class of each sample.
    fn tasks(&self) -> usize {
        self.voxels.batch * (self.voxels.classes - 1) * self.extent[0]
    }

    /// The sample, the class, and the plane of a task.
    fn position(&self, task: usize) -> (usize, usize, usize) {
        let channel = task / self.extent[0];
        let foreground = self.voxels.classes - 1;
        (channel / foreground, 1 + channel % foreground, task % self.extent[0])
    }

    /// The neighbours of a voxel, in the order in which the least is searched: itself, then in memory order. Out of bounds
    /// it is the voxel itself.
    #[inline(always)]
    fn around(&self, [z, y, x]: [usize; 3]) -> [usize; NEIGHBOURS] {
        let [depth, height, width] = self.extent;
        let at = (z * height + y) * width + x;
        let step = |there: bool, from: usize| if there { from } else { at };
        [
            at,
            step(z > 0, at.wrapping_sub(height * width)),
            step(y > 0, at.wrapping_sub(width)),
            step(x > 0, at.wrapping_sub(1)),
            step(x + 1 < width, at + 1),
            step(y + 1 < height, at + width),
            step(z + 1 < depth, at + height * width),
        ]
    }

    /// Returns `true` if a label counts.
    #[inline(always)]
    fn counts(&self, label: u8) -> bool {
        usize::from(label) < self.voxels.classes && self.voxels.ignore != Some(label)
    }

    /// Calls `visit(voxel, whether it counts, least neighbour, b(p) − b(t))` for each voxel of a plane.
    ///
    /// # Safety
    /// `task < self.tasks()`; probabilities and labels are as the fields say, and initialised.
    #[inline(always)]
    unsafe fn for_each(&self, task: usize, mut visit: impl FnMut(usize, bool, usize, f32)) {
        let (sample, class, z) = self.position(task);
        let voxels = self.voxels.voxels;
        let channel = (sample * (self.voxels.classes - 1) + class - 1) * voxels;
        for y in 0..self.extent[1] {
            for x in 0..self.extent[2] {
                let around = self.around([z, y, x]);
                // SAFETY: the sample and the class are below theirs, since `task < tasks`, and `around` yields voxels of
                // the extent.
                let (p, label) = unsafe {
                    let labels = self.voxels.labels.0.add(sample * voxels);
                    let p = self.probabilities.0.add(channel);
                    (each(around, |at| *p.add(at)), each(around, |at| *labels.add(at)))
                };
                let value = |k: usize| if self.counts(label[k]) { p[k] } else { 0.0 };
                let target =
                    |k: usize| f32::from(u8::from(usize::from(label[k]) == class && self.counts(label[k])));
                let (mut least, mut lowest) = (0, value(0));
                let mut target_lowest = target(0);
                for k in 1..NEIGHBOURS {
                    if value(k) < lowest {
                        (least, lowest) = (k, value(k));
                    }
                    target_lowest = target_lowest.min(target(k));
                }
                let difference = value(0) - lowest - (target(0) - target_lowest);
                visit(around[0], self.counts(label[0]), least, difference);
            }
        }
    }
}

/// The sum of each plane of each class, and how many voxels count.
pub(crate) struct BoundarySums {
    pub(crate) boundaries: Boundaries,
    /// The result, `[task][2]`.
    pub(crate) partial: Ptr<f64>,
}

impl Boundaries {
    /// Numbers that [`BoundarySums`] writes for probabilities of a shape.
    pub(crate) fn partials(shape: &Shape) -> usize {
        2 * shape.batch() * shape.channels() * shape.dim(2)
    }
}

impl Kernel for BoundarySums {
    fn tasks(&self) -> usize {
        self.boundaries.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (mut sum, mut voxels) = (0.0f64, 0.0f64);
        let first = self.boundaries.position(task).1 == 1;
        // SAFETY: labels and probabilities are as the kernel's contract says, and each of `tasks` has two sums of its own.
        unsafe {
            self.boundaries.for_each(task, |_, counts, _, difference| {
                if counts {
                    sum += f64::from(difference.abs());
                    // A voxel counts once, not once for each class.
                    voxels += f64::from(u8::from(first));
                }
            });
            *self.partial.0.add(task * 2) = sum;
            *self.partial.0.add(task * 2 + 1) = voxels;
        }
    }
}

/// The sign of each voxel's difference, and the neighbour it goes through.
pub(crate) struct BoundaryCodes {
    pub(crate) boundaries: Boundaries,
    /// The result, like the probabilities.
    pub(crate) codes: Ptr<u8>,
}

impl Kernel for BoundaryCodes {
    fn tasks(&self) -> usize {
        self.boundaries.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let channel = task / self.boundaries.extent[0] * self.boundaries.voxels.voxels;
        // SAFETY: labels and probabilities are as the kernel's contract says; `at` is a voxel of the task's plane, and
        // tasks write disjoint planes.
        unsafe {
            self.boundaries.for_each(task, |at, counts, least, difference| {
                *self.codes.0.add(channel + at) = if counts { code(least, difference) } else { 0 };
            });
        }
    }
}

/// The gradient of the probabilities: of each voxel, its own slope and the slopes of voxels of which it is the least neighbour.
pub(crate) struct BoundaryGrad {
    pub(crate) boundaries: Boundaries,
    /// The codes of [`BoundaryCodes`], of the shape of the probabilities.
    pub(crate) codes: Ptr<u8>,
    /// `[1]`: the factor of all slopes.
    pub(crate) factor: Ptr<f32>,
    /// Like the probabilities, which are not read and which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for BoundaryGrad {
    fn tasks(&self) -> usize {
        self.boundaries.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (sample, _, z) = self.boundaries.position(task);
        let Voxels { voxels, labels, .. } = self.boundaries.voxels;
        let [_, height, width] = self.boundaries.extent;
        let channel = task / self.boundaries.extent[0] * voxels;
        for y in 0..height {
            for x in 0..width {
                let around = self.boundaries.around([z, y, x]);
                let mut slope = 0.0;
                // SAFETY: `around` yields voxels of the extent, and the channel and the sample are below theirs, since
                // `task < tasks`; tasks write disjoint planes.
                unsafe {
                    let own = *self.codes.0.add(channel + around[0]);
                    if neighbour(own) != 0 {
                        slope += sign(own);
                    }
                    for k in (1..NEIGHBOURS).filter(|k| around[*k] != around[0]) {
                        let code = *self.codes.0.add(channel + around[k]);
                        // Seen from the neighbour this voxel is on the opposite side.
                        if code != 0 && neighbour(code) == NEIGHBOURS - k {
                            slope -= sign(code);
                        }
                    }
                    let counts = self.boundaries.counts(*labels.0.add(sample * voxels + around[0]));
                    let slope = if counts { slope * *self.factor.0 } else { 0.0 };
                    *self.result.0.add(channel + around[0]) = slope;
                }
            }
        }
    }
}
