//! Affine maps from voxel indices to millimetres, and spacings.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matrix::{self, Matrix};

/// The distance between the centres of neighbouring voxels in millimetres, along (depth, height, width).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spacing(pub [f64; 3]);

impl fmt::Display for Spacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [depth, height, width] = self.0;
        write!(f, "{depth:.4} × {height:.4} × {width:.4} mm")
    }
}

/// An affine map from voxel indices (depth, height, width) to the world in RAS millimetres (x towards the right, y
/// towards the front, z upwards). Row `r` gives coordinate `r` of the world: `m[r][0]·d + m[r][1]·h + m[r][2]·w +
/// m[r][3]`. Integer indices are centres of voxels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Affine(pub [[f64; 4]; 3]);

impl Affine {
    /// The grid whose depth, height and width run along z, y and x, with voxel (0, 0, 0) at the world's origin.
    pub fn from_spacing(spacing: Spacing) -> Affine {
        let [depth, height, width] = spacing.0;
        Affine([[0.0, 0.0, width, 0.0], [0.0, height, 0.0, 0.0], [depth, 0.0, 0.0, 0.0]])
    }

    /// The position in the world, in millimetres, of a (continuous) voxel index.
    pub fn apply(&self, index: [f64; 3]) -> [f64; 3] {
        matrix::apply(&self.0, index)
    }

    /// The lengths of the steps along the three array axes.
    pub fn spacing(&self) -> Spacing {
        Spacing([0, 1, 2].map(|axis| matrix::length(matrix::column(&self.0, axis))))
    }

    pub(crate) fn matrix(&self) -> &Matrix {
        &self.0
    }
}
