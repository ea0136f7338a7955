//! Errors of operations on masks.

use plimsoll_memory::MapError;

/// Why an operation on a mask failed.
#[derive(Debug, thiserror::Error)]
pub enum MorphologyError {
    /// A buffer's length is not the number of voxels.
    #[error("{buffer} has {found} elements, but the shape {shape:?} has {needed} voxels")]
    Length {
        /// The buffer.
        buffer: &'static str,
        /// Its elements.
        found: usize,
        /// The voxels of the shape.
        needed: usize,
        /// The shape: depth, height, width.
        shape: [usize; 3],
    },
    /// The scratch buffer is too small.
    #[error("the scratch buffer has {found} bytes, but {needed} are needed")]
    Scratch {
        /// Its bytes.
        found: usize,
        /// The bytes needed.
        needed: usize,
    },
    /// The shape has more voxels than this machine can address.
    #[error("the shape {shape:?} has more voxels than this machine can address")]
    TooLarge {
        /// The shape: depth, height, width.
        shape: [usize; 3],
    },
    /// There are more voxels than 32 bits can number.
    #[error("the shape {shape:?} has {voxels} voxels, more than the {} that 32 bits can number", u32::MAX)]
    TooManyVoxels {
        /// The voxels of the shape.
        voxels: usize,
        /// The shape: depth, height, width.
        shape: [usize; 3],
    },
    /// A spacing is not a positive, finite number of a usable size.
    #[error(
        "the spacing {spacing:?} mm has an element that is not positive and finite, or so small or large that squared \
         distances leave the range of 32-bit floating point"
    )]
    Spacing {
        /// The spacing: depth, height, width, in millimetres.
        spacing: [f64; 3],
    },
    /// The number of threads is 0.
    #[error("0 threads were given")]
    NoThreads,
    /// Memory for intermediate results is not available.
    #[error("{0}")]
    Memory(#[from] MapError),
}

impl MorphologyError {
    /// A remedy to suggest to the user, if there is one.
    pub fn remedy(&self) -> Option<String> {
        match self {
            MorphologyError::Length { needed, .. } => {
                Some(format!("give it {needed} elements in the order depth, height, width"))
            }
            MorphologyError::Scratch { needed, .. } => {
                Some(format!("use `scratch_bytes` with the same settings; it returns {needed} here"))
            }
            MorphologyError::TooManyVoxels { .. } => Some("crop the volume to the box of its labels".into()),
            MorphologyError::Spacing { .. } => {
                Some("take the spacing from the image's header, in millimetres per voxel".into())
            }
            MorphologyError::NoThreads => Some("give at least 1".into()),
            MorphologyError::TooLarge { .. } | MorphologyError::Memory(_) => None,
        }
    }
}
