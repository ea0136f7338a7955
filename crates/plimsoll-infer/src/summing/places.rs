//! The places of stored voxels in the windows' grid, axis by axis.
//!
//! The two grids differ by a permutation and mirroring of axes and by a scale along each, so that each axis of the stored grid has its places
//! along one axis of the windows' grid, whatever those along the others are.

use std::ops::Range;

use plimsoll_data::TargetGrid;

use crate::summing::ring_shape::RingShape;

/// The place of a voxel of the stored grid along an axis of the windows' grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// The lower neighbour.
    pub(crate) lower: usize,
    /// The upper neighbour; the lower one, where it lies on that.
    pub(crate) upper: usize,
    /// The weight of the upper neighbour.
    pub(crate) share: f32,
}

/// The places of the voxels along a stored axis.
#[derive(Clone, Copy)]
pub(crate) struct AxisPlaces<'a> {
    grid: &'a TargetGrid,
    stored_axis: usize,
    /// Voxels of the ring before the image.
    lead: usize,
    /// The last voxel of the image, in the order of passing.
    last: usize,
    /// The last voxel of the ring's grid, where places are counted from it.
    counted_from: Option<usize>,
}

/// Returns the number of voxels of the ring before the image along each axis.
pub(crate) fn lead(grid: &TargetGrid, shape: &RingShape) -> [usize; 3] {
    [0, 1, 2].map(|axis| lead_along(grid, shape, axis))
}

/// The same along one axis.
fn lead_along(grid: &TargetGrid, shape: &RingShape, axis: usize) -> usize {
    if shape.begins_with_image { 0 } else { (shape.grid[axis] - grid.shape()[axis]) / 2 }
}

impl<'a> AxisPlaces<'a> {
    /// Along a stored axis, in the grid of a ring: in the order of passing, where that is the axis along which planes pass.
    pub(crate) fn new(grid: &'a TargetGrid, shape: &RingShape, stored_axis: usize) -> AxisPlaces<'a> {
        let (axis, _) = grid.axis_of(stored_axis);
        let extent = shape.grid[axis];
        let lead = lead_along(grid, shape, axis);
        // In a ring that is passed backwards, place p comes at turn end − p.
        let counted_from = (shape.axis == axis && shape.reversed).then_some(extent - 1);
        let last = match counted_from {
            Some(end) => end - lead,
            None => lead + grid.shape()[axis] - 1,
        };
        AxisPlaces { grid, stored_axis, lead, last, counted_from }
    }

    /// Returns the place of a stored voxel, or `None` if the windows' grid does not cover it.
    pub(crate) fn at(&self, index: usize) -> Option<Place> {
        let at = self.grid.place(self.stored_axis, index)? + self.lead as f64;
        let at = match self.counted_from {
            Some(end) => end as f64 - at,
            None => at,
        };
        let lower = at.floor() as usize;
        let share = (at - lower as f64) as f32;
        let upper = if share == 0.0 { lower } else { (lower + 1).min(self.last) };
        Some(Place { lower, upper, share })
    }

    /// The stored voxels that have a place, which is not all of the box that the grid is of: of zoomed images, windows are of the part that
    /// is not zero. Places follow each other, so those in between have one too.
    pub(crate) fn covered(&self) -> Range<usize> {
        let has_place = |index: &usize| self.grid.place(self.stored_axis, *index).is_some();
        let stored = self.grid.stored_shape()[self.stored_axis];
        let first = (0..stored).find(has_place).unwrap_or(stored);
        let end = (first..stored).rev().find(has_place).map_or(first, |last| last + 1);
        first..end
    }

    /// The voxels of the windows' grid between which a range of covered voxels lies; none of none.
    pub(crate) fn reach(&self, covered: Range<usize>) -> Option<Range<usize>> {
        // Places follow each other, one way or the other.
        let (first, last) = (self.at(covered.start)?, self.at(covered.end.checked_sub(1)?)?);
        (!covered.is_empty()).then(|| first.lower.min(last.lower)..first.upper.max(last.upper) + 1)
    }
}
