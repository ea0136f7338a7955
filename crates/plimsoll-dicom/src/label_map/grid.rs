//! The places of frames on a grid.

use plimsoll_memory::Budget;
use plimsoll_volume::{Affine, Geometry};

use super::description::{Description, Frame};
use crate::DicomError;
use crate::error::SegmentationFault;
use crate::header::{cross, dot};
use crate::reserved_list::ReservedList;

/// The most that a pixel may be beside a voxel of the grid, as a share of a voxel. Slices of a series may be as far from their grid.
const TOLERANCE: f64 = 0.25;

/// The most that a distance between planes may differ from a multiple of the spacing, as a share of it.
const UNEVEN: f64 = 0.1;

/// The same for a spacing that is a part of the first gap: many parts are tried, and one of them would fit any distances.
const UNEVEN_PART: f64 = 0.02;

/// Frames that are nearer along their normal are in one plane, in mm.
const ONE_PLANE: f64 = 1e-3;

/// The most planes of a grid.
const MOST_PLANES: f64 = 65_536.0;

/// The most rows and columns of a grid: a frame has at most 65,535.
const MOST_EXTENT: f64 = 131_072.0;

/// The largest number of planes that the first gap between frames is divided into where no stated spacing fits.
const MOST_BETWEEN: u32 = 8;

/// A frame on a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedFrame {
    /// The plane of the grid.
    pub(super) slice: usize,
    /// The number of its segment; 0 of a label map.
    pub(super) segment: u16,
    /// The row and the column of the grid where its first pixel is.
    pub(super) start: [usize; 2],
    /// The place of the frame in the file, from 0 on.
    pub(super) frame: u32,
}

/// All frames on a grid.
pub(super) struct Placed {
    /// Ascending by plane and segment.
    pub(super) frames: ReservedList<PlacedFrame>,
    /// Tells whether the rows, and the columns, of frames run against the grid's.
    pub(super) is_reversed: [bool; 2],
    /// The most that a pixel is beside its voxel, as a share of a voxel.
    pub(super) beside: f64,
}

/// Frames of one size, with the same directions and spacing.
pub(super) struct Stack<'a> {
    frames: &'a [Frame],
    /// Rows and columns.
    size: [usize; 2],
    /// From one row, and from one column, to the next, in LPS millimetres.
    steps: [[f64; 3]; 2],
    normal: [f64; 3],
    /// Distances between planes that the file states, in mm.
    stated: [Option<f64>; 2],
}

/// A point or a direction of LPS in RAS, and the reverse.
fn ras([x, y, z]: [f64; 3]) -> [f64; 3] {
    [-x, -y, z]
}

