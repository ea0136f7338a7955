//! Logits being summed, for only as many planes as windows still touch.
//!
//! Windows are taken in the order of their place along one axis. When all that begin at one place are done, the planes before
//! the next place will not change any more; they are handed on, and their memory is used again. So what is held is
//! classes × (a window and a plane), not classes × the volume. Each logit is added as its share of the mean
//! ([`Shares`](crate::shares::Shares)), so that what is held when the last window has been added is the mean.

use std::ops::Range;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::shares::WindowShares;
use crate::sums::{RingStorage, Sum};
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
    /// What means of logits become before anything is interpolated between them.
    pub activation: Option<Activation>,
    /// The part of a plane that is held.
    pub tile: Tile,
}

/// A part of a plane: from where on, and how many voxels, along each of its two axes. What windows have beside it is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Where it begins.
    pub start: [usize; 2],
    /// Its extent.
    pub extent: [usize; 2],
}

impl Tile {
    /// All of a plane.
    pub fn whole(plane: [usize; 2]) -> Tile {
        Tile { start: [0; 2], extent: plane }
    }
}

/// What logits become before they are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The probabilities of classes of which a voxel has one.
    Softmax,
    /// The probability of each output by itself.
    Sigmoid,
}

impl Activation {
    /// Applies it to the logits `[class][voxel]` of a plane.
    fn apply<S: Sum>(self, logits: &mut [S], voxels: usize) {
        match self {
            Activation::Sigmoid => {
                logits.iter_mut().for_each(|logit| *logit = S::narrow(1.0 / (1.0 + (-logit.wide()).exp())));
            }
            Activation::Softmax => {
                let count = logits.len();
                for voxel in 0..voxels {
                    let of_voxel = || (voxel..count).step_by(voxels.max(1));
                    let largest = of_voxel().map(|at| logits[at].wide()).fold(f32::NEG_INFINITY, f32::max);
                    let sum: f32 = of_voxel().map(|at| (logits[at].wide() - largest).exp()).sum();
                    for at in of_voxel() {
                        logits[at] = S::narrow((logits[at].wide() - largest).exp() / sum);
                    }
                }
            }
        }
    }
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

    /// Voxels of a plane that are held.
    pub fn plane(&self) -> usize {
        let [first, second] = self.tile.extent;
        first.saturating_mul(second)
    }

    /// Where a voxel of the grid, which is held, lies in what is held of its plane.
    pub(crate) fn in_plane(&self, at: [usize; 3]) -> usize {
        let [first, second] = self.plane_axes();
        let Tile { start, extent } = self.tile;
        debug_assert!(
            (start[0]..start[0] + extent[0]).contains(&at[first])
                && (start[1]..start[1] + extent[1]).contains(&at[second]),
            "voxel {at:?} is not held of {:?}",
            (start, extent)
        );
        (at[first] - start[0]) * extent[1] + at[second] - start[1]
    }

    /// The voxels along an axis of a window that begins at `start` there that are held.
    pub(crate) fn held_of(&self, axis: usize, start: usize) -> Range<usize> {
        let window = self.window[axis];
        let Some(which) = self.plane_axes().iter().position(|of_plane| *of_plane == axis) else {
            return 0..window;
        };
        let (first, end) = (self.tile.start[which], self.tile.start[which] + self.tile.extent[which]);
        let from = first.saturating_sub(start).min(window);
        from..end.saturating_sub(start).clamp(from, window)
    }

    /// Planes held: those of a window, and the last one that is finished, if there are so many.
    pub(crate) fn planes(&self) -> usize {
        (self.window[self.axis] + 1).min(self.grid[self.axis])
    }

    /// Numbers held: a logit of each class for each voxel. More than can be counted are refused when they are reserved.
    fn count(&self) -> usize {
        self.planes().saturating_mul(self.plane()).saturating_mul(self.classes)
    }

    /// Bytes that a ring of this shape reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(&self, storage: RingStorage) -> Result<Bytes, MapError> {
        match storage {
            RingStorage::F32 => Mapped::<f32>::bytes(self.count()),
            RingStorage::F16 => Mapped::<half::f16>::bytes(self.count()),
        }
    }

    /// The place in the order of passing of a place along the axis.
    pub(crate) fn turn(&self, place: usize) -> usize {
        if self.reversed { self.grid[self.axis] - 1 - place } else { place }
    }

    /// The planes of a window at `start`, in the order of passing.
    pub(crate) fn turns_of(&self, start: [usize; 3]) -> Range<usize> {
        let (first, extent) = (start[self.axis], self.window[self.axis]);
        let from = if self.reversed { self.turn(first + extent - 1) } else { first };
        from..from + extent
    }

    /// Which of the planes that are held a plane is, in the order of passing.
    pub(crate) fn slot(&self, turn: usize) -> usize {
        turn % self.planes()
    }
}

/// Sums of shares of logits.
pub(crate) struct Ring<S> {
    shape: RingShape,
    /// `[plane][class][voxel of the plane]`
    sums: Mapped<S>,
}

