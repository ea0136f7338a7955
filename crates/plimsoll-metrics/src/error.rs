//! Errors of scoring.

use std::path::{Path, PathBuf};

use plimsoll_memory::{MapError, OverBudget};
use plimsoll_morphology::MorphologyError;
use plimsoll_volume::{GeometryDifference, VolumeError};

/// Errors of scoring.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    /// A file cannot be read.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The budget has no room for the comparison.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// A mask cannot be measured.
    #[error("{0}")]
    Morphology(#[from] MorphologyError),
    /// The lengths of two label maps do not match the shape.
    #[error("a prediction of {} voxels and a reference of {} voxels do not have the shape {shape:?}", found[0], found[1])]
    Length {
        /// Voxels of prediction and reference.
        found: [usize; 2],
        /// Depth, height, width.
        shape: [usize; 3],
    },
    /// One class of a case cannot be scored.
    #[error("{}, class {class}: {source}", path.display())]
    Class {
        /// The prediction.
        path: PathBuf,
        /// The class.
        class: u8,
        /// Why.
        source: Box<MetricError>,
    },
    /// Prediction and reference do not lie on the same grid.
    #[error("{} does not lie on the grid of {}: {difference}", prediction.display(), reference.display())]
    Geometry {
        /// The prediction.
        prediction: PathBuf,
        /// The reference.
        reference: PathBuf,
        /// The difference.
        difference: GeometryDifference,
    },
    /// Positions of prediction and reference are in two frames of reference, so that they cannot be compared.
    #[error(
        "{} has the frame of reference {found}, but {} has {expected}",
        prediction.display(),
        reference.display()
    )]
    FrameOfReference {
        /// The prediction.
        prediction: PathBuf,
        /// The reference.
        reference: PathBuf,
        /// The unique identifier of the prediction's.
        found: String,
        /// The unique identifier of the reference's.
        expected: String,
    },
}

impl From<OverBudget> for MetricError {
    fn from(error: OverBudget) -> MetricError {
        MetricError::Memory(error.into())
    }
}

impl MetricError {
    /// Adds the case and the class, unless the error names a file already.
    pub(crate) fn in_class(self, path: &Path, class: u8) -> MetricError {
        match self {
            MetricError::Volume(_) => self,
            error => MetricError::Class { path: path.into(), class, source: Box::new(error) },
        }
    }

    /// Returns `true` if more memory would avoid the error.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, MetricError::Memory(_) | MetricError::Morphology(MorphologyError::Memory(_)))
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            MetricError::Volume(error) => error.remedy(),
            MetricError::Memory(error) | MetricError::Morphology(MorphologyError::Memory(error)) => {
                Some(format!("{}, or leave surface, topology and lesion out of ‹metrics›", error.remedy()))
            }
            MetricError::Morphology(error) => error.remedy(),
            MetricError::Length { .. } => None,
            MetricError::Class { source, .. } => source.remedy(),
            MetricError::FrameOfReference { .. } => {
                Some("compare label maps of the same scan, or resample one to the image of the other".into())
            }
            MetricError::Geometry { .. } => {
                Some("predictions must be on the grid of the image that the reference was drawn on".into())
            }
        }
    }
}
