//! Prediction.
//!
//! A [`Predictor`] lays windows over a case at the spacing of training, in the canonical orientation or as nnU-Net prepares it; sums their logits in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole.
//!
//! [`predict_cases`] predicts the cases of a folder: what is there already is kept, and a case that cannot be predicted does not
//! end the others.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod believable;
mod case_windows;
mod ensemble;
mod error;
mod export;
mod folder;
mod grad_cam;
mod image_network;
mod images;
mod label_maps;
mod mirror;
mod npz;
mod npz_reader;
mod predictor;
mod ring;
mod stream;
mod windows;
mod workers;

pub use believable::GridFault;
pub use ensemble::{EnsembleRequest, label_by_mean};
pub use error::InferError;
pub use folder::{CaseReport, Destination, FolderProgress, FolderReport, Outcome, predict_cases};
pub use grad_cam::{ImageExplainer, Question};
pub use images::ImagePredictor;
pub use label_maps::{PartLabels, Written, box_of_labels, merge_labels, split_labels};
pub use predictor::{CaseRequest, PredictOptions, PredictPlan, Predictor, Progress};
pub use windows::{Starts, gaussian};
