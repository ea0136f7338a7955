//! The codes of the field `datatype`.

use crate::ElementType;
use crate::nifti::HeaderError;

/// The code of a voxel type.
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

/// The voxel type of a code.
pub(crate) fn element_type(code: i64) -> Result<ElementType, HeaderError> {
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
