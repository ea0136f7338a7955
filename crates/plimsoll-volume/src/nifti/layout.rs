//! What a header says about the voxels: how many, of what type, from which byte on.

use crate::nifti::{HeaderError, NiftiHeader};
use crate::{ByteOrder, ElementType, Geometry, Scaling};

/// How voxels lie in a file. All numbers were checked against each other and fit the address space, but not yet
/// against the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    /// The product of all dimensions beyond the third.
    pub(crate) channels: usize,
    pub(crate) element_type: ElementType,
    pub(crate) byte_order: ByteOrder,
    pub(crate) scaling: Scaling,
    /// The offset of the first voxel in the (decompressed) file.
    pub(crate) start: u64,
    /// The bytes of all voxels of all channels.
    pub(crate) bytes: u64,
}

impl Layout {
    /// One past the last byte of the voxels. It was checked to fit.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

pub(crate) fn datatype_code(element_type: ElementType) -> i64 {
    match element_type {
        ElementType::U8 => 2,
        ElementType::I16 => 4,
        ElementType::I32 => 8,
        ElementType::F32 => 16,
        ElementType::F64 => 64,
        ElementType::I8 => 256,
        ElementType::U16 => 512,
        ElementType::U32 => 768,
        ElementType::I64 => 1024,
        ElementType::U64 => 1280,
    }
}

fn element_type(code: i64) -> Result<ElementType, HeaderError> {
    if let Some(found) = ElementType::ALL.into_iter().find(|known| datatype_code(*known) == code) {
        return Ok(found);
    }
    let name = match code {
        0 => "unknown",
        1 => "binary, one bit per voxel",
        32 => "complex64",
        128 => "RGB, three bytes per voxel",
        1536 => "float128",
        1792 => "complex128",
        2048 => "complex256",
        2304 => "RGBA, four bytes per voxel",
        _ => "not defined by the format",
    };
    Err(HeaderError::Datatype { code, name })
}

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
        // False also where the offset is not a number.
        let usable = found >= least as f64 && found.fract() == 0.0;
        if !usable {
            return Err(HeaderError::VoxelOffset { found, least });
        }
        let too_large = || HeaderError::TooLarge { dimensions: dimensions.to_vec() };
        // Everything that is addressed fits both the file's and the machine's offsets.
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

    /// A slope of zero, or one that is not a number, says that the voxels are not scaled.
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
