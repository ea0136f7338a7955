//! Prediction.
//!
//! A [`Predictor`] lays windows over a case at the spacing of training, in the canonical orientation or as nnU-Net prepares it; sums their logits, or of many classes the features before them, in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole. Where a whole plane of logits is too large, the volume is passed through in
//! strips.
//!
//! [`predict_cases`] predicts the cases of a folder: what is there already is kept, and a case that cannot be predicted does not
//! end the others.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod ahead;
mod believable;
mod case_plan;
mod case_spacing;
mod case_sums;
mod case_windows;
mod device_sums;
mod ensemble;
mod error;
mod export;
mod folder;
mod forward;
mod grad_cam;
mod grown_labels;
mod head_planes;
mod headers;
mod image_network;
mod images;
mod label_maps;
mod label_output;
mod label_sink;
mod label_statistics;
mod lines;
mod mirror;
mod npz;
mod npz_reader;
mod passes;
mod places;
mod plane_ring;
mod planning;
mod predictor;
mod ring;
mod rows;
mod segmentation_file;
mod shares;
mod skin;
mod spool;
mod stream;
mod summands;
mod sums;
mod times;
mod windows;
mod workers;
mod zoomed_labels;

pub use believable::GridFault;
pub use case_plan::{CaseEstimate, Instead, PredictPlan};
pub use case_spacing::{CaseSpacing, CaseView};
pub use device_sums::HostSums;
pub use ensemble::{EnsembleRequest, label_by_mean};
pub use error::InferError;
pub use folder::{CaseReport, Destination, FolderProgress, FolderReport, LabelNames, Outcome, predict_cases};
pub use forward::forward_program;
pub use grad_cam::{ImageExplainer, Question};
pub use grown_labels::{Growth, grow_labels};
pub use images::ImagePredictor;
pub use label_maps::{PartLabels, Written, box_of_labels, merge_labels, split_labels};
pub use label_sink::LabelSink;
pub use label_statistics::{LabelStatistics, label_statistics};
pub use planning::CaseGrid;
pub use predictor::{CaseInput, CaseRequest, PredictOptions, Predictor, Progress};
pub use segmentation_file::write_segmentation;
pub use skin::{SkinFiles, write_skin};
pub use summands::Summed;
pub use sums::RingStorage;
pub use times::{CaseTimes, PredictedCase};
pub use windows::{Starts, WindowWeights, gaussian};
pub use zoomed_labels::{labels_as_stored, write_zoomed, zoomed_image};
