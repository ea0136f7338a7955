//! Plain pictures for classification: data sets, the pipeline from a file to a tensor, prepared pictures in memory, and phantoms.
//!
//! 1. [`ImageDataset`] lists the cases of a data set, from a folder for each class or from a table, by reading names and labels
//!    alone; [`inspect`] names what is wrong with the images before a run starts, and [`folds`] divides the cases.
//! 2. A [`Pipeline`] crops, equalises, resizes, augments and normalises, each [`process`](plimsoll_image::process) with the numbers of the
//!    program that others have their results from. A [`Recipe`] is a function of seed, step and sample alone.
//! 3. A [`PreparedCache`] keeps images in 8 bits within a budget.

mod cache;
mod dataset;
mod error;
pub mod phantom;
mod pipeline;

pub use cache::{PreparedCache, PreparedStatistics};
pub use dataset::{
    DatasetError, Fold, FoldError, GroupSource, ImageCase, ImageDataset, ImageProblem, InspectOptions,
    Inspection, LabelSource, ProblemKind, Split, TableSettings, folds, inspect, separator, state_of,
};
pub use error::SettingError;
pub use pipeline::{
    Augmentation, Blurring, Erasing, Largest, Pipeline, PipelineSettings, Recipe, Scale, Scratch, Step,
};
