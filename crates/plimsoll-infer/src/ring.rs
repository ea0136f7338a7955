//! Logits being summed, for only as many planes as windows still touch.
//!
//! Windows are taken in the order of their place along one axis. When all that begin at one place are done, the planes before
//! the next place will not change any more; they are normalised, handed on, and their memory is used again. So what is held is
//! classes × (a window and a plane), not classes × the volume.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::workers::share;

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
    pub fn bytes(&self) -> Result<Bytes, MapError> {
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

    /// Numbers of a plane.
    fn slot_length(&self) -> usize {
        self.shape.plane() * (self.shape.classes + 1)
    }

    fn slot(&self, plane: usize) -> usize {
        plane % self.shape.planes() * self.slot_length()
    }

    /// The memory of the planes from one to another (in the order of passing), which are no more than the ring holds, with their numbers;
    /// in the order in which they lie.
    fn slots(&mut self, from: usize, to: usize) -> impl Iterator<Item = (usize, &mut [f32])> + Send {
        let (planes, length) = (self.shape.planes(), self.slot_length());
        let slots = self.sums.chunks_exact_mut(length).enumerate();
        slots.filter_map(move |(slot, sums)| {
            // The first plane from `from` on that lies here.
            let plane = from + (slot + planes - from % planes) % planes;
            (plane < to).then_some((plane, sums))
        })
    }

    /// Adds the logits `[class][d][h][w]` of a window at `start`, mirrored along some axes, weighted by `weights` along each axis.
    /// `read` copies as many logits as there is room for, from one on. Returns whether all can be summed; if not, some may be missing.
    ///
    /// # Errors
    /// If `read` fails.
    pub(crate) fn add<E: Send>(
        &mut self,
        window: &WindowLogits<'_>,
        rooms: &mut [Room<E>],
        read: impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<bool, E> {
        let shape = self.shape;
        let (first, extent) = (window.start[shape.axis], shape.window[shape.axis]);
        let from = if shape.reversed { shape.turn(first + extent - 1) } else { first };
        // Along the last axis a row of logits has a number for each plane, so that several are filled at a time.
        let together = if shape.axis == 2 { PLANES_TOGETHER } else { 1 };
        let mut slots = self.slots(from, from + extent).map(|(turn, sums)| {
            // Turning twice is nothing.
            (shape.turn(turn) - first, sums)
        });
        let groups = std::iter::from_fn(move || {
            let group: Vec<(usize, &mut [f32])> = slots.by_ref().take(together).collect();
            (!group.is_empty()).then_some(group)
        });
        rooms.iter_mut().for_each(|room| room.outcome = Ok(true));
        share(groups, rooms, |mut planes, room| {
            if let Ok(true) = room.outcome {
                room.outcome = window.add_to(&shape, &mut planes, &mut room.rows, &read);
            }
        });
        let mut all = true;
        for room in rooms {
            all &= std::mem::replace(&mut room.outcome, Ok(true))?;
        }
        Ok(all)
    }

    /// Says that no window will touch the planes before `plane` (in the order of passing) any more: divides their sums by
    /// their weights.
    pub fn finish_before<S: Send>(&mut self, plane: usize, threads: &mut [S]) {
        let (from, classes) = (self.finished, self.shape.classes);
        let voxels = self.shape.plane();
        share(self.slots(from, plane.max(from)), threads, |(_, sums), _| {
            let (logits, weights) = sums.split_at_mut(classes * voxels);
            for class in logits.chunks_exact_mut(voxels) {
                for (logit, weight) in class.iter_mut().zip(weights.iter()) {
                    *logit /= weight;
                }
            }
        });
        self.finished = self.finished.max(plane);
    }

    /// The finished logits `[class][voxel of the plane]` of one of the last planes.
    pub fn plane(&self, plane: usize) -> &[f32] {
        let slot = self.slot(plane);
        &self.sums[slot..slot + self.shape.plane() * self.shape.classes]
    }

    /// Gives the memory of planes back to the ring, except that of the last finished one, which neighbours are interpolated
    /// with: those up to `before` will be asked for no more.
    pub fn clear_before<S: Send>(&mut self, from: usize, before: usize, threads: &mut [S]) {
        share(self.slots(from, before.max(from)), threads, |(_, sums), _| sums.fill(0.0));
    }
}

/// Planes that are filled at a time where each has one number of a row of logits.
const PLANES_TOGETHER: usize = 16;

/// What a thread that sums logits has.
pub(crate) struct Room<E> {
    /// Rows of one class and depth of a window.
    rows: Mapped<f32>,
    outcome: Result<bool, E>,
}

impl<E> Room<E> {
    /// Reserves that of a thread for windows of an extent.
    pub(crate) fn new(window: [usize; 3], budget: &Budget) -> Result<Room<E>, MapError> {
        let rows = Mapped::zeroed(budget, "logits of the windows being summed", window[1] * window[2])?;
        Ok(Room { rows, outcome: Ok(true) })
    }
}

/// Where the logits of a window belong, and what they weigh.
pub(crate) struct WindowLogits<'a> {
    pub(crate) start: [usize; 3],
    /// Along which axes the window was mirrored.
    pub(crate) mirrored: [bool; 3],
    pub(crate) weights: &'a [Vec<f32>; 3],
}

