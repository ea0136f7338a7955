//! Models of all origins, to predict with.
//!
//! [`ModelSource`] decides by contents which kind of model a path is: a run of this program or a fold of it, all folds of a run in one
//! file ([`model_file`]), a folder of nnU-Net ([`nnunet`]), or a bundle or a description of MONAI ([`monai`]) or of HD-BET ([`hd_bet`]).
//! [`OpenedModel::open`] opens all of them. Each becomes a [`SegmentationModel`], which says how images are prepared, how windows are predicted and which labels its
//! outputs are; a run that classifies images is a [`Model`]. [`total_segmentator`] knows the tasks of TotalSegmentator, whose models are nnU-Net's.
//!
//! Models leave as weights of their authors' names ([`export_weights`]), ONNX graphs ([`onnx`]), nnU-Net folders or one file.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod deepbet;
mod error;
mod export;
pub mod hd_bet;
mod imports;
mod model;
pub mod model_file;
mod model_source;
pub mod monai;
mod new_files;
pub mod nnunet;
pub mod onnx;
mod open;
mod package_error;
mod segmentation_model;
mod start;
mod tensor_copies;
pub mod tensorflow_js;
mod torch_script;
pub mod total_segmentator;

pub use error::ModelError;
pub use export::{Exported, export_weights};
pub use model::Model;
pub use model_source::ModelSource;
pub use open::{OpenOptions, OpenedModel};
pub use package_error::{Package, PackageError};
pub use segmentation_model::{Answers, Interpolated, SegmentationModel, WindowLayout};
pub use start::{Adoption, FineTuning, NormalisationOf, Start, StartOptions};
