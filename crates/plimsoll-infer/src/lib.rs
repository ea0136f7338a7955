//! Prediction.
//!
//! A [`Model`] is one fold of a run or several. A [`Predictor`] lays windows over a case at the spacing of training, in the
//! canonical orientation; sums their logits in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole.

mod error;
mod export;
mod mirror;
mod model;
mod predictor;
mod ring;
mod stream;
mod windows;

pub use error::InferError;
pub use model::Model;
pub use predictor::{PredictOptions, PredictPlan, Predictor, Progress};
pub use windows::{gaussian, window_starts};
