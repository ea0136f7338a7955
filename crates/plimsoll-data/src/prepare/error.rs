//! Why a case cannot be prepared.

use std::io;
use std::path::PathBuf;

use plimsoll_memory::MapError;
use plimsoll_volume::{GeometryError, VolumeError};

use crate::{NoStatistics, PatchError};

/// Why a case cannot be prepared as its model was trained to see it.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The axes of the network are no permutation of the stored ones.
    #[error("the network's axes are the stored axes {found:?}, but these must be 0, 1 and 2 in some order")]
    Transposed {
        /// The stated order of axes.
        found: [usize; 3],
    },
    /// An image has several planes, but the model was trained on pictures.
    #[error("the image has {found} planes, but the model was trained on images of one plane")]
    SeveralPlanes {
        /// The image's number of planes.
        found: usize,
    },
    /// A picture, where images have several planes.
    #[error("the image has one plane, but the model was trained on volumes")]
    OnePlane,
    /// The case and the model have different numbers of channels.
    #[error("the case has {found} channels, but the model normalises {expected}")]
    Channels {
        /// The case's number of channels.
        found: usize,
        /// The model's number of channels.
        expected: usize,
    },
    /// Logits or labels would be resized by a spline.
    #[error("{what} would be resized by a cubic spline, which is supported only for images")]
    Cubic {
        /// Logits or labels.
        what: &'static str,
    },
    /// A cascade's earlier labels are missing, or the model does not use them.
    #[error("the model {}, but {}", if *expected { "needs the labels of an earlier one" } else { "is no stage of a cascade" }, if *expected { "there are none" } else { "it is given earlier labels" })]
    Earlier {
        /// `true` if the model needs them.
        expected: bool,
    },
    /// An earlier network's labels are of another grid.
    #[error("{}: the earlier labels have shape {found:?}, but the image has {expected:?}", path.display())]
    EarlierShape {
        /// The file.
        path: PathBuf,
        /// Its shape (depth, height, width) as stored.
        found: [usize; 3],
        /// The shape of the image.
        expected: [usize; 3],
    },
    /// A part of an image is given to a model that sees whole images.
    #[error("a part of the image was requested, but the model takes whole images")]
    Within,
    /// A case is to be seen at another spacing than its model's.
    #[error("another spacing was requested, but the model's own steps set the spacing")]
    OtherSpacing,
    /// A model that sees zoomed images would change them in a way that is not done here.
    #[error("the image would be zoomed for the model, but {why}")]
    AfterZoom {
        /// How.
        why: &'static str,
    },
    /// Axes of an image are not at right angles.
    #[error(
        "the axes of the image are not at right angles, so it cannot be resampled to another spacing along them"
    )]
    Sheared,
    /// There is no room for the source voxels of one zoomed voxel.
    #[error("the scratch holds {room} voxels, but one zoomed voxel needs eight")]
    Zoom {
        /// Voxels that there is room for.
        room: usize,
    },
    /// Voxels that were kept on the disk for several models cannot be read back.
    #[error("the image at the spacing of the network cannot be read back from the unnamed file beside {}: {source}", beside.display())]
    Kept {
        /// The path that the file is beside.
        beside: PathBuf,
        /// The disk's error.
        source: io::Error,
    },
    /// The voxels of a zoomed image cannot be numbered.
    #[error("{0}")]
    Geometry(#[from] GeometryError),
    /// A channel cannot be normalised.
    #[error("{0}")]
    Normalisation(#[from] NoStatistics),
    /// A part of an image cannot be pulled.
    #[error("{0}")]
    Patch(#[from] PatchError),
    /// An image cannot be read.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// Memory is refused.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// It was interrupted.
    #[error("interrupted")]
    Stopped,
}

impl PrepareError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PrepareError::Transposed { .. } | PrepareError::AfterZoom { .. } | PrepareError::Within => {
                Some("the model's description is damaged or from an unsupported program: check its plans.json".into())
            }
            PrepareError::Cubic { what } => Some(format!(
                "set `order` to 1, and `order_z` to 0, in `{}_kwargs` of the model's plans.json: {what} are then interpolated linearly",
                if *what == "labels" { "resampling_fn_seg" } else { "resampling_fn_probabilities" }
            )),
            PrepareError::SeveralPlanes { .. } => Some("predict each plane as a separate picture, or use a model of volumes".into()),
            PrepareError::OnePlane => Some("give a TIFF file with a page for each plane".into()),
            PrepareError::Geometry(problem) => problem.remedy(),
            PrepareError::OtherSpacing => Some("leave the other spacing out".into()),
            PrepareError::Sheared => Some("resample the image to a grid without shear".into()),
            PrepareError::Channels { .. } => Some("give the case the channels that the model's dataset.json names".into()),
            PrepareError::Earlier { expected: true } => {
                Some("predict the cases with the cascade's first stage, and give this one the folder of its labels".into())
            }
            PrepareError::Earlier { expected: false } => Some("leave the earlier labels out".into()),
            PrepareError::EarlierShape { .. } => Some("predict the earlier stage from the same images".into()),
            PrepareError::Normalisation(problem) => problem.remedy(),
            PrepareError::Patch(problem) => problem.remedy(),
            PrepareError::Volume(problem) => problem.remedy(),
            PrepareError::Kept { .. } => Some("check the disk, or write the output to another one".into()),
            PrepareError::Zoom { .. } => Some("raise ‹ram›".into()),
            PrepareError::Memory(error) => Some(error.remedy()),
            PrepareError::Stopped => None,
        }
    }
}
