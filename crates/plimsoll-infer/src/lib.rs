//! Prediction.
//!
//! A [`Predictor`] lays windows over a case at the spacing of training, in the
//! canonical orientation; sums their logits in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole.
//!
//! [`predict_cases`] predicts the cases of a folder: what is there already is kept, and a case that cannot be predicted does not
//! end the others.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod believable;
mod error;
mod export;
mod folder;
mod grad_cam;
mod image_network;
mod images;
mod mirror;
mod predictor;
mod ring;
mod stream;
mod windows;
mod workers;

pub use believable::GridFault;
pub use error::InferError;
pub use folder::{CaseReport, Destination, FolderProgress, FolderReport, Outcome, predict_cases};
pub use grad_cam::{ImageExplainer, Question};
pub use images::ImagePredictor;
pub use predictor::{PredictOptions, PredictPlan, Predictor, Progress};
pub use windows::{Starts, gaussian};
