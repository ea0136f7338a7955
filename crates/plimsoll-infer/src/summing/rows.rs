//! The places of the windows of a case, in rows that begin at the same place of the axis along which planes pass through the ring.
//!
//! This axis follows from shapes alone, not from the memory limit: windows are added to a voxel in the order in which they pass, so
//! that another axis would be another rounding. Where a whole plane is too large, the case is passed through in strips of it, one after the
//! other. Windows on a border are then computed for both sides; those over a voxel are added in the same order, so that its sums have the
//! same bits.

use std::ops::Range;

use plimsoll_data::TargetGrid;
use plimsoll_models::{Answers, Interpolated, SegmentationModel, WindowLayout};
use plimsoll_volume::VoxelBox;

use crate::labels::slices::slice_axes;
use crate::summing::places::{AxisPlaces, lead};
use crate::summing::ring_shape::{Activation, RingShape, Tile};
use crate::summing::windows::Starts;

/// The strips in which a case is traversed: `size` stored voxels along a stored axis, of which the last strip may have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strips {
    pub(crate) axis: usize,
    pub(crate) size: usize,
}

/// A way to pass through a case in strips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripChoice {
    pub(crate) strips: Strips,
    /// The number of strips.
    pub(crate) count: usize,
    /// Windows of all of them, those that lie in several counted for each.
    pub(crate) windows: usize,
    /// The most voxels of the grid that one of them holds, along each axis of a plane.
    tile: [usize; 2],
}

/// The most windows of all strips, as a multiple of the windows of the case: narrower strips would take too long.
const MOST_REPEATED: usize = 4;

/// The most strips.
const MOST_STRIPS: usize = 64;

/// The most widths that are looked at for a number of strips.
const MOST_WIDTHS: usize = 64;

/// A case is passed through along another axis than the axis of stored planes only if that saves an eighth of the ring at least, as labels come in
/// another order than they are written in.
const WORTH: (usize, usize) = (7, 8);

/// The places of the windows of a case, or of a strip of it.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) shape: RingShape,
    /// Voxels of the ring before the image along each axis.
    pub(crate) lead: [usize; 3],
    /// The stored axis along which slices are decided.
    pub(crate) slices: usize,
    /// The part of the stored grid whose labels follow.
    pub(crate) part: VoxelBox,
    /// The starts of rows.
    along: Starts,
    /// The starts of the windows of a row along the axes of a plane.
    across: [Starts; 2],
    /// The windows that touch the part.
    taken: [Range<usize>; 2],
}

impl Rows {
    /// Places windows over a case at most the share `step` of a window apart, along a stored axis. An image smaller than a window is covered
    /// by one that reaches beyond it.
    #[cfg(test)]
    pub(crate) fn new(grid: &TargetGrid, window: [usize; 3], step: f64, slices: usize) -> Rows {
        let place = |_, extent, window| Starts::new(extent, window, step);
        Rows::placed(grid, window, Padding::centred(window), None, slices, place)
    }

    /// Places a model's windows over a case at its own distance, or else at most the share `step` of a window apart, along a stored axis.
    pub(crate) fn for_model(grid: &TargetGrid, model: &SegmentationModel, step: f64, slices: usize) -> Rows {
        let activation = match (model.interpolated, &model.answers) {
            (Interpolated::Logits, _) => None,
            (Interpolated::Probabilities, Answers::Classes(_)) => Some(Activation::Softmax),
            (Interpolated::Probabilities, Answers::Regions(_)) => Some(Activation::Sigmoid),
            (Interpolated::MeanProbabilities, _) => Some(Activation::Done),
        };
        let place = |axis: usize, extent, window| match model.windows {
            WindowLayout::Even | WindowLayout::Whole { .. } => Starts::new(extent, window, step),
            WindowLayout::Fixed { overlap, .. } => Starts::fixed(extent, window, overlap[axis]),
            WindowLayout::Interior { margin, .. } => Starts::interior(extent, window, margin),
        };
        let least = match model.windows {
            WindowLayout::Interior { extent, .. } => {
                [0, 1, 2].map(|axis| extent[axis].max(model.patch[axis]))
            }
            WindowLayout::Even | WindowLayout::Fixed { .. } | WindowLayout::Whole { .. } => model.patch,
        };
        let begins_with_image = matches!(model.windows, WindowLayout::Whole { .. });
        let padding = Padding { least, begins_with_image };
        Rows::placed(grid, model.patch, padding, activation, slices, place)
    }

