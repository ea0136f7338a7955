//! Why a score cannot be given.

use std::path::PathBuf;

use plimsoll_memory::MapError;
use plimsoll_volume::{GeometryDifference, VolumeError};

/// Why a score cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    /// A file cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// There is no memory for the planes being compared.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// Prediction and reference do not lie on the same grid.
    #[error("{} does not lie on the grid of {}: {difference}", prediction.display(), reference.display())]
    Geometry {
        /// The prediction.
        prediction: PathBuf,
        /// The reference.
        reference: PathBuf,
        /// How they differ.
        difference: GeometryDifference,
    },
    /// A folder cannot be listed.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing to compare.
    #[error("{} holds no prediction for any reference in {}", predictions.display(), references.display())]
    NoCases {
        /// The folder of predictions.
        predictions: PathBuf,
        /// The folder of references.
        references: PathBuf,
    },
    /// A reference has no prediction.
    #[error("{} of the references in {} have no prediction in {}: {}", missing.len(), references.display(),
        predictions.display(), missing.join(", "))]
    Missing {
        /// The folder of predictions.
        predictions: PathBuf,
        /// The folder of references.
        references: PathBuf,
        /// Names of files.
        missing: Vec<String>,
    },
}

impl MetricError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            MetricError::Volume(error) => error.hint(),
            MetricError::Memory(_) => Some("raise --ram".into()),
            MetricError::Geometry { .. } => {
                Some("predictions must be on the grid of the image that the reference was drawn on".into())
            }
            MetricError::Folder { .. } => None,
            MetricError::NoCases { .. } => {
                Some("a prediction and its reference have the same file name, as `case_001.nii.gz`".into())
            }
            MetricError::Missing { .. } => {
                Some("predict these cases too, or score only those that are predicted with --partial".into())
            }
        }
    }
}
