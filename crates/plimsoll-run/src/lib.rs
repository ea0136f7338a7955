//! A run as a value.
//!
//! [`Settings`] are what a user writes; with the fingerprint of a data set they become a [`RunConfig`], and with the cases of a
//! fold, their contents and initial weights a [`Specification`]: all that the result of training depends on. The folder of a fold
//! ([`FoldFolder`]) holds it, with a [`Lock`], what happened ([`EventLog`]), the numbers of each epoch ([`Journal`]) and
//! [`Checkpoints`].
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod averages;
pub mod bounds;
mod cache_folder;
mod checkpoint;
mod classification;
mod config;
mod difference;
mod error;
mod events;
mod folder;
mod folder_use;
mod image_settings;
mod image_target;
mod initial_weights;
mod journal;
mod json;
mod lines;
mod lock;
mod loss_scale;
mod parameters;
mod parts;
mod policy;
mod precision;
mod preset;
mod record;
mod sample;
mod setting_lines;
mod settings;
mod slices;
mod specification;
mod start;
mod state;
mod sweep;
mod task;
mod topology;
mod way_out;

pub use averages::start_averages;
pub use cache_folder::CacheFolder;
pub use checkpoint::{
    CheckpointKind, Checkpoints, PartSums, Progress, Resumed, RunState, checkpoint_header, checkpoint_origin,
};
pub use classification::{ClassificationTask, ImageSource, ImageSummary};
pub use config::RunConfig;
pub use difference::{SettingChange, setting_changes};
pub use error::{RunError, one_line, printable};
pub use events::{EpochCost, Event, EventLog, StopReason, TimedEvent, each_event};
pub use folder::{FoldFolder, FoldName, RunFolder};
pub use folder_use::{FolderUse, pairs_in};
pub use image_settings::{ClassWeights, ImageSettings};
pub use image_target::{ImageTarget, LABEL_THRESHOLD};
pub use initial_weights::{InitialWeights, digest_of};
pub use journal::{ClassScores, EpochRecord, Journal, LabelScores, LossPart, each_epoch};
pub use json::{as_written, read_json, write_json};
pub use lines::{LONGEST_LINE, each_line, each_line_behind};
pub use lock::{Holder, Lock, holder};
pub use loss_scale::LossScale;
pub use parameters::{
    LoadOptions, NumberedProgram, Visit, each_parameter, each_started, expect_weights, read_parameters,
    read_some_parameters, start_table,
};
pub use parts::{DevicePlan, Machine, Part, PatchCost, RunPlan};
pub use plimsoll_plan::DeviceState;
pub use policy::{BadNumbers, EarlyStopping, EarlyStoppingSettings, Score};
pub use precision::{Precision, Products};
pub use preset::{Configuration, PlannedImages, Preset, PresetPlan, UnknownPreset};
pub use record::{CacheSummary, DeviceRecord, RunRecord};
pub use sample::{Sample, SystemSample};
pub use setting_lines::{ALL_COMPONENTS, SETTING_LINES, SettingLine, Usual};
pub use settings::Settings;
pub use specification::{Amendment, Continuation, FoldRequest, Specification};
pub use start::{
    Adaptation, HeadRule, NewReason, PretrainedEncoder, StartRule, StartTable, StartedTensor, TensorFate,
    UnusedReason,
};
pub use state::{Account, AskedOf, FoldState, Status};
pub use sweep::{
    Arm, ArmRequest, Resolved, SweepFolder, SweepRequest, Trial, TrialFailure, TrialPattern, Trials,
};
pub use task::{ChannelNormalisation, DatasetSummary, SegmentationTask, Task};
pub use topology::Topology;
pub use way_out::WayOut;
