//! Logits being summed, for only as many planes as windows still touch.
//!
//! Windows are taken in the order of their place along one axis. When all that begin at one place are done, the planes before
//! the next place will not change any more; they are normalised, handed on, and their memory is used again. So what is held is
//! classes × (a window and a plane), not classes × the volume.

use plimsoll_memory::{Budget, MapError, Mapped};

/// The shape of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Channels of the logits.
    pub classes: usize,
    /// The extent of the grid that windows stand on.
    pub grid: [usize; 3],
    /// The axis along which planes pass through the ring.
    pub axis: usize,
    /// Whether they pass from the end of the axis to its beginning.
    pub reversed: bool,
    /// The extent of a window.
    pub window: [usize; 3],
}

impl RingShape {
    /// The two axes of a plane.
    pub fn plane_axes(&self) -> [usize; 2] {
        match self.axis {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        }
    }

    /// Voxels of a plane.
    pub fn plane(&self) -> usize {
        let [first, second] = self.plane_axes().map(|axis| self.grid[axis]);
        first.saturating_mul(second)
    }

    /// Planes held: those of a window, and the last one that is finished.
    fn planes(&self) -> usize {
        self.window[self.axis] + 1
    }

    /// Numbers held: logits and a weight for each voxel. More than can be counted are refused when they are reserved.
    fn count(&self) -> usize {
        self.planes().saturating_mul(self.plane()).saturating_mul(self.classes + 1)
    }

    /// Bytes that a ring of this shape reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(&self) -> Result<plimsoll_memory::Bytes, MapError> {
        Mapped::<f32>::bytes(self.count())
    }

    /// The place in the order of passing of a place along the axis.
    fn turn(&self, place: usize) -> usize {
        if self.reversed { self.grid[self.axis] - 1 - place } else { place }
    }
}

/// Sums of weighted logits, and of the weights.
pub struct Ring {
    shape: RingShape,
    /// `[plane][class, then weight][voxel of the plane]`
    sums: Mapped<f32>,
    /// Planes before this one, in the order of passing, are finished.
    finished: usize,
}

impl Ring {
    /// An empty ring, reserved from a budget.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub fn new(shape: RingShape, budget: &Budget) -> Result<Ring, MapError> {
        let sums = Mapped::zeroed(budget, "logits of the windows being summed", shape.count())?;
        Ok(Ring { shape, sums, finished: 0 })
    }

    fn slot(&self, plane: usize) -> usize {
        plane % self.shape.planes() * self.shape.plane() * (self.shape.classes + 1)
    }

    /// Adds the logits `[class][d][h][w]` of a window at `start`, weighted by `weights` along each axis.
    pub fn add(&mut self, start: [usize; 3], logits: &[f32], weights: &[Vec<f32>; 3]) {
        let shape = self.shape;
        let [first, second] = shape.plane_axes();
        let [depth, height, width] = shape.window;
        let voxels = depth * height * width;
        for d in 0..depth {
            for h in 0..height {
                let row = (d * height + h) * width;
                for w in 0..width {
                    let at = [d, h, w];
                    let place = |axis: usize| start[axis] + at[axis];
                    let weight = weights[0][d] * weights[1][h] * weights[2][w];
                    let slot = self.slot(shape.turn(place(shape.axis)));
                    let voxel = place(first) * shape.grid[second] + place(second);
                    let to = &mut self.sums[slot + voxel..];
                    for class in 0..shape.classes {
                        to[class * shape.plane()] += weight * logits[class * voxels + row + w];
                    }
                    to[shape.classes * shape.plane()] += weight;
                }
            }
        }
    }

    /// Says that no window will touch the planes before `plane` (in the order of passing) any more: divides their sums by
    /// their weights.
    pub fn finish_before(&mut self, plane: usize) {
        let (voxels, classes) = (self.shape.plane(), self.shape.classes);
        for done in self.finished..plane {
            let slot = self.slot(done);
            let (logits, weights) =
                self.sums[slot..slot + voxels * (classes + 1)].split_at_mut(classes * voxels);
            for class in logits.chunks_exact_mut(voxels) {
                for (logit, weight) in class.iter_mut().zip(weights.iter()) {
                    *logit /= weight;
                }
            }
        }
        self.finished = self.finished.max(plane);
    }

    /// The finished logits `[class][voxel of the plane]` of one of the last planes.
    pub fn plane(&self, plane: usize) -> &[f32] {
        let slot = self.slot(plane);
        &self.sums[slot..slot + self.shape.plane() * self.shape.classes]
    }

    /// Gives the memory of planes back to the ring, except that of the last finished one, which neighbours are interpolated
    /// with: those up to `before` will be asked for no more.
    pub fn clear_before(&mut self, from: usize, before: usize) {
        let length = self.shape.plane() * (self.shape.classes + 1);
        for plane in from..before {
            let slot = self.slot(plane);
            self.sums[slot..slot + length].fill(0.0);
        }
    }
}
