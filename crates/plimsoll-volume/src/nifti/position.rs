//! The position of the voxels in the world, from a header.
//!
//! NIfTI's own axes are (i, j, k) with i the fastest, which are our (width, height, depth); its world is RAS. Three
//! methods are defined; the first that the header declares is used: the sform (an affine as it is), the qform (a
//! rotation, an offset and the spacing), or the spacing alone. The last puts voxel (0, 0, 0) at the origin with i, j, k
//! along +x, +y, +z, as method 1 of the standard defines; some programs flip the x axis there, as ANALYZE did.

use crate::nifti::{HeaderError, NiftiHeader};
use crate::{Affine, Geometry, Spacing};

/// The tolerance of the squared length of a unit quaternion's vector part above 1, as it was stored as f32.
const QUATERNION_SLACK: f64 = 1e-5;

impl NiftiHeader {
    /// The grid of `shape` = (depth, height, width).
    pub(crate) fn geometry(&self, shape: [usize; 3]) -> Result<Geometry, HeaderError> {
        let fields = &self.fields;
        let (rows, source_field) = if fields.sform_code > 0 {
            (fields.srow, "sform")
        } else if fields.qform_code > 0 {
            (self.qform()?, "qform")
        } else {
            let [width, height, depth] = self.voxel_size()?;
            ([[width, 0.0, 0.0, 0.0], [0.0, height, 0.0, 0.0], [0.0, 0.0, depth, 0.0]], "pixdim")
        };
        let unit = self.millimetres_per_unit()?;
        let rows = rows.map(|[i, j, k, shift]| [k, j, i, shift].map(|value| value * unit));
        Geometry::new(shape, Affine(rows)).map_err(|problem| HeaderError::Geometry { problem, source_field })
    }

    /// The distance between voxels in millimetres as pixdim states it, whatever the affine; `None` where it or its unit is not usable.
    pub fn stated_spacing(&self) -> Option<Spacing> {
        let ([width, height, depth], unit) = (self.voxel_size().ok()?, self.millimetres_per_unit().ok()?);
        Some(Spacing([depth * unit, height * unit, width * unit]))
    }

    /// pixdim[1..=3]: the distance between voxels along (i, j, k). Axes that the file does not have get 1.
    fn voxel_size(&self) -> Result<[f64; 3], HeaderError> {
        let mut size = [1.0; 3];
        for (axis, value) in size.iter_mut().enumerate() {
            let found = self.fields.pixdim[axis + 1];
            let usable = found.is_finite() && found > 0.0;
            if usable {
                *value = found;
            } else if (axis as i64) < self.fields.dim[0] {
                return Err(HeaderError::Spacing { index: axis + 1, found });
            }
        }
        Ok(size)
    }

    /// Method 2 of the standard: the rotation of the unit quaternion (a, b, c, d), whose a follows from the others; k
    /// is flipped if pixdim[0], called qfac, is negative.
    fn qform(&self) -> Result<[[f64; 4]; 3], HeaderError> {
        let found = self.fields.quatern;
        let square: f64 = found.iter().map(|x| x * x).sum();
        if square > 1.0 + QUATERNION_SLACK {
            return Err(HeaderError::Quaternion { found });
        }
        // A half turn has a = 0, where rounding can leave the rest a little longer or shorter than 1.
        let (a, [b, c, d]) = if 1.0 - square < 1e-7 {
            (0.0, found.map(|x| x / square.sqrt()))
        } else {
            ((1.0 - square).sqrt(), found)
        };
        let rotation = [
            [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
            [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
            [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ];
        let [i, j, mut k] = self.voxel_size()?;
        if self.fields.pixdim[0] < 0.0 {
            k = -k;
        }
        let offset = self.fields.qoffset;
        Ok(std::array::from_fn(|row| {
            [rotation[row][0] * i, rotation[row][1] * j, rotation[row][2] * k, offset[row]]
        }))
    }

    /// An unknown unit means millimetres, as all programs assume in practice.
    pub(crate) fn millimetres_per_unit(&self) -> Result<f64, HeaderError> {
        match self.fields.xyzt_units & 0b111 {
            0 | 2 => Ok(1.0),
            1 => Ok(1000.0),
            3 => Ok(0.001),
            code => Err(HeaderError::Unit { code }),
        }
    }
}
