//! Trains and runs medical-image networks inside a memory limit that the user sets, and never beyond it.
//!
//! A job is a function of a request and a [`Context`]:
//!
//! ```text
//! let request = PlanRequest { ram: Some(Bytes::mib(2048)), ..PlanRequest::new("data")? };
//! let plan = plimsoll::plan(&request, &Context::default())?;
//! plimsoll::train(&TrainRequest::new(request, "run"), &Context::default())?;
//! ```
//!
//! * **Requests** are plain structs with defaults: `Request::new(…)` takes the required paths, and all other fields can be set.
//! * **The context** carries a [`StopToken`], which ends the job early, an [`Observer`] of its [`Event`]s, such as a closure, and a folder for
//!   files that can be computed again. It never changes a result.
//! * **Results** serialise with `serde`, and are what `plimsoll … --json` prints.
//! * **Errors** have a [`Cause`] and a [`Remedy`](plimsoll_remedy::Remedy), which each front end renders in its own words.
//!
//! The library prints nothing, never ends the process, and reads no environment variable.
//!
//! | job | function | request | result |
//! |---|---|---|---|
//! | inspect a data set | [`inspect`] | [`InspectRequest`] | [`Inspected`] |
//! | plan a run | [`plan`] | [`PlanRequest`] | [`RunPlan`](plimsoll_run::RunPlan) |
//! | … by several ranks | [`plan_ranks`] | [`RanksReport`] |
//! | … with a curve, explanations or a drawing | [`plan_with_details`] | [`PlanDetails`] | [`PlanReport`] |
//! | train, resume and validate folds | [`train`] | [`TrainRequest`] | [`Trained`] |
//! | … as one of several ranks | [`train_rank`], [`train_together`] | [`TrainRequest`] | [`RankTraining`], [`RankResult`] |
//! | … a classifier for each pair of classes | [`plan_pairs`], [`train_pairs`] | [`TrainRequest`] | [`TrainedPair`] |
//! | … a sweep of settings | [`Sweep`] | [`SweepJob`] | [`TrialReport`] |
//! | predict label maps | [`predict`], [`predict_ensemble`] | [`PredictRequest`] | [`PredictionReport`] |
//! | plan a prediction | [`plan_prediction`], [`plan_ensemble`] | [`PredictRequest`] | [`PredictionPlan`] |
//! | classify images | [`classify`] | [`PredictRequest`] | [`Classified`] |
//! | run TotalSegmentator's tasks | [`segment`], [`plan_segmentation`] | [`SegmentRequest`] | [`SegmentationReport`] |
//! | segment what prompts mark | [`interact`], [`plan_interaction`] | [`InteractRequest`] | [`Interacted`] |
//! | score predictions | [`evaluate`] | [`EvaluateRequest`] | [`Evaluated`] |
//! | compare models | [`compare`] | [`CompareRequest`] | [`ComparisonReport`] |
//! | post-process label maps | [`postprocess`], [`choose_postprocessing`] | [`PostprocessRequest`] | [`PostprocessingReport`] |
//! | write a page about a run | [`report`] | [`ReportRequest`] | [`WrittenPage`] |
//! | export a model | [`export`], [`write_model_file`] | [`ExportRequest`], [`ModelFileRequest`] | [`ExportedModel`] |
//! | import and show models | [`import_models`], [`show_models`] | [`ImportRequest`], [`ShowRequest`] | [`ShownModel`] |
//! | read the state of runs | [`status`] | folders | [`RunStatus`] |
//! | describe the machine | [`doctor`] | a memory limit | [`Machine`] |
//!
//! `examples/whole_job.rs` makes data, plans, trains, predicts, evaluates and reports in 28 lines.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod backend;
mod context;
mod error;
mod events;
mod files;
mod folds_at_once;
mod jobs;
mod monitors;
mod part;
mod watcher;

