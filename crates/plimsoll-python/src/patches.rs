//! Batches of patches, or of images with classes, for training loops in Python.
//!
//! A [`PatchStream`] opens a data set and hands over batches that the loader of trainings fills on its own threads. A batch lends its
//! buffers, so arrays in Python share their memory. The contents of a batch are a function of the data, the settings and the step alone:
//! a stream resumes at any step with the same bits.

mod batch;
mod failure;
mod in_process;
mod opened;
mod pictures;
mod settings;
mod state;
mod stream;
mod volumes;

pub use batch::{LabelBuffer, PatchBatch};
pub use in_process::InProcess;
pub use settings::{
    AugmentationChoice, EpochLength, LabelType, PatchOptions, PatchSettings, parsed, section_by_name,
};
pub use stream::{PatchStream, StreamFacts, Turn, Warnings};
