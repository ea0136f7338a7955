//! Prediction.
//!
//! A [`Predictor`] lays windows over a case at the spacing of training, in the canonical orientation or as nnU-Net prepares it; sums their logits, or of many classes the features before them, in a ring of as many planes as windows still touch; brings each finished
//! plane back to the grid of the image; and writes the labels plane by plane with the image's own geometry. Neither the
//! resampled image nor the logits of the volume ever exist whole. Where a whole plane of logits is too large, the volume is passed through in
//! strips.
//!
//! [`WindowSums`] sums the output of a function of the caller in the same ring, and [`ArrayPredictor`] predicts images in memory.
//!
//! [`predict_cases`] predicts the cases of a folder: predictions that exist are kept, and a case that cannot be predicted does not
//! end the others.
//!
//! # Layers
//! A module uses only those below it:
//!
//! | module | its subject |
//! |---|---|
//! | `arrays` | cases whose voxels are in memory, predicted like files |
//! | `window_sums` | sums of the output of any function in the ring of planes, beside `predicting` |
//! | `predicting` | a case from its files to its files, and folders of cases: [`Predictor`] is the façade |
//! | `classification` | classes of plain images, beside `predicting` |
//! | `interactive` | objects that prompts mark, beside `predicting`: [`InteractiveSession`] is the façade |
//! | `located` | models of two networks, the first of which finds the box that the second sees, beside `predicting` |
//! | `planning` | the memory and the time of a case before anything is allocated for it |
//! | `summing` | windows through the network, sums of their logits, and the way back to the stored grid |
//! | `structures` | features of the structures in a label map, beside `predicting` |
//! | `labels` | label maps and probabilities on the stored grid: written, put in order, merged, measured |
//! | `cases` | headers, grids and windows of the images of a case |
//! | `options`, `progress`, `error` | values that all of them share |
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod arrays;
mod cases;
mod classification;
mod error;
mod interactive;
mod labels;
mod located;
mod options;
mod planning;
mod predicting;
mod progress;
mod structures;
mod summing;
mod window_sums;

pub use arrays::memory_labels::MemoryLabels;
pub use arrays::{ArrayError, ArrayImage, ArrayOutput, ArrayPlan, ArrayPredictor};
pub use cases::case_spacing::{CaseSpacing, CaseView};
pub use cases::request::{CaseGrid, CaseInput, CaseRequest};
pub use cases::shared_image::SharedImage;
pub use classification::grad_cam::{ImageExplainer, Question};
pub use classification::images::ImagePredictor;
pub use error::{Alternative, GridFault, InferError};
pub use interactive::{
    InteractiveError, InteractiveOptions, InteractivePlan, InteractiveSession, Pass, PassKind, PromptMask,
};
pub use labels::ensemble::{EnsembleRequest, label_by_mean};
pub use labels::grown_labels::{Growth, grow_labels};
pub use labels::label_maps::{PartLabels, Written, box_of_labels, merge_labels, split_labels};
pub use labels::label_sink::LabelSink;
pub use labels::label_statistics::{LabelStatistics, label_statistics};
pub use labels::segmentation_file::write_segmentation;
pub use labels::skin::{SkinFiles, write_skin};
pub use labels::zoomed_labels::{labels_as_stored, write_zoomed, zoomed_image};
pub use located::LocatedFault;
pub use options::{PredictOptions, RingStorage, Summed, WindowWeights};
pub use planning::plan::{CaseEstimate, PredictPlan};
pub use planning::work::planned_work;
pub use predicting::destination::{Destination, LabelNames};
pub use predicting::folder::{CaseReport, FolderProgress, FolderReport, Outcome, predict_cases};
pub use predicting::predictor::{CaseOutput, PredictedCase, Predictor};
pub use progress::{CaseTimes, Progress};
pub use structures::{
    Diameters, Histogram, Intensities, Measured, Order, Shape, Structure, Surface, features_bytes,
    structure_features, write_features,
};
pub use summing::device_sums::HostSums;
pub use summing::forward::forward_program;
pub use summing::windows::{Starts, gaussian};
pub use window_sums::{DecidedSlice, WindowError, WindowRequest, WindowSums};
