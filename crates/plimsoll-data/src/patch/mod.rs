//! Patches: resampling and augmentation.
//!
//! A [`Recipe`] holds one map from the patch to the stored image (composed of target spacing, rotation, scale, mirroring,
//! crop and reorientation); [`pull`] reads the part of a [`CaseSource`] that the patch touches, and interpolates once.

mod augmentation;
mod bias_field;
mod changes;
mod deformation;
mod grid;
mod intensity;
mod pull;
mod recipe;
mod separable;
mod source;
mod spacing;
mod tiles;
pub(crate) mod zoom;

pub use augmentation::{Augmentation, AugmentationError, ImageInterpolation, Range};
pub use bias_field::BiasField;
pub use changes::SpatialChange;
pub use grid::{PatchGrid, TargetGrid, resampled_shape};
pub use intensity::{ChannelChange, IntensityChange};
pub use pull::{PatchError, Scratch, pull};
pub use recipe::Recipe;
pub(crate) use recipe::Stream;
pub use source::CaseSource;
pub(crate) use source::{CaseMask, LabelMap};
pub use spacing::{SpacingSetting, TargetSpacing};
