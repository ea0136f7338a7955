//! From finished planes of logits to labels on the image's own grid.
//!
//! The windows' grid and the stored grid differ by a permutation and mirroring of axes and by a scale along each, so a stored
//! voxel's place in the windows' grid is found axis by axis. Logits are interpolated linearly, and the class with the largest
//! one is written: the first of equals.

use plimsoll_data::TargetGrid;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, OverBudget, Reservation};

use crate::ring::{Ring, RingShape};
use crate::workers::share;

/// Where a voxel of the stored grid lies along an axis of the windows' grid.
#[derive(Clone, Copy)]
struct Place {
    /// The lower neighbour.
    lower: usize,
    /// The upper neighbour.
    upper: usize,
    /// The weight of the upper neighbour.
    share: f32,
}

/// The places of `count` stored voxels, at `factor` · i + `offset`, within the places from `first` to `last`.
fn places(count: usize, factor: f64, offset: f64, (first, last): (usize, usize)) -> Vec<Place> {
    let place = |i: usize| {
        let at = (factor * i as f64 + offset).clamp(first as f64, last as f64);
        let lower = at.floor() as usize;
        Place { lower, upper: (lower + 1).min(last), share: (at - lower as f64) as f32 }
    };
    (0..count).map(place).collect()
}

/// The way from the windows' grid to the planes of the stored one.
pub(crate) struct Export {
    shape: RingShape,
    /// Of the stored planes along depth, in the order in which planes of logits are finished.
    depth: Vec<Place>,
    /// Of rows and columns of a stored plane.
    rows: Vec<Place>,
    columns: Vec<Place>,
    /// Whether rows of a stored plane run along the first axis of a plane of the ring.
    rows_are_first: bool,
    stored: [usize; 3],
    /// Of the places.
    _reservation: Reservation,
}

/// The order in which planes of logits have to be finished for stored planes to be written one after the other: along which
/// axis of the windows' grid, and whether backwards.
pub(crate) fn order(grid: &TargetGrid) -> (usize, bool) {
    let along = axis_of(grid, 0);
    (along.axis, along.factor < 0.0)
}

/// Voxels of the ring before the image along each axis: an image that is smaller than a window stands in its middle.
pub(crate) fn lead(grid: &TargetGrid, shape: &RingShape) -> [usize; 3] {
    [0, 1, 2].map(|axis| (shape.grid[axis] - grid.shape()[axis]) / 2)
}

/// How an axis of the stored grid lies in the windows' grid.
struct Along {
    axis: usize,
    factor: f64,
    offset: f64,
}

fn axis_of(grid: &TargetGrid, stored_axis: usize) -> Along {
    // Every row of the map has one entry that is not zero; it is the stored index along the row's axis.
    let rows = grid.to_stored().rows();
    let row = rows[stored_axis];
    let axis = (0..3).max_by(|a, b| row[*a].abs().total_cmp(&row[*b].abs())).unwrap_or(stored_axis);
    // stored = a · place + b, so place = (stored − b) / a.
    Along { axis, factor: 1.0 / row[axis], offset: -row[3] / row[axis] }
}

impl Export {
    /// Bytes that the way out of a ring reserves: a place for each index along the axes of the stored grid.
    pub(crate) fn bytes(grid: &TargetGrid) -> Bytes {
        let places = grid.stored_shape().into_iter().fold(0, usize::saturating_add);
        Bytes::of(places.saturating_mul(size_of::<Place>()))
    }

