//! The extension module of the Python package `plimsoll`.
//!
//! Functions take slices of NumPy arrays in C order with a shape of (depth, height, width); an image has a depth of 1. The package
//! in `python/plimsoll` checks and converts arguments, names them in errors, and documents the functions. The module `extension`
//! alone knows Python and is compiled with the feature `extension`; the rest is tested without it.

mod distance;
mod error;
mod estimate;
// Tests run without Python.
#[cfg(all(feature = "extension", not(test)))]
mod extension;
mod interactive;
mod jobs;
mod ledger;
mod masks;
mod model;
mod model_failure;
mod model_files;
mod model_jobs;
mod open_ranks;
mod patches;
mod scores;
mod window;
mod wording;

pub use distance::{
    DistanceOptions, Grid, distance_transform, distance_transform_of_voxels, features_of, indices,
};
pub use error::Failure;
pub use estimate::{CurvePoint, Operation, Parts, StepMemory, StepPlan, StepTrace, Storage, StorageRole};
pub use interactive::{ArraySession, MaskKind, SessionDescription, SessionOptions};
pub use jobs::{Job, JobFailure, Kind, Pending, Running, job, launched_ranks};
pub use ledger::{Resources, holders, process_budget, unlimited};
pub use masks::{connected_components, dilated_skeleton, fill_holes, keep_largest_component, neighbours};
pub use model::{ArrayModel, ImagePlan, ModelDescription, ModelOptions, OutputFiles, element_type, geometry};
pub use model_files::{image_shape, read_labels, write_image};
pub use model_jobs::{FolderOptions, SegmentOptions, import_archive, predict_folder, segment_images, tasks};
pub use open_ranks::close_ranks;
pub use patches::{
    AugmentationChoice, EpochLength, InProcess, LabelBuffer, LabelType, PatchBatch, PatchOptions,
    PatchSettings, PatchStream, StreamFacts, Turn, Warnings, parsed, section_by_name,
};
pub use scores::{
    Distances, LabelScores, ScoreOptions, evaluate, group, metric_name, surface, surface_distances,
};
pub use window::{WindowOutput, add_windows};
pub use wording::Keywords;
