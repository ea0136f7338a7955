//! Images in two dimensions: from files to normalised tensors, and data sets for classification.
//!
//! 1. [`ImageFile`] reads PNG, JPEG, TIFF and BMP files within limits: the header is checked, memory is reserved, then the
//!    image is decoded. [`LabelImage`] reads those whose pixels are classes, and [`write_label_png`] writes them.
//! 2. [`ImageDataset`] lists the cases of a data set, from a folder for each class or from a table, by reading names and labels
//!    alone; [`inspect`] names what is wrong with the images before a run starts, and [`folds`] divides the cases.
//! 3. A [`Pipeline`] crops, equalises, resizes, augments and normalises, each [`process`] with the numbers of the program that
//!    others have their results from. A [`Recipe`] is a function of seed, step and sample alone.
//! 4. A [`PreparedCache`] keeps images in 8 bits within a budget.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod cache;
mod dataset;
mod decode;
mod encode;
mod error;
pub mod phantom;
mod pipeline;
pub mod process;
mod raster;

pub use cache::{PreparedCache, PreparedStatistics};
pub use dataset::{
    DatasetError, Fold, FoldError, GroupSource, ImageCase, ImageDataset, ImageProblem, InspectOptions,
    Inspection, LabelSource, ProblemKind, Split, TableSettings, folds, inspect, separator, state_of,
};
pub use decode::{DecodeOptions, Decoded, Header, ImageFile, LabelImage, Levels, Orientation, SampleRange};
pub use encode::write_label_png;
pub use error::{ImageError, SettingError};
pub use pipeline::{
    Augmentation, Blurring, Erasing, Largest, Pipeline, PipelineSettings, Recipe, Scale, Scratch, Step,
};
pub use raster::{Extent, Image, Image8, Image16, Raster};
