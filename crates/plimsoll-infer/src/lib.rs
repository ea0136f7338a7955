//! Prediction.
//!
//! A [`Predictor`] lays windows over a case at the spacing of training, in the canonical orientation or as nnU-Net prepares it; sums their logits, or of many classes the features before them, in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole. Where a whole plane of logits is too large, the volume is passed through in
//! strips.
//!
//! [`WindowSums`] sums the output of a function of the caller in the same ring, and [`ArrayPredictor`] predicts images in memory.
//!
//! [`predict_cases`] predicts the cases of a folder: what is there already is kept, and a case that cannot be predicted does not
//! end the others.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod arrays;
mod classification;
mod error;
mod folder;
mod labels;
mod planning;
mod predictor;
mod summing;
mod window_sums;

pub use arrays::memory_labels::MemoryLabels;
pub use arrays::{ArrayError, ArrayImage, ArrayOutput, ArrayPlan, ArrayPredictor};
pub use classification::grad_cam::{ImageExplainer, Question};
pub use classification::images::ImagePredictor;
pub use error::InferError;
pub use folder::{CaseReport, Destination, FolderProgress, FolderReport, LabelNames, Outcome, predict_cases};
pub use labels::ensemble::{EnsembleRequest, label_by_mean};
pub use labels::grown_labels::{Growth, grow_labels};
pub use labels::label_maps::{PartLabels, Written, box_of_labels, merge_labels, split_labels};
pub use labels::label_sink::LabelSink;
pub use labels::label_statistics::{LabelStatistics, label_statistics};
pub use labels::segmentation_file::write_segmentation;
pub use labels::skin::{SkinFiles, write_skin};
pub use labels::zoomed_labels::{labels_as_stored, write_zoomed, zoomed_image};
pub use planning::believable::GridFault;
pub use planning::case_memory::CaseGrid;
pub use planning::case_plan::{CaseEstimate, Instead, PredictPlan};
pub use planning::case_spacing::{CaseSpacing, CaseView};
pub use planning::times::{CaseTimes, PredictedCase};
pub use predictor::{CaseInput, CaseOutput, CaseRequest, PredictOptions, Predictor, Progress};
pub use summing::device_sums::HostSums;
pub use summing::forward::forward_program;
pub use summing::summands::Summed;
pub use summing::sums::RingStorage;
pub use summing::windows::{Starts, WindowWeights, gaussian};
pub use window_sums::{DecidedSlice, WindowError, WindowRequest, WindowSums};
