//! Why files of DICOM are no volume.

use std::io;
use std::path::PathBuf;

use plimsoll_memory::{MapError, OverBudget};
use plimsoll_volume::{GeometryError, VolumeError};

/// Why files of DICOM are no volume.
#[derive(Debug, thiserror::Error)]
pub enum DicomError {
    /// The system refuses a file or a folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file begins as DICOM does, and cannot be read on.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        why: String,
    },
    /// An attribute is missing, or is not what it must be.
    #[error("{}: {attribute} {why}", path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// Its name.
        attribute: &'static str,
        /// What is wrong.
        why: String,
    },
    /// No file is a slice.
    #[error("{} has no slices of DICOM", folder.display())]
    Nothing {
        /// The folder.
        folder: PathBuf,
    },
    /// There is more than one series.
    #[error("{} has {} series: {}", folder.display(), series.len(), series.join("; "))]
    Several {
        /// The folder.
        folder: PathBuf,
        /// Of each what it is, how many slices it has, and the first of its files.
        series: Vec<String>,
    },
    /// A slice is not as the others are.
    #[error("{} has {what} {found}, but {} has {expected}", path.display(), other.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// In what.
        what: &'static str,
        /// What it has.
        found: String,
        /// The first file.
        other: PathBuf,
        /// What that has.
        expected: String,
    },
    /// Two slices are at one place.
    #[error("{} and {} are both at {position:.3} mm", one.display(), other.display())]
    Doubled {
        /// The first.
        one: PathBuf,
        /// The second.
        other: PathBuf,
        /// Along the normal of the slices.
        position: f64,
    },
    /// Slices are not equally far apart.
    #[error(
        "between {} and {} there are {found:.3} mm, but slices are {usual:.3} mm apart{}",
        one.display(),
        other.display(),
        missing.map(|missing| format!(": {missing} missing")).unwrap_or_default()
    )]
    Gap {
        /// The slice below.
        one: PathBuf,
        /// The slice above.
        other: PathBuf,
        /// Millimetres between them.
        found: f64,
        /// The median.
        usual: f64,
        /// How many slices would fit between them, if it is a whole number.
        missing: Option<usize>,
    },
    /// Slices are not on top of each other.
    #[error("the slices in {} are stacked along a line that is tilted by {degrees:.2}° against them", folder.display())]
    Tilted {
        /// The folder.
        folder: PathBuf,
        /// How much.
        degrees: f64,
    },
    /// The grid is none.
    #[error("{}: {source}", folder.display())]
    Grid {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: GeometryError,
    },
    /// The image cannot be written.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The budget has no room for a slice.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The budget has no room for a file.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// It was interrupted.
    #[error("interrupted while reading {}; nothing was written", folder.display())]
    Interrupted {
        /// The folder.
        folder: PathBuf,
    },
}

impl DicomError {
    /// What to do about it; none where the error of the system says it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            DicomError::Io { .. } => return None,
            DicomError::Unreadable { .. } => {
                "copy the file again from where it is from, or take it away".into()
            }
            DicomError::Attribute { .. } => "take away what is no slice of a volume".into(),
            DicomError::Nothing { .. } => "name the folder of one series, or a .nii.gz image".into(),
            DicomError::Several { .. } => "put each series into a folder of its own".into(),
            DicomError::Differs { .. } => "put only slices of one volume into the folder".into(),
            DicomError::Doubled { .. } => "take one of them away, or divide what are several volumes".into(),
            DicomError::Gap { .. } => "copy the series again: it is not complete".into(),
            DicomError::Tilted { .. } => "bring it to a straight grid first: the gantry was tilted".into(),
            DicomError::Grid { source, .. } => return source.hint(),
            DicomError::Volume(error) => return error.hint(),
            DicomError::Memory(_) | DicomError::OverBudget(_) => "raise --ram".into(),
            DicomError::Interrupted { .. } => "give the same command again".into(),
        })
    }
}
