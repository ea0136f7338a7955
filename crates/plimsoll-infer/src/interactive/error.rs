//! Why a prompt or an image cannot be used.

use plimsoll_memory::{MapError, OverBudget};
use plimsoll_plan::EngineError;
use plimsoll_volume::VolumeError;

use crate::error::InferError;
use crate::interactive::prompts::MOST_PROMPTS;

/// Why an interactive session cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum InteractiveError {
    /// The network cannot be planned, loaded or run, or memory is refused.
    #[error("{0}")]
    Infer(#[from] InferError),
    /// An image or a mask cannot be read.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The session has no image yet.
    #[error("the session has no image")]
    NoImage,
    /// An image has no voxel along an axis.
    #[error("an image of {shape:?} voxels has none along an axis")]
    NoVoxels {
        /// Depth, height, width.
        shape: [usize; 3],
    },
    /// An image has other channels than the network takes.
    #[error("the image has {found} channels, but the model takes 1")]
    Channels {
        /// The number of channels.
        found: usize,
    },
    /// A voxel of the image is not finite.
    #[error("voxel {voxel:?} of the image is not finite")]
    ImageNotFinite {
        /// Depth, height, width.
        voxel: [usize; 3],
    },
    /// All voxels of the image are 0.
    #[error("all voxels of the image are 0")]
    EmptyImage,
    /// All intensities of the image are equal.
    #[error("all intensities of the image are equal")]
    ConstantImage,
    /// The model does not know a kind of prompt.
    #[error("the model does not support {prompt}; it supports {known}")]
    Unsupported {
        /// The kind of prompt.
        prompt: &'static str,
        /// The kinds that the model knows.
        known: String,
    },
    /// A prompt has no voxel in the image.
    #[error("{prompt} at {from:?} is outside of the image, whose shape is {shape:?}")]
    Outside {
        /// The kind of prompt.
        prompt: &'static str,
        /// Its first voxel: depth, height, width.
        from: [i64; 3],
        /// The shape of the image.
        shape: [usize; 3],
    },
    /// A prompt marks no voxel.
    #[error("{prompt} marks no voxel")]
    NoMarks {
        /// The kind of prompt.
        prompt: &'static str,
    },
    /// A box has no voxel along an axis.
    #[error("the box from {start:?} to {end:?} has no voxel along an axis")]
    EmptyBox {
        /// The first voxel.
        start: [i64; 3],
        /// The voxel past the last along each axis.
        end: [i64; 3],
    },
    /// A mask does not have as many voxels as its shape says, or an initial segmentation has another shape than the image.
    #[error("{prompt} has {found} voxels, but a shape of {shape:?} has {expected}")]
    Length {
        /// The kind of prompt.
        prompt: &'static str,
        /// The number of voxels.
        found: usize,
        /// The shape.
        shape: [usize; 3],
        /// The number of voxels of the shape.
        expected: usize,
    },
    /// There are too many prompts.
    #[error("the object has {MOST_PROMPTS} prompts, the most that are possible")]
    TooManyPrompts,
    /// The network's output is not finite.
    #[error("the network's output is not finite in the patch at voxel {start:?}")]
    NotFinite {
        /// The first voxel of the patch.
        start: [i64; 3],
    },
    /// The prediction was stopped.
    #[error("the prediction was stopped; the segmentation is unchanged")]
    Stopped,
}

impl InteractiveError {
    /// Returns a remedy.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            InteractiveError::Infer(error) => return error.remedy(),
            InteractiveError::Volume(error) => return error.remedy(),
            InteractiveError::NoImage => "set an image first".into(),
            InteractiveError::NoVoxels { .. } => {
                "give it an image of at least one voxel along each axis".into()
            }
            InteractiveError::Channels { .. } => "give it one channel of the image".into(),
            InteractiveError::ImageNotFinite { .. } => "replace such voxels by a finite number".into(),
            InteractiveError::EmptyImage | InteractiveError::ConstantImage => {
                "give it an image with different intensities".into()
            }
            InteractiveError::Unsupported { prompt: SOLID_BOX, .. } => {
                "give a box of one voxel along one axis".into()
            }
            InteractiveError::Unsupported { .. } => "use one of these kinds of prompts".into(),
            InteractiveError::Outside { .. } => {
                "give voxels in the order depth, height, width, from 0 on".into()
            }
            InteractiveError::NoMarks { .. } => "mark at least one voxel with a value other than 0".into(),
            InteractiveError::EmptyBox { .. } => {
                "the end of a box is past its last voxel: add 1 to it along each axis".into()
            }
            InteractiveError::Length { .. } => "give one value for each voxel of the shape".into(),
            InteractiveError::TooManyPrompts => {
                "continue from the present segmentation as the initial one, which removes all prompts".into()
            }
            InteractiveError::NotFinite { .. } => "the weights are damaged: use another checkpoint".into(),
            InteractiveError::Stopped => "predict again to continue with the same prompts".into(),
        })
    }
}

/// The name of a box of more than one voxel along each axis.
pub(crate) const SOLID_BOX: &str = "a solid box";

impl From<OverBudget> for InteractiveError {
    fn from(error: OverBudget) -> InteractiveError {
        InferError::from(error).into()
    }
}

impl From<MapError> for InteractiveError {
    fn from(error: MapError) -> InteractiveError {
        InferError::from(error).into()
    }
}

impl From<EngineError> for InteractiveError {
    fn from(error: EngineError) -> InteractiveError {
        InferError::from(error).into()
    }
}
