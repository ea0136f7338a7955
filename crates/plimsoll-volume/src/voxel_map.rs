//! Affine maps from the voxels of an output grid to the voxels of a source image.

use crate::matrix::{self, Matrix};
use crate::{Geometry, Spacing, VoxelBox};

/// An affine map from output voxel indices to source voxel indices, both (depth, height, width), continuous, with the
/// centres of voxels at integers. Row `a` gives the source index along axis `a`.
///
/// The steps of an augmentation are composed into one map, so that a patch is interpolated only once. Entries within
/// 1e-9 of an integer (1e-7 for the translation) are rounded to it, so that maps with integer entries stay exact after
/// composition; over an output of a thousand voxels this moves a sample by at most a few millionths of a voxel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoxelMap {
    matrix: Matrix,
}

/// The map is singular, so it has no inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the voxel map is singular: it maps the output to a plane or a straight line of the source")]
pub struct SingularMap;

impl VoxelMap {
    /// Every output voxel is the source voxel of the same index.
    pub const IDENTITY: VoxelMap = VoxelMap { matrix: matrix::IDENTITY };

    /// The map with these rows.
    pub fn new(rows: [[f64; 4]; 3]) -> VoxelMap {
        let snap = |value: f64, tolerance: f64| {
            let whole = value.round();
            // Adding zero turns −0 into 0.
            if (value - whole).abs() < tolerance { whole + 0.0 } else { value }
        };
        VoxelMap {
            matrix: rows.map(|[depth, height, width, shift]| {
                [snap(depth, 1e-9), snap(height, 1e-9), snap(width, 1e-9), snap(shift, 1e-7)]
            }),
        }
    }

    /// source = output + `offset`, in voxels: a crop that starts at `offset`.
    pub fn translation(offset: [f64; 3]) -> VoxelMap {
        let mut rows = matrix::IDENTITY;
        for (row, shift) in rows.iter_mut().zip(offset) {
            row[3] = shift;
        }
        VoxelMap::new(rows)
    }

    /// source = `centre` + `factors` × (output − `centre`). With a factor above 1 the output covers more of the source.
    pub fn scale(factors: [f64; 3], centre: [f64; 3]) -> VoxelMap {
        let mut rows = [[0.0; 4]; 3];
        for axis in 0..3 {
            rows[axis][axis] = factors[axis];
        }
        VoxelMap::about(rows, centre)
    }

    /// Rotates the output lattice about `centre` (in voxels) by `radians` about the (depth, height, width) axes,
    /// applied in the order width, height, depth. About the depth axis, positive angles rotate height towards width;
    /// about height, width towards depth; about width, depth towards height. The rotation is rigid in millimetres on a
    /// grid of this `spacing`.
    pub fn rotation(radians: [f64; 3], spacing: Spacing, centre: [f64; 3]) -> VoxelMap {
        let turns = [0, 1, 2].map(|axis| {
            let (from, to) = ((axis + 1) % 3, (axis + 2) % 3);
            let (sine, cosine) = radians[axis].sin_cos();
            let mut turn = matrix::IDENTITY;
            turn[from][from] = cosine;
            turn[from][to] = -sine;
            turn[to][from] = sine;
            turn[to][to] = cosine;
            turn
        });
        let mut rows = matrix::compose(&turns[0], &matrix::compose(&turns[1], &turns[2]));
        for (row, values) in rows.iter_mut().enumerate() {
            for (column, value) in values.iter_mut().take(3).enumerate() {
                *value *= spacing.0[column] / spacing.0[row];
            }
        }
        VoxelMap::about(rows, centre)
    }

    /// From the voxels of `output` to the voxels of `source` at the same places in the world.
    pub fn between(output: &Geometry, source: &Geometry) -> VoxelMap {
        VoxelMap::new(matrix::compose(source.inverse(), output.affine().matrix()))
    }

