//! The grid of an image: how many voxels, and where they lie in the world.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matrix::{self, Matrix};
use crate::{Affine, Spacing};

/// The names of the array axes, for messages.
pub(crate) const AXES: [&str; 3] = ["depth", "height", "width"];

/// A grid of voxels in the world. Every value of this type is sound: no axis is empty, the number of voxels fits the
/// address space, and the affine is finite and invertible.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Geometry {
    shape: [usize; 3],
    affine: Affine,
    /// From the world to voxel indices.
    inverse: Matrix,
}

/// Entries of an affine beyond this are no millimetres; below it, sums and products of them stay finite.
const LARGEST_ENTRY: f64 = 1e100;

#[derive(Serialize, Deserialize)]
struct Unchecked {
    shape: [usize; 3],
    affine: Affine,
}

impl TryFrom<Unchecked> for Geometry {
    type Error = GeometryError;
    fn try_from(raw: Unchecked) -> Result<Geometry, GeometryError> {
        Geometry::new(raw.shape, raw.affine)
    }
}

impl From<Geometry> for Unchecked {
    fn from(Geometry { shape, affine, .. }: Geometry) -> Unchecked {
        Unchecked { shape, affine }
    }
}

/// Why a shape and an affine do not make a grid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// An axis has no voxels.
    #[error("the shape {shape:?} has an empty axis")]
    Empty {
        /// (depth, height, width).
        shape: [usize; 3],
    },
    /// The number of voxels does not fit the address space.
    #[error("the shape {shape:?} has more voxels than this machine can address")]
    TooLarge {
        /// (depth, height, width).
        shape: [usize; 3],
    },
    /// The affine has an infinite, absurdly large or undefined entry.
    #[error("the affine is not finite: row {row}, column {column} is {value:e}")]
    NotFinite {
        /// 0, 1, 2 for x, y, z.
        row: usize,
        /// 0, 1, 2 for depth, height, width; 3 for the translation.
        column: usize,
        /// What is there.
        value: f64,
    },
    /// Neighbouring voxels lie at the same place, or infinitely far from each other.
    #[error("the {axis} spacing is {value} mm")]
    Spacing {
        /// The array axis.
        axis: &'static str,
        /// The length of the affine's column.
        value: f64,
    },
    /// The voxels lie in one plane or on one line of the world.
    #[error(
        "the affine is singular: its axes span {spanned:.1e} of the volume that perpendicular axes would span"
    )]
    Singular {
        /// The share, from 0 to 1.
        spanned: f64,
    },
}

impl GeometryError {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            GeometryError::Empty { .. } | GeometryError::TooLarge { .. } => {
                "the shape is probably damaged: write the image again from its source".into()
            }
            GeometryError::NotFinite { .. }
            | GeometryError::Spacing { .. }
            | GeometryError::Singular { .. } => {
                "the image has no usable position in space: convert it again from its source, \
                 or set its affine by hand"
                    .into()
            }
        })
    }
}

/// How two grids differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GeometryDifference {
    /// They have different numbers of voxels.
    Shape {
        /// (depth, height, width) of the first.
        first: [usize; 3],
        /// (depth, height, width) of the second.
        second: [usize; 3],
    },
    /// The same voxels lie at different places.
    Affine {
        /// The farthest that a corner voxel of one lies from that of the other, in millimetres.
        displacement: f64,
    },
}

impl fmt::Display for GeometryDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryDifference::Shape { first, second } => write!(f, "shape {first:?} against {second:?}"),
            GeometryDifference::Affine { displacement } => {
                write!(f, "affines that put the same voxel up to {displacement:.3} mm apart")
            }
        }
    }
}

impl Geometry {
    /// A grid of `shape` = (depth, height, width) voxels that `affine` puts in the world.
    ///
    /// # Errors
    /// If an axis is empty, the number of voxels overflows, or the affine is not finite or not invertible.
    pub fn new(shape: [usize; 3], affine: Affine) -> Result<Geometry, GeometryError> {
        if shape.contains(&0) {
            return Err(GeometryError::Empty { shape });
        }
        shape[0]
            .checked_mul(shape[1])
            .and_then(|voxels| voxels.checked_mul(shape[2]))
            .filter(|voxels| *voxels <= isize::MAX as usize)
            .ok_or(GeometryError::TooLarge { shape })?;
        for (row, values) in affine.0.iter().enumerate() {
            for (column, &value) in values.iter().enumerate() {
                // Not a number is not within bounds either.
                let bounded = value.abs() <= LARGEST_ENTRY;
                if !bounded {
                    return Err(GeometryError::NotFinite { row, column, value });
                }
            }
        }
        for (axis, value) in AXES.into_iter().zip(affine.spacing().0) {
            if !value.is_normal() {
                return Err(GeometryError::Spacing { axis, value });
            }
        }
        let singular = || GeometryError::Singular { spanned: matrix::spanned(affine.matrix()) };
        let inverse = matrix::inverse(affine.matrix()).ok_or_else(singular)?;
        Ok(Geometry { shape, affine, inverse })
    }

    /// The number of voxels along (depth, height, width).
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// From voxel indices to the world.
    pub fn affine(&self) -> &Affine {
        &self.affine
    }

    /// The number of voxels. It was checked when the grid was made.
    pub fn voxel_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Millimetres between neighbouring voxels along (depth, height, width).
    pub fn spacing(&self) -> Spacing {
        self.affine.spacing()
    }

    /// Where a (continuous) voxel index lies, in RAS millimetres.
    pub fn voxel_to_world(&self, index: [f64; 3]) -> [f64; 3] {
        self.affine.apply(index)
    }

    /// The (continuous) voxel index at a point in RAS millimetres.
    pub fn world_to_voxel(&self, point: [f64; 3]) -> [f64; 3] {
        matrix::apply(&self.inverse, point)
    }

    pub(crate) fn inverse(&self) -> &Matrix {
        &self.inverse
    }

    /// The same voxels under other indices: `there` leads from the new ones to the old, `back` from the old to the
    /// new. Both only exchange and turn round axes, so the grid stays sound.
    pub(crate) fn reindexed(&self, shape: [usize; 3], there: &Matrix, back: &Matrix) -> Geometry {
        Geometry {
            shape,
            affine: Affine(matrix::compose(self.affine.matrix(), there)),
            inverse: matrix::compose(back, &self.inverse),
        }
    }

    /// What tells this grid from `other`, if anything: first the shape, then the places of the eight corner voxels,
    /// which may be `tolerance` millimetres apart.
    pub fn difference(&self, other: &Geometry, tolerance: f64) -> Option<GeometryDifference> {
        if self.shape != other.shape {
            return Some(GeometryDifference::Shape { first: self.shape, second: other.shape });
        }
        let corners =
            (0..8u8).map(|bits| {
                let corner: [f64; 3] = std::array::from_fn(|axis| {
                    if bits >> axis & 1 == 1 { (self.shape[axis] - 1) as f64 } else { 0.0 }
                });
                let (ours, theirs) = (self.voxel_to_world(corner), other.voxel_to_world(corner));
                matrix::length(std::array::from_fn(|axis| ours[axis] - theirs[axis]))
            });
        let displacement = corners.fold(0.0, f64::max);
        (displacement > tolerance).then_some(GeometryDifference::Affine { displacement })
    }
}