    /// Places windows that each overlap a share of the one before along each axis, as MONAI places them, along a stored axis.
    pub(crate) fn fixed(grid: &TargetGrid, window: [usize; 3], overlap: [f64; 3], slices: usize) -> Rows {
        let place = |axis: usize, extent, window| Starts::fixed(extent, window, overlap[axis]);
        Rows::placed(grid, window, Padding::centred(window), None, slices, place)
    }

    /// Places windows over a case.
    fn placed(
        grid: &TargetGrid,
        window: [usize; 3],
        Padding { least, begins_with_image }: Padding,
        activation: Option<Activation>,
        slices: usize,
        place: impl Fn(usize, usize, usize) -> Starts,
    ) -> Rows {
        let (axis, reversed) = grid.axis_of(slices);
        let extent = extents(grid, least);
        let tile = Tile::whole([0; 2]);
        let shape = RingShape { grid: extent, axis, reversed, window, activation, begins_with_image, tile };
        let starts = |axis: usize| place(axis, extent[axis], window[axis]);
        let whole = Rows {
            shape,
            lead: lead(grid, &shape),
            slices,
            part: VoxelBox::whole(grid.stored_shape()),
            along: starts(axis),
            across: shape.plane_axes().map(starts),
            taken: [0..0, 0..0],
        };
        whole.for_part(grid, whole.part)
    }

    /// Returns the windows of a part of the stored grid, which contains all of it along the axis of slices.
    fn for_part(&self, grid: &TargetGrid, part: VoxelBox) -> Rows {
        let needed = self.part_axes(grid).map(|stored| {
            let covered = AxisPlaces::new(grid, &self.shape, stored).covered();
            self.needed(grid, stored, &covered, part.start[stored]..part.start[stored] + part.shape[stored])
        });
        let [Some(first), Some(second)] = needed else {
            // None of it is covered: there is nothing to look at, and all of it is background.
            let shape = RingShape { tile: Tile::whole([0; 2]), ..self.shape };
            return Rows { shape, part, taken: [0..0, 0..0], ..self.clone() };
        };
        let tile = Tile { start: [first.start, second.start], extent: [first.len(), second.len()] };
        let shape = RingShape { tile, ..self.shape };
        let taken = [self.touching(0, &first), self.touching(1, &second)];
        Rows { shape, part, taken, ..self.clone() }
    }

    /// The stored axes along the two axes of a plane.
    fn part_axes(&self, grid: &TargetGrid) -> [usize; 2] {
        let [_, row, column] = slice_axes(self.slices);
        if grid.axis_of(row).0 == self.shape.plane_axes()[0] { [row, column] } else { [column, row] }
    }

    /// The voxels of the windows' grid between which stored voxels lie; none if it covers none of them.
    fn needed(
        &self,
        grid: &TargetGrid,
        stored: usize,
        covered: &Range<usize>,
        of: Range<usize>,
    ) -> Option<Range<usize>> {
        let places = AxisPlaces::new(grid, &self.shape, stored);
        places.reach(covered.start.max(of.start)..covered.end.min(of.end))
    }

    /// The windows along an axis of a plane that have any of some voxels.
    fn touching(&self, of_plane: usize, voxels: &Range<usize>) -> Range<usize> {
        let window = self.shape.window[self.shape.plane_axes()[of_plane]];
        self.across[of_plane].touching(voxels, window)
    }

