//! Why a label map cannot be processed.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_memory::MapError;
use plimsoll_morphology::MorphologyError;
use plimsoll_volume::{GeometryDifference, GeometryError, VolumeError};

/// Why a label map cannot be processed.
#[derive(Debug, thiserror::Error)]
pub enum PostprocessError {
    /// A label map cannot be read or written.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The budget has no room for a label map.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// Components, holes or distances of a mask cannot be found.
    #[error("{0}")]
    Morphology(#[from] MorphologyError),
    /// A voxel is no label.
    #[error("{}: voxel {voxel:?} is {value}, but labels are whole numbers from 0 to 65535", path.display())]
    NotALabel {
        /// The file.
        path: PathBuf,
        /// Depth, height, width.
        voxel: [usize; 3],
        /// The value.
        value: f32,
    },
    /// A file has several channels.
    #[error("{} has {channels} channels, but a label map has one", path.display())]
    Channels {
        /// The file.
        path: PathBuf,
        /// The number of channels.
        channels: usize,
    },
    /// A radius reaches so far around a label that its box cannot be addressed.
    #[error(
        "a radius of {radius_mm} mm around a box of shape {shape:?} needs more voxels than can be addressed"
    )]
    Radius {
        /// The radius.
        radius_mm: f64,
        /// The box around the label: depth, height, width.
        shape: [usize; 3],
    },
    /// A file of steps is none.
    #[error("{}{}: {why}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Steps {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where it is known.
        line: Option<usize>,
        /// The problem.
        why: String,
    },
    /// A file of steps cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A label map cannot be processed.
    #[error("{}: {source}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<PostprocessError>,
    },
    /// The grid at right angles around a sheared one is none.
    #[error("a grid at right angles around it: {0}")]
    Grid(#[from] GeometryError),
    /// A prediction and its reference are not on one grid.
    #[error("{} does not lie on the grid of {}: {difference}", prediction.display(), reference.display())]
    OtherGrid {
        /// The prediction.
        prediction: PathBuf,
        /// The reference.
        reference: PathBuf,
        /// The difference.
        difference: GeometryDifference,
    },
    /// There is nothing to choose from.
    #[error("there are no {missing} to choose steps by")]
    Nothing {
        /// Cases, or labels.
        missing: &'static str,
    },
}

impl PostprocessError {
    /// The same with the label map that it is of, where it does not say so itself.
    pub(crate) fn in_map(self, path: &Path) -> PostprocessError {
        match self {
            PostprocessError::Memory(_)
            | PostprocessError::Morphology(_)
            | PostprocessError::Grid(_)
            | PostprocessError::Radius { .. } => {
                PostprocessError::Map { path: path.into(), source: Box::new(self) }
            }
            other => other,
        }
    }

    /// Returns a remedy, or `None` if the system's error says enough.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PostprocessError::Volume(error) => error.remedy(),
            PostprocessError::Grid(error) => error.remedy(),
            PostprocessError::Memory(error)
            | PostprocessError::Morphology(MorphologyError::Memory(error)) => Some(error.remedy()),
            PostprocessError::Morphology(_) => Some("check the file with ‹job inspect›".into()),
            PostprocessError::NotALabel { .. } => {
                Some("give it label maps, not images or probabilities".into())
            }
            PostprocessError::Channels { .. } => Some("give it label maps of one channel".into()),
            PostprocessError::Radius { .. } => Some("take a smaller radius".into()),
            PostprocessError::Steps { .. } => {
                Some("docs/postprocessing.md explains the format of steps".into())
            }
            PostprocessError::Io { .. } => None,
            PostprocessError::Map { source, .. } => source.remedy(),
            PostprocessError::OtherGrid { .. } => {
                Some("give it predictions and references of the same images".into())
            }
            PostprocessError::Nothing { .. } => {
                Some("predict cases whose labels are known first, as ‹job train› does unless ‹skip_validation› is given".into())
            }
        }
    }
}
