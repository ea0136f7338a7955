//! Patches: sampling, resampling, augmentation.
//!
//! A [`Sampler`] chooses a [`Recipe`], which holds one map from the patch to the stored image (composed of target
//! spacing, rotation, scale, mirroring, crop and reorientation); [`pull`] reads the part of a [`CaseSource`] that the
//! patch touches, and interpolates once.

mod augmentation;
mod bias_field;
mod changes;
mod deformation;
mod grid;
mod intensity;
mod pull;
mod recipe;
mod sampler;
mod separable;
mod source;
mod spacing;
mod tiles;

pub use augmentation::{Augmentation, AugmentationError, ImageInterpolation, Range};
pub use bias_field::BiasField;
pub use changes::SpatialChange;
pub use grid::{PatchGrid, TargetGrid, resampled_shape};
pub use intensity::{ChannelChange, IntensityChange};
pub use pull::{PatchError, Scratch, pull};
pub use recipe::Recipe;
pub use sampler::{Mode, Oversampling, Sampler, SamplerConfig, SamplerError};
pub use source::CaseSource;
pub(crate) use source::{CaseMask, LabelMap};
pub use spacing::{SpacingSetting, TargetSpacing};
