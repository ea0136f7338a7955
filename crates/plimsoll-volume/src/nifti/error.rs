//! Errors of NIfTI headers.

use crate::{ElementType, GeometryError};

/// Why a header cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The first field is not the size of a NIfTI header in either byte order.
    #[error("it does not start like NIfTI: the first field is {found}, not 348 or 540")]
    NotNifti {
        /// The first four bytes as a little-endian number.
        found: i32,
    },
    /// The format's signature is missing.
    #[error("the magic is \"{found}\", not \"n+1\" or \"ni1\" (version 1), \"n+2\" or \"ni2\" (version 2)")]
    Magic {
        /// The bytes found, with unprintable ones escaped.
        found: String,
    },
    /// The header of a pair in a file that should hold the voxels as well.
    #[error(
        "the header says that the voxels are in another file (magic \"ni1\" or \"ni2\"), but it is in a .nii"
    )]
    PairInOneFile,
    /// The number of dimensions.
    #[error("dim[0], the number of dimensions, is {found}, not 1 to 7")]
    DimensionCount {
        /// `dim[0]`.
        found: i64,
    },
    /// The size of a dimension.
    #[error("dim[{index}] is {found}, but a dimension has at least 1 element")]
    Dimension {
        /// From 1.
        index: usize,
        /// `dim[index]`.
        found: i64,
    },
    /// The dimensions multiply to more bytes than can be addressed.
    #[error("the dimensions {dimensions:?} multiply to more bytes than can be addressed")]
    TooLarge {
        /// `dim[1..=dim[0]]`.
        dimensions: Vec<i64>,
    },
    /// A voxel type that is not supported.
    #[error("the voxels are of datatype {code} ({name}), which is not supported")]
    Datatype {
        /// The field.
        code: i64,
        /// The name of the field in the format.
        name: &'static str,
    },
    /// The fields datatype and bitpix contradict each other.
    #[error("bitpix is {found}, but voxels of {element_type} have {} bits", element_type.size() * 8)]
    BitsPerVoxel {
        /// The field.
        found: i64,
        /// The type according to datatype.
        element_type: ElementType,
    },
    /// The offset of the voxels cannot be used.
    #[error("vox_offset is {found}, but it must be a whole number, at least {least}")]
    VoxelOffset {
        /// The field.
        found: f64,
        /// The end of the header.
        least: usize,
    },
    /// The intercept is unusable although the slope is not.
    #[error("scl_slope is {slope}, but scl_inter is {intercept}")]
    Scaling {
        /// The slope.
        slope: f64,
        /// The intercept.
        intercept: f64,
    },
    /// The unit of length.
    #[error("xyzt_units has unit of length {code}, which the format does not define")]
    Unit {
        /// The lowest three bits.
        code: i64,
    },
    /// The spacing, where the position depends on it.
    #[error("pixdim[{index}] is {found}, but the distance between voxels must be a positive number")]
    Spacing {
        /// 1, 2, 3 for width, height, depth.
        index: usize,
        /// The field.
        found: f64,
    },
    /// The rotation.
    #[error("the quaternion (b, c, d) = {found:?} is longer than 1, so it is not a rotation")]
    Quaternion {
        /// The fields.
        found: [f64; 3],
    },
    /// The grid that the header describes is not valid.
    #[error("{problem} (from the {source_field})")]
    Geometry {
        /// The grid's error.
        #[source]
        problem: GeometryError,
        /// The fields that the grid was taken from: sform, qform or pixdim.
        source_field: &'static str,
    },
}

impl HeaderError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            HeaderError::NotNifti { .. } | HeaderError::Magic { .. } => {
                "convert the image to NIfTI; old ANALYZE files have no signature and no reliable orientation"
                    .into()
            }
            HeaderError::PairInOneFile => {
                "rename the header to .hdr and put its voxels beside it as .img".into()
            }
            HeaderError::Datatype { .. } => {
                "convert the voxels to a real number type: integers of 8 to 64 bits, float32 or float64"
                    .into()
            }
            HeaderError::Unit { .. } => "set the unit to millimetres (xyzt_units 2)".into(),
            HeaderError::Spacing { .. } | HeaderError::Quaternion { .. } => {
                "convert the image again from its source, or set its affine (the sform) by hand".into()
            }
            HeaderError::Geometry { problem, .. } => return problem.remedy(),
            HeaderError::DimensionCount { .. }
            | HeaderError::Dimension { .. }
            | HeaderError::TooLarge { .. }
            | HeaderError::BitsPerVoxel { .. }
            | HeaderError::VoxelOffset { .. }
            | HeaderError::Scaling { .. } => {
                "the header is damaged or not NIfTI: write the image again from its source".into()
            }
        })
    }
}