impl<S: Sum> Ring<S> {
    /// An empty ring, reserved from a budget.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub(crate) fn new(shape: RingShape, budget: &Budget) -> Result<Ring<S>, MapError> {
        let sums = Mapped::zeroed(budget, "logits of the windows being summed", shape.count())?;
        Ok(Ring { shape, sums })
    }

    /// Numbers of a plane.
    fn slot_length(&self) -> usize {
        self.shape.plane() * self.shape.classes
    }

    fn slot(&self, plane: usize) -> usize {
        self.shape.slot(plane) * self.slot_length()
    }

    /// The memory of the planes from one to another (in the order of passing), which are no more than the ring holds, with their numbers;
    /// in the order in which they lie.
    fn slots(&mut self, from: usize, to: usize) -> impl Iterator<Item = (usize, &mut [S])> + Send {
        let (planes, length) = (self.shape.planes(), self.slot_length());
        // Of no voxels there is no plane.
        let slots = self.sums.chunks_exact_mut(length.max(1)).enumerate();
        slots.filter_map(move |(slot, sums)| {
            // The first plane from `from` on that lies here.
            let plane = from + (slot + planes - from % planes) % planes;
            (plane < to).then_some((plane, sums))
        })
    }

    /// Adds the logits `[class][d][h][w]` of a window at `start`, mirrored along some axes, each as its share along each axis.
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
        let first = window.start[shape.axis];
        let turns = shape.turns_of(window.start);
        // Along the last axis a row of logits has a number for each plane, so that several are filled at a time.
        let together = if shape.axis == 2 { PLANES_TOGETHER } else { 1 };
        let mut slots = self.slots(turns.start, turns.end).map(|(turn, sums)| {
            // Turning twice is nothing.
            (shape.turn(turn) - first, sums)
        });
        let groups = std::iter::from_fn(move || {
            let group: Vec<(usize, &mut [S])> = slots.by_ref().take(together).collect();
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

    /// Makes of the means of planes, from one to another in the order of passing, what is interpolated.
    pub(crate) fn finish<T: Send>(&mut self, from: usize, to: usize, threads: &mut [T]) {
        let (activation, voxels) = (self.shape.activation, self.shape.plane());
        if let Some(activation) = activation {
            share(self.slots(from, to.max(from)), threads, |(_, means), _| activation.apply(means, voxels));
        }
    }

    /// The finished logits `[class][voxel of the plane]` of one of the last planes.
    pub(crate) fn plane(&self, plane: usize) -> &[S] {
        let slot = self.slot(plane);
        &self.sums[slot..slot + self.slot_length()]
    }

    /// Gives the memory of planes back to the ring, except that of the last finished one, which neighbours are interpolated
    /// with: those up to `before` will be asked for no more.
    pub(crate) fn clear_before<T: Send>(&mut self, from: usize, before: usize, threads: &mut [T]) {
        share(self.slots(from, before.max(from)), threads, |(_, sums), _| sums.fill(S::zeroed()));
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

/// Where the logits of a window belong, and how much of the mean they are.
pub(crate) struct WindowLogits<'a> {
    pub(crate) start: [usize; 3],
    /// Along which axes the window was mirrored.
    pub(crate) mirrored: [bool; 3],
    /// Of each voxel.
    pub(crate) shares: WindowShares<'a>,
}

impl WindowLogits<'_> {
    /// Adds what belongs to some planes, one at least, which are given with their places in the window. Returns whether all can be summed.
    fn add_to<E, S: Sum>(
        &self,
        shape: &RingShape,
        planes: &mut [(usize, &mut [S])],
        rows: &mut [f32],
        read: impl Fn(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let [depth, height, width] = shape.window;
        let voxels = depth * height * width;
        let place = planes[0].0;
        // Along the axis of passing there is one place for each plane, and along the others what is held.
        let of_axis = |axis: usize| match shape.axis == axis {
            true => place..place + 1,
            false => shape.held_of(axis, self.start[axis]),
        };
        let (depths, heights) = (of_axis(0), of_axis(1));
        let widths = shape.held_of(2, self.start[2]);
        if heights.is_empty() || widths.is_empty() {
            return Ok(true);
        }
        let mut all = true;
        for class in 0..shape.classes {
            for d in depths.clone() {
                let from = mirrored(d, depth, self.mirrored[0]);
                let rows_from = match self.mirrored[1] {
                    true => height - heights.end,
                    false => heights.start,
                };
                let rows = &mut rows[..heights.len() * width];
                read(class * voxels + (from * height + rows_from) * width, rows)?;
                all &= can_be_summed::<S>(rows);
                for h in heights.clone() {
                    let row = mirrored(h - heights.start, heights.len(), self.mirrored[1]);
                    let row = &mut rows[row * width..][..width];
                    if self.mirrored[2] {
                        row.reverse();
                    }
                    let row = &mut row[widths.clone()];
                    self.shares.scale(self.start, [d, h], widths.start, row);
                    // Where a voxel of the row lies in a plane.
                    let at = |w: usize| {
                        let at = [self.start[0] + d, self.start[1] + h, self.start[2] + w];
                        class * shape.plane() + shape.in_plane(at)
                    };
                    match &mut *planes {
                        [(_, sums)] if shape.axis < 2 => {
                            S::add(&mut sums[at(widths.start)..][..row.len()], row);
                        }
                        planes => {
                            for (w, sums) in planes {
                                let to = at(*w);
                                S::add(&mut sums[to..=to], &row[*w..=*w]);
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

/// Whether all logits are finite, and will be when they are summed. Without an early exit, which would keep the compiler from
/// looking at several at once.
fn can_be_summed<S: Sum>(logits: &[f32]) -> bool {
    // The comparison is false for NaN.
    logits.iter().fold(true, |all, logit| all & (logit.abs() < S::LARGEST_LOGIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_logit_that_cannot_be_summed_is_found_wherever_it_is() {
        let mut logits = vec![-3.0; 1000];
        assert!(can_be_summed::<f32>(&logits));
        for at in [0, 499, 999] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -2e30] {
                logits[at] = value;
                assert!(!can_be_summed::<f32>(&logits), "{value} at {at}");
                logits[at] = 0.0;
            }
        }
        assert!(can_be_summed::<f32>(&[]));
        assert!(can_be_summed::<half::f16>(&[64_999.0]) && !can_be_summed::<half::f16>(&[65_504.0]));
    }
}
