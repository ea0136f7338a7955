//! The points of a structure's surface along lines: enough for its diameters, whose ends are corners of convex hulls.
//!
//! The points are the middles of faces between voxels inside and outside, in half voxels from the near face of the structure's box: faces are at
//! even numbers, centres at odd ones.

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::VoxelBox;

use super::hull::Line;
use crate::error::InferError;

/// A line without points.
const EMPTY: [u32; 2] = [u32::MAX, 0];

/// The first and the last surface point along each line of a structure's box.
pub(super) struct Extents {
    /// Places along depth, height and width.
    places: [usize; 3],
    /// The first voxel of the box.
    start: [usize; 3],
    /// Along width, for each place along depth and height.
    rows: Mapped<[u32; 2]>,
    /// Along height, for each place along depth and width.
    columns: Mapped<[u32; 2]>,
}

/// The bytes of the lines of a box, in whole pages.
pub(super) fn bytes(shape: [usize; 3]) -> u64 {
    const PAGES: u64 = 2 * 4096;
    let [depth, height, width] = places(shape).map(|places| places as u64);
    let lines = depth.saturating_mul(height.saturating_add(width));
    lines.saturating_mul(size_of::<[u32; 2]>() as u64).saturating_add(PAGES)
}

/// The number of places along each axis.
fn places(shape: [usize; 3]) -> [usize; 3] {
    shape.map(|extent| 2 * extent + 1)
}

impl Extents {
    /// Makes room for the surface of a structure.
    pub(super) fn new(bounds: VoxelBox, budget: &Budget) -> Result<Extents, InferError> {
        let places = places(bounds.shape);
        let [depth, height, width] = places;
        let lines = |count| -> Result<Mapped<[u32; 2]>, InferError> {
            let mut lines = Mapped::zeroed(budget, "the surface of a structure", count)?;
            lines.fill(EMPTY);
            Ok(lines)
        };
        Ok(Extents {
            places,
            start: bounds.start,
            rows: lines(depth * height)?,
            columns: lines(depth * width)?,
        })
    }

    /// Adds the middle of the face between a voxel and the one before it along an axis. The voxel may lie behind the end of the box.
    pub(super) fn add(&mut self, voxel: [usize; 3], axis: usize) {
        let [z, y, x] =
            std::array::from_fn(|other| 2 * (voxel[other] - self.start[other]) + usize::from(other != axis));
        let [_, height, width] = self.places;
        widen(&mut self.rows[z * height + y], x);
        widen(&mut self.columns[z * width + x], y);
    }

    /// Places along depth, height and width.
    pub(super) fn places(&self) -> [usize; 3] {
        self.places
    }

    /// The points of a plane across depth, by lines along width.
    pub(super) fn slice(&self, z: usize) -> impl Iterator<Item = Line> + Clone {
        let height = self.places[1];
        self.rows[z * height..(z + 1) * height].iter().map(line)
    }

    /// The points of a plane across height, by lines along width.
    pub(super) fn across_height(&self, y: usize) -> impl Iterator<Item = Line> + Clone {
        self.rows.iter().skip(y).step_by(self.places[1]).map(line)
    }

    /// The points of a plane across width, by lines along height.
    pub(super) fn across_width(&self, x: usize) -> impl Iterator<Item = Line> + Clone {
        self.columns.iter().skip(x).step_by(self.places[2]).map(line)
    }
}

fn widen(line: &mut [u32; 2], at: usize) {
    // Twice the extent of an axis, which a header limits to 31 bits.
    let at = at as u32;
    *line = [line[0].min(at), line[1].max(at)];
}

fn line(line: &[u32; 2]) -> Line {
    (*line != EMPTY).then_some(*line)
}