    /// The number of rows.
    pub(crate) fn count(&self) -> usize {
        self.along.count()
    }

    /// The number of windows of a row.
    pub(crate) fn windows_of_row(&self) -> usize {
        self.taken.iter().fold(1, |windows, taken| windows.saturating_mul(taken.len()))
    }

    /// Windows of the case, or of the strip.
    pub(crate) fn windows(&self) -> usize {
        self.taken.iter().fold(self.count(), |windows, taken| windows.saturating_mul(taken.len()))
    }

    /// Runs of the network over so many passes at once, where each window is looked at so often: what is at once is of one row.
    pub(crate) fn runs(&self, looks: usize, at_once: usize) -> usize {
        let of_row = self.taken.iter().fold(looks, |passes, taken| passes.saturating_mul(taken.len()));
        self.count().saturating_mul(of_row.div_ceil(at_once))
    }

    /// Returns the starts of the windows of the whole case along each axis.
    pub(crate) fn starts(&self) -> [Starts; 3] {
        let mut starts = [self.along; 3];
        for (axis, across) in self.shape.plane_axes().into_iter().zip(self.across) {
            starts[axis] = across;
        }
        starts
    }

    /// Returns the start of a row along the axis of passing.
    fn place(&self, row: usize) -> usize {
        self.along.at(if self.shape.reversed { self.count() - 1 - row } else { row })
    }

    /// The start of a window of a row by its number; `None` behind the last.
    pub(crate) fn window(&self, row: usize, number: usize) -> Option<[usize; 3]> {
        let [down, right] = &self.taken;
        let (a, b) = (number.checked_div(right.len())?, number.checked_rem(right.len())?);
        if row >= self.count() || a >= down.len() {
            return None;
        }
        let (axis, [first, second]) = (self.shape.axis, self.shape.plane_axes());
        let mut start = [0; 3];
        start[axis] = self.place(row);
        start[first] = self.across[0].at(down.start + a);
        start[second] = self.across[1].at(right.start + b);
        Some(start)
    }

