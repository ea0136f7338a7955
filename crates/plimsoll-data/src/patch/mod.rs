//! Patches: chosen, pulled, changed.
//!
//! A [`Sampler`] makes a [`Recipe`], which holds one map from the patch to the stored image (target spacing, rotation,
//! scale, mirroring, crop and reorientation in one); [`pull`] reads what the patch touches of a [`CaseSource`] and
//! interpolates once.

mod augmentation;
mod grid;
mod intensity;
mod pull;
mod recipe;
mod sampler;
mod source;
mod tiles;

pub use augmentation::{Augmentation, AugmentationError, Range, SpatialChange};
pub use grid::{PatchGrid, TargetGrid};
pub use intensity::{ChannelChange, IntensityChange};
pub use pull::{PatchError, Scratch, pull};
pub use recipe::Recipe;
pub use sampler::{Mode, Sampler, SamplerConfig, SamplerError};
pub use source::CaseSource;