pub use context::{Context, Progress, StopToken, TimeLeft};
pub use error::{Cause, Error, Outcome};
pub use events::{Event, Observer, Work};
pub use folds_at_once::AtOnce;
pub use jobs::classify::{Classified, ClassifyOptions, classify, is_classifier};
pub use jobs::compare::images::ImageReport;
pub use jobs::compare::pair_ensembles::PairEnsembles;
pub use jobs::compare::{CompareRequest, ComparisonReport, LabelReport, compare};
pub use jobs::data_changes::NewCases;
pub use jobs::doctor::{Machine, doctor};
pub use jobs::evaluate::{EvaluateRequest, Evaluated, evaluate};
pub use jobs::evaluation_parts::ScoredPart;
pub use jobs::export::{ExportFormat, ExportRequest, ExportedModel, export};
pub use jobs::fold_data::{DataPlace, FoldData, FoldRequest, open_fold};
pub use jobs::inspection::{InspectRequest, Inspected, absent_classes, inspect};
pub use jobs::interact::{InteractRequest, Interacted, Prompt, Prompted, interact, plan_interaction};
pub use jobs::listed_files::{CLOSED_FOLDERS, dataset_around, expect_apart_from_data};
pub use jobs::memory_limit::MemoryLimit;
pub use jobs::models::{
    ImportRequest, ModelFileRequest, ShowRequest, ShownModel, VerifyRequest, import_models, show_models,
    verify_model_file, write_model_file,
};
pub use jobs::outliers::{OtherSpacing, Outlier};
pub use jobs::pairs::{
    DescribedPair, PlannedPair, PlannedPairs, TrainedPair, describe_pairs, pair_run, plan_pairs, train_pairs,
};
pub use jobs::plan::{Opened, PlanRequest, SETTINGS_FILE, plan, read_settings};
pub use jobs::plan_ranks::{PlannedRanks, RanksReport, plan_ranks};
pub use jobs::plan_report::{PlanDetails, PlanReport, plan_with_details};
pub use jobs::postprocess::{
    Change, ChoiceReport, PostprocessRequest, PostprocessingReport, Processed, choose_postprocessing,
    postprocess,
};
pub use jobs::predict::ensemble::{plan_ensemble, predict_ensemble};
pub use jobs::predict::image_warnings::ImageWarning;
pub use jobs::predict::plan::{
    PlannedCase, PredictionPlan, plan_prediction, ring_line, strips_line, sums_line,
};
pub use jobs::predict::predict;
pub use jobs::predict::report::PredictionReport;
pub use jobs::predict::request::{PredictRequest, VolumeOptions};
pub use jobs::predict::results::{Failed, Kept, Predicted};
pub use jobs::report::{ReportRequest, WrittenPage, report};
pub use jobs::segment::{
    DicomForm, ExtraChoice, SegmentRequest, SegmentationReport, Segmented, check_task, plan_segmentation,
    segment,
};
pub use jobs::start::{OpenedStart, StartRequest};
pub use jobs::status::{FoldStatus, OpenTrial, RunStatus, status};
pub use jobs::steps::{StepChoice, model_steps};
pub use jobs::sweep::{
    ArmReport, BatchFile, BatchSystem, Sweep, SweepJob, SweepReport, TrialReport, TrialState, quoted,
};
pub use jobs::train::{
    FoldChoice, Nodes, RankResult, RankTraining, SubmissionFile, TrainRequest, Trained, TrainedFold,
    describe, mpi_libraries, rank_cores, rank_watch, train, train_rank, train_together, write_submissions,
};
#[cfg(unix)]
pub use jobs::train::{LinkFailure, LinkOptions, LinkedRanks, Transport, link_ranks};
pub use monitors::Monitoring;
pub use part::{Part, PartError, PartRecord};
pub use plimsoll_data::phantom::{PhantomConfig, write as write_phantoms};
pub use plimsoll_models::{Adoption, StartOptions};
