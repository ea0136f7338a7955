//! The anatomical directions of the array axes, and reorientation to the canonical axes without interpolation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matrix;
use crate::{Affine, Geometry, VoxelBox, VoxelMap};

/// A direction in the patient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// +x.
    Right,
    /// −x.
    Left,
    /// +y.
    Anterior,
    /// −y.
    Posterior,
    /// +z.
    Superior,
    /// −z.
    Inferior,
}

impl Direction {
    fn new(world_axis: usize, backwards: bool) -> Direction {
        match (world_axis, backwards) {
            (0, false) => Direction::Right,
            (0, true) => Direction::Left,
            (1, false) => Direction::Anterior,
            (1, true) => Direction::Posterior,
            (_, false) => Direction::Superior,
            (_, true) => Direction::Inferior,
        }
    }

    /// The anatomical letter: R, L, A, P, S or I.
    pub fn letter(self) -> char {
        match self {
            Direction::Right => 'R',
            Direction::Left => 'L',
            Direction::Anterior => 'A',
            Direction::Posterior => 'P',
            Direction::Superior => 'S',
            Direction::Inferior => 'I',
        }
    }
}

/// The anatomical direction of each array axis. Displayed as three letters, in the order (depth, height, width): `SAR`
/// is the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Orientation {
    /// The direction closest to that in which each index (depth, height, width) increases.
    pub axes: [Direction; 3],
    /// The largest angle between an array axis and the world axis that it is closest to, in degrees; 0 for a straight
    /// grid.
    pub obliqueness: f64,
}

impl fmt::Display for Orientation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters: String = self.axes.iter().map(|axis| axis.letter()).collect();
        f.pad(&letters)
    }
}

/// A permutation and flips of axes: every voxel keeps its value.
///
/// Axis `a` of the result is axis `source_axis[a]` of the source, reversed if `flip[a]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorientation {
    source_axis: [usize; 3],
    flip: [bool; 3],
}

impl Reorientation {
    /// The identity.
    pub const IDENTITY: Reorientation = Reorientation { source_axis: [0, 1, 2], flip: [false; 3] };

    /// The reorientation whose axis `a` is axis `source_axis[a]` of the source, reversed if `flip[a]`; `None` if
    /// `source_axis` does not name each of 0, 1, 2 once.
    pub fn new(source_axis: [usize; 3], flip: [bool; 3]) -> Option<Reorientation> {
        (0..3).all(|axis| source_axis.contains(&axis)).then_some(Reorientation { source_axis, flip })
    }

    /// The source axis of each axis of the result.
    pub fn source_axis(&self) -> [usize; 3] {
        self.source_axis
    }

    /// The axes of the result that are reversed.
    pub fn flip(&self) -> [bool; 3] {
        self.flip
    }

    /// The inverse reorientation.
    pub fn inverse(&self) -> Reorientation {
        let mut inverse = Reorientation::IDENTITY;
        for (axis, (&source, &flip)) in self.source_axis.iter().zip(&self.flip).enumerate() {
            inverse.source_axis[source] = axis;
            inverse.flip[source] = flip;
        }
        inverse
    }

    /// The shape of the result, from the shape of the source.
    pub fn shape(&self, source_shape: [usize; 3]) -> [usize; 3] {
        self.source_axis.map(|axis| source_shape[axis])
    }

    /// The source voxel of voxel `index` of the result; `None` if the result has no such voxel.
    pub fn source_index(&self, index: [usize; 3], source_shape: [usize; 3]) -> Option<[usize; 3]> {
        let region = self.source_box(&VoxelBox { start: index, shape: [1; 3] }, source_shape)?;
        Some(region.start)
    }

    /// The source box of a box of the result; `None` if the box is not within the result.
    pub fn source_box(&self, region: &VoxelBox, source_shape: [usize; 3]) -> Option<VoxelBox> {
        let shape = self.shape(source_shape);
        if !region.is_within(shape) {
            return None;
        }
        let mut source = VoxelBox::whole([0; 3]);
        for (axis, &behind) in self.source_axis.iter().enumerate() {
            let (start, count) = (region.start[axis], region.shape[axis]);
            source.start[behind] = if self.flip[axis] { shape[axis] - start - count } else { start };
            source.shape[behind] = count;
        }
        Some(source)
    }

    /// The map from voxels of the result to voxels of the source.
    pub fn voxel_map(&self, source_shape: [usize; 3]) -> VoxelMap {
        let mut rows = [[0.0; 4]; 3];
        for (axis, &behind) in self.source_axis.iter().enumerate() {
            if self.flip[axis] {
                rows[behind][axis] = -1.0;
                rows[behind][3] = source_shape[behind] as f64 - 1.0;
            } else {
                rows[behind][axis] = 1.0;
            }
        }
        VoxelMap::new(rows)
    }

    /// The grid of the result: the same voxels at the same positions in the world.
    pub fn geometry(&self, source: &Geometry) -> Geometry {
        let shape = self.shape(source.shape());
        let (there, back) = (self.voxel_map(source.shape()), self.inverse().voxel_map(shape));
        source.reindexed(shape, there.matrix(), back.matrix())
    }
}

/// The assignments of array axes to world axes; the canonical one comes first, so that it wins ties.
const ASSIGNMENTS: [[usize; 3]; 6] = [[2, 1, 0], [2, 0, 1], [1, 2, 0], [1, 0, 2], [0, 2, 1], [0, 1, 2]];

/// The world axis closest to each array axis, and the cosine of the angle between them: the assignment with the largest
/// sum of absolute cosines.
fn closest_world_axes(affine: &Affine) -> [(usize, f64); 3] {
    let directions = [0, 1, 2].map(|axis| {
        let step = matrix::column(affine.matrix(), axis);
        let length = matrix::length(step);
        step.map(|x| x / length)
    });
    let score = |order: [usize; 3]| (0..3).map(|axis| directions[axis][order[axis]].abs()).sum::<f64>();
    let best = ASSIGNMENTS.into_iter().fold(ASSIGNMENTS[0], |best, order| {
        // A margin above rounding error, so that for a grid rotated by exactly 45° the result does not depend on the
        // last bit.
        if score(order) > score(best) + 1e-9 { order } else { best }
    });
    std::array::from_fn(|axis| (best[axis], directions[axis][best[axis]]))
}

impl Geometry {
    /// The anatomical directions of the array axes.
    pub fn orientation(&self) -> Orientation {
        let closest = closest_world_axes(self.affine());
        let angle = |(_, cosine): (usize, f64)| cosine.abs().min(1.0).acos().to_degrees();
        Orientation {
            axes: closest.map(|(world, cosine)| Direction::new(world, cosine < 0.0)),
            obliqueness: closest.map(angle).into_iter().fold(0.0, f64::max),
        }
    }

    /// The same voxels with the axes permuted and flipped so that (depth, height, width) run as closely as possible
    /// towards (superior, anterior, right), and the reorientation that does it. Nothing is interpolated; an oblique
    /// grid stays oblique.
    pub fn canonical(&self) -> (Geometry, Reorientation) {
        let mut reorientation = Reorientation::IDENTITY;
        for (axis, (world, cosine)) in closest_world_axes(self.affine()).into_iter().enumerate() {
            reorientation.source_axis[2 - world] = axis;
            reorientation.flip[2 - world] = cosine < 0.0;
        }
        (reorientation.geometry(self), reorientation)
    }
}
