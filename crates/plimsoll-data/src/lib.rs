//! From a folder of images to batches of patches.
//!
//! 1. [`Dataset::open`] reads what the folder says of itself: channels, labels, and the files of each case. nnU-Net's raw
//!    format and the Decathlon's become the same thing.
//! 2. [`Inspection::run`] reads every image once, plane by plane. It collects all [`Problem`]s, makes the
//!    [`Fingerprint`] (sizes, spacings, intensities, the target spacing) and, of each case, a bounded
//!    [`ForegroundIndex`]. It can be saved and is read again as long as no file changes.
//! 3. [`Splits`] divides the cases into the folds that nnU-Net makes.
//! 4. A [`Sampler`] chooses patches. A [`Recipe`] is a function of seed, step and sample alone and holds one map from the
//!    patch to the stored image: target spacing, rotation, scale, mirroring, crop and reorientation composed.
//! 5. [`pull`] reads the part of the stored image that the patch touches, in pieces that fit a fixed [`Scratch`],
//!    normalises it and interpolates once. Volumes are never resampled whole, never reoriented by copying.
//! 6. A [`VolumeCache`] keeps decoded volumes in their stored type within a budget; what does not fit is read by regions.
//! 7. A [`Loader`] has threads make the batches of consecutive steps ahead of time, within memory that is reserved before
//!    the first of them starts.
//!
//! Which patch belongs to a step, and every bit of it, depends neither on the number of threads nor on the size of cache
//! and scratch. So a run that is resumed at a step goes on as if it had never stopped.
//!
//! [`phantom::write`] makes a small data set of vessel trees to try all of this on.

pub mod atomic;
mod cache;
mod dataset;
mod fingerprint;
mod inspect;
mod loader;
mod normalisation;
mod patch;
pub mod phantom;
mod random;
mod splits;

pub use cache::{CacheStatistics, VolumeCache};
pub use dataset::{Case, Channel, ChannelFile, Dataset, DatasetError, Labels};
pub use fingerprint::{
    BlowUp, CaseFingerprint, ChannelStatistics, Fingerprint, IntensityProperties, NoForeground,
    resampled_shape,
};
pub use inspect::{
    ForegroundIndex, InspectConfig, InspectError, Inspection, Positions, Problem, Severity, inspect_images,
};
pub use loader::{
    Batch, BatchBuffer, BatchReader, BatchShape, Loader, LoaderConfig, LoaderError, MakingTimes, Patches,
    TargetKind, TargetMap, Targets,
};
pub use normalisation::{Intensity, Normalisation};
pub use patch::{
    Augmentation, AugmentationError, CaseSource, ChannelChange, IntensityChange, Mode, PatchError, PatchGrid,
    Range, Recipe, Sampler, SamplerConfig, SamplerError, Scratch, SpatialChange, TargetGrid, pull,
};
pub use splits::{Fold, Splits, SplitsError};