impl WindowLogits<'_> {
    /// Adds what belongs to some planes, one at least, which are given with their places in the window. Returns whether all can be summed.
    fn add_to<E>(
        &self,
        shape: &RingShape,
        planes: &mut [(usize, &mut [f32])],
        rows: &mut [f32],
        read: impl Fn(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let [depth, height, width] = shape.window;
        let voxels = depth * height * width;
        let [along, down, across] = self.weights;
        let place = planes[0].0;
        // Along the axis of passing there is one place for each plane.
        let of_axis =
            |axis: usize, extent: usize| if shape.axis == axis { place..place + 1 } else { 0..extent };
        let (depths, heights) = (of_axis(0, depth), of_axis(1, height));
        let [first, second] = shape.plane_axes();
        let mut all = true;
        for class in 0..=shape.classes {
            for d in depths.clone() {
                let is_weight = class == shape.classes;
                if !is_weight {
                    let from = mirrored(d, depth, self.mirrored[0]);
                    let rows_from = match self.mirrored[1] {
                        true => height - heights.end,
                        false => heights.start,
                    };
                    let rows = &mut rows[..heights.len() * width];
                    read(class * voxels + (from * height + rows_from) * width, rows)?;
                    all &= can_be_summed(rows);
                }
                for h in heights.clone() {
                    let weight = along[d] * down[h];
                    let row = mirrored(h - heights.start, heights.len(), self.mirrored[1]);
                    let row = &rows[row * width..][..width];
                    // Where the row begins in a plane, if it lies in one.
                    let at = |d: usize, h: usize, w: usize| {
                        let at = [d, h, w];
                        let place = |axis: usize| self.start[axis] + at[axis];
                        class * shape.plane() + place(first) * shape.grid[second] + place(second)
                    };
                    match &mut *planes {
                        [(_, sums)] if shape.axis < 2 => {
                            let to = sums[at(d, h, 0)..][..width].iter_mut().zip(across);
                            match (is_weight, self.mirrored[2]) {
                                (true, _) => to.for_each(|(to, across)| *to += weight * across),
                                (false, false) => {
                                    to.zip(row)
                                        .for_each(|((to, across), logit)| *to += weight * across * logit);
                                }
                                (false, true) => {
                                    let row = row.iter().rev();
                                    to.zip(row)
                                        .for_each(|((to, across), logit)| *to += weight * across * logit);
                                }
                            }
                        }
                        planes => {
                            for (w, sums) in planes {
                                let logit = row[mirrored(*w, width, self.mirrored[2])];
                                let logit = if is_weight { 1.0 } else { logit };
                                sums[at(d, h, *w)] += weight * across[*w] * logit;
                            }
                        }
                    }
                }
            }
        }
        Ok(all)
    }
}

/// A place along an axis, from its other end if that is mirrored.
fn mirrored(place: usize, extent: usize, is_mirrored: bool) -> usize {
    if is_mirrored { extent - 1 - place } else { place }
}

/// Logits as large as this are no output of a network that was trained; so many windows that a sum of smaller ones is infinite
/// would never end.
const LARGEST_LOGIT: f32 = 1e30;

/// Whether all logits are finite, and will be when they are summed. Without an early exit, which would keep the compiler from
/// looking at several at once.
fn can_be_summed(logits: &[f32]) -> bool {
    // The comparison is false for NaN.
    logits.iter().fold(true, |all, logit| all & (logit.abs() < LARGEST_LOGIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_logit_that_cannot_be_summed_is_found_wherever_it_is() {
        let mut logits = vec![-3.0; 1000];
        assert!(can_be_summed(&logits));
        for at in [0, 499, 999] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -2e30] {
                logits[at] = value;
                assert!(!can_be_summed(&logits), "{value} at {at}");
                logits[at] = 0.0;
            }
        }
        assert!(can_be_summed(&[]));
    }
}