fn sum(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn difference(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

impl<'a> Stack<'a> {
    pub(super) fn new(description: &'a Description) -> Stack<'a> {
        let plane = &description.plane;
        let [along_rows, along_columns] = plane.directions;
        let [between_rows, between_columns] = plane.spacing;
        Stack {
            frames: &description.frames,
            size: description.size,
            steps: [
                along_columns.map(|part| part * between_rows),
                along_rows.map(|part| part * between_columns),
            ],
            normal: cross(along_rows, along_columns),
            stated: [description.between, plane.thickness.filter(|thickness| *thickness > 0.0)],
        }
    }

    /// Places all frames on a grid; `None` if one of them is not on its voxels, or is beyond it. Rows and columns may count against those
    /// of the grid.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(super) fn on_grid(&self, grid: &Geometry, budget: &Budget) -> Result<Option<Placed>, DicomError> {
        let Some(is_reversed) = self.reversed_on(grid) else { return Ok(None) };
        let shape = grid.shape();
        let mut frames = ReservedList::new(budget, "frames of DICOM");
        let mut beside: f64 = 0.0;
        for (number, frame) in (0..).zip(self.frames) {
            let found = grid.world_to_voxel(ras(frame.position));
            let nearest = found.map(f64::round);
            let off = (0..3).map(|axis| (found[axis] - nearest[axis]).abs()).fold(0.0, f64::max);
            beside = beside.max(off);
            let within = |axis: usize, first: f64, last: f64| first >= 0.0 && last < shape[axis] as f64;
            let is_within = within(0, nearest[0], nearest[0])
                && [0, 1].into_iter().all(|axis| {
                    let extent = self.size[axis].saturating_sub(1) as f64;
                    let first = nearest[axis + 1];
                    match is_reversed[axis] {
                        true => within(axis + 1, first - extent, first),
                        false => within(axis + 1, first, first + extent),
                    }
                });
            if off > TOLERANCE || !is_within {
                return Ok(None);
            }
            // Within the grid, so that no cast saturates.
            let [slice, row, column] = nearest.map(|at| at as usize);
            frames.push(PlacedFrame {
                slice,
                segment: frame.segment,
                start: [row, column],
                frame: number,
            })?;
        }
        frames.as_mut_slice().sort_unstable_by_key(|frame| (frame.slice, frame.segment, frame.frame));
        Ok(Some(Placed { frames, is_reversed, beside }))
    }

    /// Returns whether rows, and columns, run against a grid's; `None` if they are not along its axes, or not as far apart.
    fn reversed_on(&self, grid: &Geometry) -> Option<[bool; 2]> {
        let origin = grid.world_to_voxel([0.0; 3]);
        let mut is_reversed = [false; 2];
        for (axis, reversed) in is_reversed.iter_mut().enumerate() {
            let step = difference(grid.world_to_voxel(ras(self.steps[axis])), origin);
            *reversed = step[axis + 1] < 0.0;
            let mut expected = [0.0; 3];
            expected[axis + 1] = if *reversed { -1.0 } else { 1.0 };
            let extent = self.size[axis].saturating_sub(1).max(1) as f64;
            let is_far = |part: f64| part.abs() * extent > TOLERANCE;
            if difference(step, expected).into_iter().any(is_far) {
                return None;
            }
        }
        Some(is_reversed)
    }

    /// Grids of the frames alone, the better first: depth along their normal, height down the rows, width along the columns. The first
    /// has upright planes, in which frames may be shifted by whole pixels; in the second all frames begin on one line, as where a gantry
    /// was tilted.
    ///
    /// # Errors
    /// Returns an error if frames are not on planes at equal distances, or the distance is not known.
    pub(super) fn own_grids(&self) -> Result<[Option<Geometry>; 2], SegmentationFault> {
        let along = |frame: &Frame| dot(frame.position, self.normal);
        let first = self.frames.iter().min_by(|a, b| along(a).total_cmp(&along(b)));
        let last = self.frames.iter().max_by(|a, b| along(a).total_cmp(&along(b)));
        let (Some(first), Some(last)) = (first, last) else { return Err(SegmentationFault::Uneven) };
        let span = along(last) - along(first);
        let spacing = if span <= ONE_PLANE {
            self.stated.into_iter().flatten().next().ok_or(SegmentationFault::NoSpacing)?
        } else {
            self.spacing(along(first)).ok_or(SegmentationFault::Uneven)?
        };
        // At most as many as were checked.
        let steps = (span / spacing).round();
        let upright = || {
            let offsets = |axis: usize| {
                let square = dot(self.steps[axis], self.steps[axis]);
                let offset = move |frame: &Frame| {
                    (dot(difference(frame.position, first.position), self.steps[axis]) / square).round()
                };
                self.frames
                    .iter()
                    .map(offset)
                    .fold([0.0f64; 2], |[least, most], at| [least.min(at), most.max(at)])
            };
            let [rows, columns] = [offsets(0), offsets(1)];
            let extent = |axis: usize, [least, most]: [f64; 2]| {
                let extent = self.size[axis] as f64 + most - least;
                (extent <= MOST_EXTENT).then_some(extent as usize)
            };
            let shape = [steps as usize + 1, extent(0, rows)?, extent(1, columns)?];
            let shift = |axis: usize, [least, _]: [f64; 2]| self.steps[axis].map(|part| part * least);
            let corner = sum(first.position, sum(shift(0, rows), shift(1, columns)));
            self.geometry(
                shape,
                self.normal.map(|part| part * if steps > 0.0 { span / steps } else { spacing }),
                corner,
            )
        };
        let tilted = || {
            let step = difference(last.position, first.position).map(|part| part / steps);
            let [rows, columns] = self.size;
            (steps > 0.0).then(|| self.geometry([steps as usize + 1, rows, columns], step, first.position))?
        };
        Ok([upright(), tilted()])
    }

    /// A grid with this step from plane to plane and this first voxel, in LPS millimetres.
    fn geometry(&self, shape: [usize; 3], step: [f64; 3], corner: [f64; 3]) -> Option<Geometry> {
        let [down, along] = self.steps;
        let [step, down, along, corner] = [step, down, along, corner].map(ras);
        let row = |axis: usize| [step[axis], down[axis], along[axis], corner[axis]];
        Geometry::new(shape, Affine([row(0), row(1), row(2)])).ok()
    }

    /// The distance between planes, in mm: the first of those that the file states, or else of whole parts of the first gap between
    /// frames, of which all distances are multiples; `None` if there is none.
    fn spacing(&self, first: f64) -> Option<f64> {
        let at = |frame: &Frame| dot(frame.position, self.normal) - first;
        let least =
            self.frames.iter().map(at).filter(|found| *found > ONE_PLANE).fold(f64::INFINITY, f64::min);
        let fits = |spacing: f64, uneven: f64| {
            let is_multiple = |found: f64| {
                let planes = found / spacing;
                (planes - planes.round()).abs() <= uneven && planes < MOST_PLANES
            };
            spacing > ONE_PLANE && self.frames.iter().map(at).all(is_multiple)
        };
        let parts = (2..=MOST_BETWEEN).map(|parts| least / f64::from(parts));
        let mut likely = self.stated.into_iter().flatten().chain([least]);
        likely
            .find(|spacing| fits(*spacing, UNEVEN))
            .or_else(|| parts.into_iter().find(|spacing| fits(*spacing, UNEVEN_PART)))
    }
}