    /// From a ring of this shape to the stored grid.
    ///
    /// # Errors
    /// If the budget has no room for the places of voxels.
    pub(crate) fn new(grid: &TargetGrid, shape: RingShape, budget: &Budget) -> Result<Export, OverBudget> {
        let reservation = budget.reserve("places of voxels", Export::bytes(grid))?;
        let stored = grid.stored_shape();
        let along = |stored_axis: usize, turned: bool| {
            let Along { axis, factor, offset } = axis_of(grid, stored_axis);
            // The image stands in the middle of a ring that is larger.
            let lead = lead(grid, &shape)[axis];
            let (first, last) = (lead, lead + grid.shape()[axis] - 1);
            let offset = offset + lead as f64;
            // In a ring that is passed backwards, place p comes at turn end − p.
            let end = shape.grid[axis] - 1;
            match turned {
                true => places(stored[stored_axis], -factor, end as f64 - offset, (end - last, end - first)),
                false => places(stored[stored_axis], factor, offset, (first, last)),
            }
        };
        Ok(Export {
            depth: along(0, shape.reversed),
            rows: along(1, false),
            columns: along(2, false),
            rows_are_first: axis_of(grid, 1).axis == shape.plane_axes()[0],
            stored,
            shape,
            _reservation: reservation,
        })
    }

    /// Voxels of a stored plane.
    pub(crate) fn plane(&self) -> usize {
        self.stored[1] * self.stored[2]
    }

    /// Stored planes.
    pub(crate) fn planes(&self) -> usize {
        self.stored[0]
    }

    /// The first plane of logits that stored plane `d` and those after it still need.
    pub(crate) fn first_needed(&self, d: usize) -> usize {
        self.depth.get(d).map_or(self.shape.grid[self.shape.axis], |place| place.lower)
    }

    /// Whether stored plane `d` can be made when the planes of logits before `finished` are.
    pub(crate) fn is_ready(&self, d: usize, finished: usize) -> bool {
        self.depth[d].upper < finished
    }

    /// What a thread that makes labels has: the largest logit so far of each voxel of a row.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub(crate) fn room(&self, budget: &Budget) -> Result<Mapped<f32>, MapError> {
        Mapped::zeroed(budget, "labels", self.stored[2])
    }

    /// Bytes that it reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub(crate) fn room_bytes(grid: &TargetGrid) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(grid.stored_shape()[2])
    }

    /// Makes the labels of stored plane `d`.
    pub(crate) fn labels(&self, ring: &Ring, d: usize, labels: &mut [u8], rooms: &mut [Mapped<f32>]) {
        let planes = (ring.plane(self.depth[d].lower), ring.plane(self.depth[d].upper), self.depth[d].share);
        let lines = self.rows.iter().zip(labels.chunks_exact_mut(self.stored[2]));
        share(lines, rooms, |(row, line), largest| self.line(planes, *row, line, largest));
    }

    /// Makes the labels of a row, class by class, so that what is next to each other is read one after the other. Where a voxel lies on
    /// a plane or a row of logits, what is beside it counts nothing and is not read.
    fn line(&self, planes: (&[f32], &[f32], f32), row: Place, line: &mut [u8], largest: &mut [f32]) {
        let (before, after, share) = planes;
        let voxels = self.shape.plane();
        let second = self.shape.grid[self.shape.plane_axes()[1]];
        let place = |row: usize, column: usize| match self.rows_are_first {
            true => row * second + column,
            false => column * second + row,
        };
        line.fill(0);
        largest.fill(f32::NEG_INFINITY);
        for class in 0..self.shape.classes {
            let (before, after) = (&before[class * voxels..][..voxels], &after[class * voxels..][..voxels]);
            let of_row = |plane: &[f32], row: usize, column: &Place| {
                let (lower, upper) = (plane[place(row, column.lower)], plane[place(row, column.upper)]);
                lower + column.share * (upper - lower)
            };
            let of_plane = |plane: &[f32], column: &Place| {
                let lower = of_row(plane, row.lower, column);
                match row.share == 0.0 {
                    true => lower,
                    false => lower + row.share * (of_row(plane, row.upper, column) - lower),
                }
            };
            for (column, (label, largest)) in self.columns.iter().zip(line.iter_mut().zip(largest.iter_mut()))
            {
                let first = of_plane(before, column);
                let logit = match share == 0.0 {
                    true => first,
                    false => first + share * (of_plane(after, column) - first),
                };
                if logit > *largest {
                    (*label, *largest) = (class as u8, logit);
                }
            }
        }
    }
}