    /// From a grid of `output_shape` to one of `source_shape` that occupies the same box: source = (output + ½) ×
    /// source ÷ output − ½ along each axis. It is the convention of `skimage.transform.resize` and of PyTorch's
    /// `interpolate` without aligned corners.
    pub fn resize(output_shape: [usize; 3], source_shape: [usize; 3]) -> VoxelMap {
        let factors: [f64; 3] =
            std::array::from_fn(|axis| source_shape[axis] as f64 / output_shape[axis] as f64);
        VoxelMap::scale(factors, [-0.5; 3])
    }

    /// The linear part of `rows`, with `centre` as its fixed point.
    fn about(mut rows: Matrix, centre: [f64; 3]) -> VoxelMap {
        for (row, at) in rows.iter_mut().zip(centre) {
            row[3] = 0.0;
            row[3] = at - matrix::coordinate(row, centre);
        }
        VoxelMap::new(rows)
    }

    /// This map first, then `next`: if this goes from output to middle and `next` from middle to source, the result
    /// goes from output to source.
    pub fn then(&self, next: &VoxelMap) -> VoxelMap {
        VoxelMap::new(matrix::compose(&next.matrix, &self.matrix))
    }

    /// The map from source to output.
    ///
    /// # Errors
    /// Returns an error if this map is singular.
    pub fn inverse(&self) -> Result<VoxelMap, SingularMap> {
        matrix::inverse(&self.matrix).map(VoxelMap::new).ok_or(SingularMap)
    }

    /// The source index (in voxels) of an output index.
    pub fn apply(&self, output: [f64; 3]) -> [f64; 3] {
        matrix::apply(&self.matrix, output)
    }

    /// The rows of the map.
    pub fn rows(&self) -> [[f64; 4]; 3] {
        self.matrix
    }

    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// The source voxels that linear or nearest interpolation of an output of `output_shape` can read, with `margin`
    /// voxels more on each side, clipped to the source; `None` if the output lies wholly outside of the source.
    pub fn source_box(
        &self,
        output_shape: [usize; 3],
        source_shape: [usize; 3],
        margin: usize,
    ) -> Option<VoxelBox> {
        if output_shape.contains(&0) || source_shape.contains(&0) {
            return None;
        }
        let reach = margin as f64;
        // The comparisons are also false if a coordinate is NaN.
        let touches =
            self.extent(output_shape).into_iter().zip(source_shape).all(|((low, high), voxels)| {
                high.ceil() + reach >= 0.0 && low.floor() - reach < voxels as f64
            });
        if touches { self.clamped_source_box(output_shape, source_shape, margin) } else { None }
    }

    /// The source box like [`source_box`](Self::source_box), for samples that are clamped to the source: where the output lies outside
    /// along an axis, the outermost source voxels along that axis. `None` only if a shape is empty.
    pub fn clamped_source_box(
        &self,
        output_shape: [usize; 3],
        source_shape: [usize; 3],
        margin: usize,
    ) -> Option<VoxelBox> {
        if output_shape.contains(&0) || source_shape.contains(&0) {
            return None;
        }
        let margin = margin as f64;
        let mut start = [0; 3];
        let mut end = [0; 3];
        for (axis, (low, high)) in self.extent(output_shape).into_iter().enumerate() {
            let last = (source_shape[axis] - 1) as f64;
            start[axis] = (low.floor() - margin).max(0.0).min(last) as usize;
            end[axis] = ((high.ceil() + margin).max(0.0).min(last) as usize) + 1;
        }
        Some(VoxelBox::between(start, end))
    }

    /// The least and the greatest source index along each source axis over the whole output lattice, which must not
    /// be empty.
    pub(crate) fn extent(&self, output_shape: [usize; 3]) -> [(f64, f64); 3] {
        self.matrix.map(|row| {
            let corner = |greatest: bool| -> [f64; 3] {
                std::array::from_fn(|axis| {
                    let far = (row[axis] > 0.0) == greatest;
                    if far { output_shape[axis].saturating_sub(1) as f64 } else { 0.0 }
                })
            };
            (matrix::coordinate(&row, corner(false)), matrix::coordinate(&row, corner(true)))
        })
    }
}
