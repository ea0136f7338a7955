//! The grid of an image: its shape, and its position in the world.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matrix::{self, Matrix};
use crate::{Affine, Spacing};

/// The names of the array axes, for messages.
pub(crate) const AXES: [&str; 3] = ["depth", "height", "width"];

/// A grid of voxels in the world. Invariants of every value: no axis is empty, the number of voxels fits the address
/// space, and the affine is finite and invertible.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Geometry {
    shape: [usize; 3],
    affine: Affine,
    /// The map from the world to voxel indices.
    inverse: Matrix,
}

/// The largest plausible entry of an affine, in millimetres; sums and products of smaller entries stay finite.
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

/// Why a shape and an affine are not a valid grid.
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
        /// The entry.
        value: f64,
    },
    /// The distance between neighbouring voxels is zero or not finite.
    #[error("the {axis} spacing is {value} mm")]
    Spacing {
        /// The array axis.
        axis: &'static str,
        /// The length of the affine's column.
        value: f64,
    },
    /// The affine maps all voxels into one plane or onto one line.
    #[error(
        "the affine is singular: its axes span {spanned:.1e} of the volume that perpendicular axes would span"
    )]
    Singular {
        /// The share, from 0 to 1.
        spanned: f64,
    },
}

impl GeometryError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            GeometryError::Empty { .. } | GeometryError::TooLarge { .. } => {
                "the shape is probably damaged: write the image again from its source".into()
            }
            GeometryError::NotFinite { .. }
            | GeometryError::Spacing { .. }
            | GeometryError::Singular { .. } => {
                "the image has no usable position in space: convert it again from its source, or set its affine"
                    .into()
            }
        })
    }
}

/// The difference of two grids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GeometryDifference {
    /// They have different shapes.
    Shape {
        /// (depth, height, width) of the first.
        first: [usize; 3],
        /// (depth, height, width) of the second.
        second: [usize; 3],
    },
    /// They put the same voxels at different positions.
    Affine {
        /// The largest distance between corresponding corner voxels, in millimetres.
        displacement: f64,
    },
}

impl fmt::Display for GeometryDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryDifference::Shape { first, second } => write!(f, "shape {first:?} against {second:?}"),
            GeometryDifference::Affine { displacement } => {
                write!(f, "affines that place the same voxel up to {displacement:.3} mm apart")
            }
        }
    }
}

impl Geometry {
    /// A grid of `shape` = (depth, height, width) voxels at the positions that `affine` gives.
    ///
    /// # Errors
    /// Returns an error if an axis is empty, the number of voxels overflows, or the affine is not finite or not
    /// invertible.
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
                // The comparison is also false for NaN.
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

    /// The same grid with all lengths times a factor, as in another unit.
    ///
    /// # Errors
    /// Returns an error if a length is then out of the range of grids.
    pub fn scaled(&self, factor: f64) -> Result<Geometry, GeometryError> {
        Geometry::new(self.shape, Affine(self.affine.0.map(|row| row.map(|value| value * factor))))
    }

    /// The number of voxels along (depth, height, width).
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// From voxel indices to the world.
    pub fn affine(&self) -> &Affine {
        &self.affine
    }

    /// The number of voxels, which was checked for overflow when the grid was created.
    pub fn voxel_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Millimetres between neighbouring voxels along (depth, height, width).
    pub fn spacing(&self) -> Spacing {
        self.affine.spacing()
    }

    /// The position of a (continuous) voxel index, in RAS millimetres.
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

    /// The same voxels under other indices: `there` maps the new indices to the old, `back` the old to the new. Both
    /// only permute and flip axes, so the grid stays valid.
    pub(crate) fn reindexed(&self, shape: [usize; 3], there: &Matrix, back: &Matrix) -> Geometry {
        Geometry {
            shape,
            affine: Affine(matrix::compose(self.affine.matrix(), there)),
            inverse: matrix::compose(back, &self.inverse),
        }
    }

    /// The difference between this grid and `other`, or `None`: first the shapes are compared, then the positions of
    /// the eight corner voxels, which may be `tolerance` millimetres apart.
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