    /// The starts of the windows of a row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = [usize; 3]> + use<> {
        let (axis, [first, second]) = (self.shape.axis, self.shape.plane_axes());
        let (place, [down, right]) = (self.place(row), self.across);
        let [taken_down, taken_right] = self.taken.clone();
        taken_down.flat_map(move |a| {
            taken_right.clone().map(move |b| {
                let mut start = [0; 3];
                (start[axis], start[first], start[second]) = (place, down.at(a), right.at(b));
                start
            })
        })
    }

    /// The planes before this one, in the order of passing, are finished after a row.
    pub(crate) fn finished_after(&self, row: usize) -> usize {
        let extent = self.shape.grid[self.shape.axis];
        match row + 1 < self.count() {
            // The next row's first plane, in the order of passing.
            true if self.shape.reversed => extent - self.shape.window[self.shape.axis] - self.place(row + 1),
            true => self.place(row + 1),
            false => extent,
        }
    }

    /// The extent of the part along slices, their rows and their columns.
    pub(crate) fn part_extent(&self) -> [usize; 3] {
        slice_axes(self.slices).map(|axis| self.part.shape[axis])
    }

    /// The parts that a case is passed through in, one after the other: all of it, or strips.
    pub(crate) fn parts(&self, grid: &TargetGrid, strips: Option<Strips>) -> impl Iterator<Item = Rows> {
        let whole = self.part;
        let (axis, size) = strips.map_or((0, usize::MAX), |Strips { axis, size }| (axis, size.max(1)));
        let count = whole.shape[axis].div_ceil(size);
        (0..count).map(move |number| {
            let mut part = whole;
            part.start[axis] = number.saturating_mul(size);
            part.shape[axis] = size.min(whole.shape[axis] - part.start[axis]);
            self.for_part(grid, part)
        })
    }

    /// Strips in which the case may be passed through: of each number that is not too many, the narrowest ones, and some that are wider.
    pub(crate) fn possible_strips(&self, grid: &TargetGrid) -> Vec<Strips> {
        let mut possible = Vec::new();
        for axis in self.part_axes(grid) {
            let stored = self.part.shape[axis];
            let most = self.windows().saturating_mul(MOST_REPEATED);
            for count in 2..=MOST_STRIPS.min(stored) {
                let (least, end) = (stored.div_ceil(count), stored.div_ceil(count - 1));
                let sizes = (least..end).step_by((end - least).div_ceil(MOST_WIDTHS).max(1));
                let strips = sizes.map(|size| Strips { axis, size });
                let before = possible.len();
                possible.extend(strips.filter(|strips| self.choice(grid, *strips).windows <= most));
                if possible.len() == before && least < end {
                    break;
                }
            }
        }
        possible
    }

    /// Returns the cost of traversing the case in strips.
    pub(crate) fn choice(&self, grid: &TargetGrid, strips: Strips) -> StripChoice {
        let Strips { axis, size } = strips;
        let of_plane = usize::from(self.part_axes(grid)[0] != axis);
        let covered = AxisPlaces::new(grid, &self.shape, axis).covered();
        let stored = self.part.shape[axis];
        let count = stored.div_ceil(size.max(1));
        let (mut along, mut widest) = (0usize, 0);
        for number in 0..count {
            let of = number * size..stored.min((number + 1) * size);
            let Some(needed) = self.needed(grid, axis, &covered, of) else { continue };
            along += self.touching(of_plane, &needed).len();
            widest = widest.max(needed.len());
        }
        let mut tile = self.shape.tile.extent;
        tile[of_plane] = widest;
        let others = self.count().saturating_mul(self.taken[1 - of_plane].len());
        StripChoice { strips, count, windows: along.saturating_mul(others), tile }
    }

    /// The ring and the slices of the widest strip, and of one that is wider by some voxels of the grid: no strip holds more.
    pub(crate) fn widest(&self, choice: &StripChoice, more: usize) -> Rows {
        let whole = self.shape.tile.extent;
        let tile = [0, 1].map(|axis| (choice.tile[axis] + more).min(whole[axis]));
        let shape = RingShape { tile: Tile::whole(tile), ..self.shape };
        let mut part = self.part;
        part.shape[choice.strips.axis] = choice.strips.size;
        Rows { shape, part, ..self.clone() }
    }
}

/// The padding of an image that is smaller than its windows.
#[derive(Clone, Copy)]
struct Padding {
    /// The least extent of the grid.
    least: [usize; 3],
    /// `true` if all of it is behind the image.
    begins_with_image: bool,
}

impl Padding {
    /// The padding that has the image in its middle.
    fn centred(least: [usize; 3]) -> Padding {
        Padding { least, begins_with_image: false }
    }
}

/// The extent of the grid that windows stand on, which is no shorter than `least`.
fn extents(grid: &TargetGrid, least: [usize; 3]) -> [usize; 3] {
    [0, 1, 2].map(|axis| grid.shape()[axis].max(least[axis]))
}

/// The stored axis along which a case is passed through: the axis of stored planes, unless another one saves a good part of the ring.
pub(crate) fn slices_of(grid: &TargetGrid, window: [usize; 3]) -> usize {
    let extent = extents(grid, window);
    let ring = |stored: usize| {
        let (axis, _) = grid.axis_of(stored);
        let planes = (window[axis] + 1).min(extent[axis]);
        let others = (0..3).filter(|other| *other != axis).map(|other| extent[other]);
        others.fold(planes, usize::saturating_mul)
    };
    // Along the last axis of the grid a row of logits has one for each plane, which takes longer to sum: it comes last.
    let mut others = [1, 2];
    others.sort_by_key(|stored| grid.axis_of(*stored).0);
    others.into_iter().fold(0, |best, other| {
        let is_worth = ring(other).saturating_mul(WORTH.1) <= ring(best).saturating_mul(WORTH.0);
        if is_worth { other } else { best }
    })
}
