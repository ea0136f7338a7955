//! From a folder of images to batches of patches.
//!
//! 1. [`FoundData::find`] finds the files of each case and the channels, however they are laid out; a [`Dataset`] has classes as well.
//! 2. [`Inspection::run`] reads every image once, plane by plane. It collects all [`Problem`]s, computes the
//!    [`Fingerprint`] (sizes, spacings, intensities, the target spacing) and, for each case, a bounded
//!    [`ForegroundIndex`]. It can be saved, and is reused as long as no file changes.
//! 3. [`Splits`] divides the cases into the same folds as nnU-Net.
//! 4. A [`Sampler`] chooses patches. A [`Recipe`] is a function of seed, step and sample alone and holds one map from
//!    the patch to the stored image, composed of target spacing, rotation, scale, mirroring, crop and reorientation.
//! 5. [`pull`] reads the part of the stored image that the patch touches, in pieces that fit a fixed [`Scratch`],
//!    normalises it and interpolates once. Whole volumes are never resampled, nor copied to reorient them.
//! 6. A [`VolumeCache`] keeps decoded volumes in their stored type within a budget; volumes that do not fit are read by
//!    regions.
//! 7. A [`Loader`] prefetches the batches of consecutive steps on threads, within memory that is reserved before the
//!    first of them starts.
//! 8. A [`PreparedCase`] pulls windows as nnU-Net's own models see images: transposed, cropped, normalised in a mask, resized by splines.
//!
//! The patches of a step are bitwise independent of the number of threads and of the size of cache and scratch. A run
//! that is resumed at a step therefore continues as if it had never stopped.
//!
//! [`pictures`] has the same for plain pictures with classes.
//!
//! [`phantom::write`] generates a small data set of vessel trees to try all of this on.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod cache;
mod dataset;
mod files_memory;
mod fingerprint;
mod inspect;
mod loader;
mod mask;
mod moments;
mod normalisation;
mod patch;
mod percentile;
pub mod phantom;
pub mod pictures;
mod preparation;
mod prepare;
mod sampler;
mod splits;
mod statistics;

pub use cache::{CacheStatistics, VolumeCache};
pub use dataset::{
    BIDS_DESCRIPTION, BIDS_GENERATOR, Case, Channel, ChannelFile, DataDescription, DataOptions, DataSettings,
    Dataset, DatasetError, FoundData, FoundImages, LabelEntries, LabelEntry, LabelFault, Labels, Layout,
    LayoutName, LengthUnit, Names, Ordered, PredictedPair, Reading, ReferenceMap, RefusedImage, Region,
    RegionSettings, RegionValues, SegmentNames, SegmentRule, SegmentsBy, bids_images, bids_label,
    is_case_name, is_image_ending, is_picture_ending, is_predicted, label_ending, pair_predictions,
    prediction_ending, reference_maps, reserve_images,
};
pub use files_memory::FilesMemory;
pub use fingerprint::{BlowUp, CaseFingerprint, Fingerprint, NoStatistics};
pub use inspect::{
    ForegroundIndex, InspectConfig, InspectError, Inspection, InspectionScan, LabelCensus, MergedParts,
    PartFiles, Positions, Problem, Severity, far_apart, inspect_images, inspection_bytes, meant_unit,
};
pub use loader::{
    Answer, Batch, BatchBuffer, BatchReader, BatchShape, ImageFold, ImageSamples, Loader, LoaderConfig,
    LoaderError, MakingTimes, Patches, SampleNumbers, SamplePlace, SampleShape, SampleWorker, Samples,
    Sampling, TargetKind, TargetMap, Targets,
};
pub use normalisation::{Intensity, Normalisation};
pub use patch::{
    Augmentation, AugmentationError, BiasField, CaseSource, ChannelChange, ImageInterpolation,
    IntensityChange, PatchError, PatchGrid, Range, Recipe, Scratch, SpacingSetting, SpatialChange,
    TargetGrid, TargetSpacing, pull, resampled_shape,
};
pub use preparation::{
    Interpolation, LabelTies, LocatedSteps, MaskedNormalisation, MonaiIntensity, MonaiSteps, NnUnetSteps,
    Planes, Preparation, Resizing, StepOrder, ZoomSteps,
};
pub use prepare::{
    KeptImage, Normalising, PREPARED_SCRATCH, PrepareError, PreparedCase, PreparedGrid, Preparing,
    SpacedCase, SpacedGrid, WindowSource, ZoomedCase, ZoomedGrid, ZoomedImage, ZoomedRoom, Zooming,
};
pub use sampler::{Mode, Oversampling, Sampler, SamplerConfig, SamplerError};
pub use splits::{Fold, FoldsNeeds, Splits, SplitsError};
pub use statistics::{ChannelStatistics, IntensityProperties};
