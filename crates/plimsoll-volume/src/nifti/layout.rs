//! The layout of the voxels by a header: number, type, and offset in the file.

use crate::Scaling;
use crate::layout::Layout;
use crate::nifti::datatype::element_type;
use crate::nifti::{HeaderError, NiftiHeader};

impl NiftiHeader {
    pub(crate) fn layout(&self) -> Result<Layout, HeaderError> {
        let fields = &self.fields;
        let count = match fields.dim[0] {
            count @ 1..=7 => count as usize,
            found => return Err(HeaderError::DimensionCount { found }),
        };
        let dimensions = &fields.dim[1..=count];
        if let Some(index) = dimensions.iter().position(|size| *size < 1) {
            return Err(HeaderError::Dimension { index: index + 1, found: dimensions[index] });
        }
        let element_type = element_type(fields.datatype)?;
        if fields.bitpix != element_type.size() as i64 * 8 {
            return Err(HeaderError::BitsPerVoxel { found: fields.bitpix, element_type });
        }
        let least = if self.pair { 0 } else { self.version.single_file_offset() };
        let found = fields.vox_offset;
        // Also false if the offset is NaN.
        let usable = found >= least as f64 && found.fract() == 0.0;
        if !usable {
            return Err(HeaderError::VoxelOffset { found, least });
        }
        let too_large = || HeaderError::TooLarge { dimensions: dimensions.to_vec() };
        // The largest offset that both files and this machine can address.
        let limit = (isize::MAX as u64).min(i64::MAX as u64);
        let product =
            |sizes: &[i64]| sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size as u64));
        let bytes = product(dimensions)
            .and_then(|elements| elements.checked_mul(element_type.size() as u64))
            .filter(|bytes| *bytes <= limit)
            .ok_or_else(too_large)?;
        if found > limit as f64 || bytes.checked_add(found as u64).is_none_or(|end| end > limit) {
            return Err(too_large());
        }
        let channels = product(dimensions.get(3..).unwrap_or_default()).ok_or_else(too_large)? as usize;
        let size = |axis: usize| dimensions.get(axis).map_or(1, |size| *size as usize);
        Ok(Layout {
            geometry: self.geometry([size(2), size(1), size(0)])?,
            channels,
            element_type,
            byte_order: self.byte_order,
            scaling: self.scaling()?,
            start: found as u64,
            bytes,
        })
    }

    /// A slope that is zero or not finite means that the voxels are not scaled.
    fn scaling(&self) -> Result<Scaling, HeaderError> {
        let (slope, intercept) = (self.fields.scl_slope, self.fields.scl_inter);
        if slope == 0.0 || !slope.is_finite() {
            return Ok(Scaling::NONE);
        }
        if !intercept.is_finite() {
            return Err(HeaderError::Scaling { slope, intercept });
        }
        Ok(Scaling { slope, intercept })
    }
}
