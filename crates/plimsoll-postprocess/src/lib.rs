//! Post-processing of label maps.
//!
//! A [`Step`] keeps the largest component of a label, drops small ones, fills holes or closes gaps; [`Postprocessing`] is a list of them,
//! as a file has it. [`process`] does the steps on a label map. [`choose`] tries steps on predictions whose references are known, and
//! returns the steps that raise the mean Dice of a label without lowering the Dice of another.
//!
//! A label map needs two bytes a voxel; a step needs additional memory only for the box around its labels.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod apply;
mod boxes;
mod choose;
mod close;
mod components;
mod dice;
mod error;
mod file;
mod holes;
mod label_map;
mod orthogonal;
mod steps;
mod vertebrae;

pub use apply::{VoxelGrid, process, process_file};
pub use choose::{Choice, ChoiceTargets, LabelGain, Pair, choose};
pub use error::PostprocessError;
pub use file::{Chosen, Postprocessing, is_json};
pub use label_map::LabelMap;
pub use orthogonal::{is_sheared, make_orthogonal};
pub use steps::{LabelSet, LeastSize, Neighbours, Step};
pub use vertebrae::{Vertebrae, number_vertebrae};
