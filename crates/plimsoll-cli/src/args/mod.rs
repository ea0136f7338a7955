//! Arguments.

mod batch_files;
mod bench;
mod bench_data;
mod compare;
mod completions;
mod evaluate;
mod inference;
mod interact;
mod missing;
mod models;
mod nnunet;
mod other_names;
mod outputs;
mod part;
mod postprocess;
mod predict;
mod report;
mod run;
mod segment;
mod serve;
mod start;
mod submission;
mod sweep;
mod unread;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

pub use bench::{
    Bench, BenchCurve, BenchKernels, BenchPlan, BenchPredict, BenchScaling, BenchStep, BenchedNet,
    BenchedStep,
};
pub use bench_data::BenchData;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
pub use compare::Compare;
pub use completions::{Completions, Manual};
pub use evaluate::{Evaluate, Metrics, SurfaceKind};
pub use inference::{Inference, StorageArgs};
pub use interact::Interact;
pub use missing::MissingScores;
pub use models::{Export, ExportFormat, ExportModel, ImportModels, Models, ShowModels, VerifyModel};
pub use nnunet::NnUnetFlags;
pub use other_names::with_own_names;
pub use part::PartArgs;
use plimsoll_data::{DataSettings, LengthUnit, SpacingSetting, TargetSpacing};
use plimsoll_graph::DType;
use plimsoll_memory::Bytes;
use plimsoll_nn::NetworkName;
use plimsoll_plan::Backend;
use plimsoll_plan::Bf16Products;
use plimsoll_run::{CheckpointKind, Preset};
pub use postprocess::Postprocess;
pub use predict::Predict;
pub use report::Report;
#[cfg(unix)]
pub use run::TransportName;
pub use run::{Plan, RecordArgs, RunArgs, Train};
pub use segment::Segment;
pub use serve::Serve;
pub use sweep::Sweep;
pub use unread::warn_of_unread;

use crate::failure::Outcome;
#[cfg(unix)]
use plimsoll::backend::LinkMemory;
use plimsoll::backend::{DeviceName, MOST_THREADS, default_threads};

/// Trains and runs medical-image networks within a memory limit, and never exceeds it.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON.
    // Behind the options of every command, however many these are.
    #[arg(long, global = true, display_order = 990)]
    pub json: bool,
}

impl Args {
    /// Returns `true` if the command succeeds even if its output cannot be printed: the result of a training is in its folder.
    pub fn may_lose_output(&self) -> bool {
        !self.json && matches!(self.command, Command::Train(_) | Command::Sweep(_))
    }
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train and predict on a small generated data set, in minutes.
    Demo(Demo),
    /// Show the machine: cores, instruction sets, and its memory limits.
    Doctor(Ram),
    /// Check and fingerprint a data set; name each case that is invalid or too large.
    Inspect(Inspect),
    /// Print the memory of a run, part by part, before it begins.
    Plan(Plan),
    /// List the settings of plimsoll.toml, with defaults and meanings.
    Settings,
    /// Train a network.
    Train(Train),
    /// Train several choices of settings, seeds and folds, to compare them.
    Sweep(Sweep),
    /// Print the state of runs: epoch, scores, memory, time left, last events.
    Status(Status),
    /// Show running trainings live: curves, memory against the limit, time left. Reads only their files.
    Watch(Watch),
    /// Write a page about a run or a sweep: settings, memory, curves, scores, worst cases, failures. One file, offline.
    Report(Report),
    /// Segment images with a trained network.
    Predict(Predict),
    /// Segment CT or MR images as TotalSegmentator does, with its weights.
    Segment(Segment),
    /// Segment an object that points, boxes, scribbles or lassos mark, with a model of nnInteractive.
    Interact(Interact),
    /// Answer requests over HTTP: images in, labels out, within one memory limit.
    Serve(Serve),
    /// Post-process label maps: largest components, holes, gaps; and choose helpful steps by cross-validation.
    Postprocess(Postprocess),
    /// Import, show, export and verify models.
    #[command(subcommand)]
    Models(Models),
    /// Compare predictions with references.
    Evaluate(Evaluate),
    /// Compare runs, or arms of a sweep, case by case, with intervals and tests.
    Compare(Compare),
    /// Write a model's weights for PyTorch, nnU-Net or ONNX.
    Export(Export),
    /// Measure speed on this machine.
    #[command(subcommand)]
    Bench(Bench),
    /// Print completions of commands and options for a shell.
    Completions(Completions),
    /// Write a manual page for each command.
    Manual(Manual),
}

/// Reads `D,H,W`, or one number for all three.
fn triple<T: FromStr + Copy>(text: &str) -> Result<[T; 3], String> {
    let numbers: Option<Vec<T>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    match numbers.as_deref() {
        Some([all]) => Ok([*all; 3]),
        Some([d, h, w]) => Ok([*d, *h, *w]),
        _ => Err("write one number, or three with commas between: depth,height,width".into()),
    }
}

/// Reads `D,H,W` or `H,W`, or one number for three axes, in millimetres or with a unit behind the last; or `native`.
fn target_spacing(text: &str) -> Result<SpacingSetting, String> {
    if text == "native" {
        return Ok(SpacingSetting::Native);
    }
    let number = text.trim_end_matches(|letter: char| letter.is_alphabetic());
    // `inf` is a number without a unit, and refused by its value.
    let has_unit = number.trim_end().ends_with(|last: char| last.is_ascii_digit() || last == '.');
    let number = if has_unit { number } else { text };
    let unit = match &text[number.len()..] {
        "" => LengthUnit::Millimetre,
        unit => unit.parse()?,
    };
    let lengths: Option<Vec<f64>> = number
        .split(',')
        .map(|number| Some(number.trim().parse::<f64>().ok()? * unit.millimetres()))
        .collect();
    let lengths = lengths.ok_or(
        "write numbers with commas between: depth,height,width, or height,width; in millimetres, or with a unit behind the last, like \
         5,1,1um; or write `native`",
    )?;
    let lengths = if let [all] = lengths[..] { vec![all; 3] } else { lengths };
    TargetSpacing::try_from(lengths).map(SpacingSetting::To)
}

/// Reads the name of a network.
fn network() -> impl TypedValueParser<Value = NetworkName> {
    let named = NetworkName::ALL.iter().map(|net| PossibleValue::new(net.as_str()).help(net.summary()));
    PossibleValuesParser::new(named).try_map(|name| name.parse::<NetworkName>())
}

/// Reads the name of a preset.
fn preset() -> impl TypedValueParser<Value = Preset> {
    let named = Preset::ALL.iter().map(|preset| PossibleValue::new(preset.as_str()).help(preset.summary()));
    PossibleValuesParser::new(named).try_map(|name| name.parse::<Preset>())
}

/// Numbers without a unit below this are no memory that anything runs in, but a forgotten unit.
const FORGOTTEN_UNIT: Bytes = Bytes::mib(1);

/// Reads the memory limit.
fn limit(text: &str) -> Result<Bytes, String> {
    memory("--ram", text)
}

/// Reads the limit of a device's own memory.
fn device_limit(text: &str) -> Result<Bytes, String> {
    memory("--vram", text)
}

fn memory(flag: &str, text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: plimsoll_memory::ParseBytesError| error.to_string())?;
    let is_bare = text.trim().ends_with(|last: char| last.is_ascii_digit());
    if is_bare && Bytes::ZERO < bytes && bytes < FORGOTTEN_UNIT {
        // Nobody means a thousand GiB by 1000, nor two MiB by 2.
        let unit = if bytes.0 <= 256 { "GiB" } else { "MiB" };
        return Err(format!("{flag} {text} is {} bytes; did you mean {}{unit}?", bytes.0, text.trim()));
    }
    Ok(bytes)
}

/// Reads a number of threads.
fn thread_count(text: &str) -> Result<usize, String> {
    let most = MOST_THREADS;
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("from 1 to {most} threads are possible"))
}

/// The memory limit.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Ram {
    /// The memory limit, like 1.5GiB [default: what the machine leaves, less a sixteenth].
    #[arg(long, value_name = "BYTES", value_parser = limit)]
    pub ram: Option<Bytes>,
}

/// Threads of kernels.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct Threads {
    /// Threads that kernels run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
}

/// The device that runs programs.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct Compute {
    #[command(flatten)]
    pub threads: Threads,
    /// The device: cpu, or an NVIDIA GPU by its number, like cuda:0; a kind of GPU, like sm_80, to plan without one.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,
    /// The limit of the GPU's memory, like 12GiB [default: what is free there, less a sixteenth].
    #[arg(long, value_name = "BYTES", value_parser = device_limit)]
    pub vram: Option<Bytes>,
}

impl Compute {
    /// The backend.
    pub fn open(self) -> Outcome<Arc<dyn Backend>> {
        Ok(self.device.open(self.threads.count(), self.vram)?)
    }

    /// The same for a rank whose communication with others takes memory of a card.
    #[cfg(unix)]
    pub fn open_linked(self, link: LinkMemory) -> Outcome<Arc<dyn Backend>> {
        Ok(self.device.open_linked(self.threads.count(), self.vram, link)?)
    }

    /// The same, to plan with alone.
    pub fn open_to_plan(self) -> Outcome<Arc<dyn Backend>> {
        Ok(self.device.open_to_plan(self.threads.count(), self.vram)?)
    }
}

impl From<Precision> for plimsoll_run::Precision {
    fn from(precision: Precision) -> plimsoll_run::Precision {
        match precision {
            Precision::F32 => plimsoll_run::Precision::F32,
            Precision::Bf16 => plimsoll_run::Precision::Bf16,
            Precision::Tf32 => plimsoll_run::Precision::Tf32,
            Precision::Bf16Dot => plimsoll_run::Precision::Bf16Dot,
            Precision::F16 => plimsoll_run::Precision::F16,
        }
    }
}

impl From<Precision> for DType {
    fn from(precision: Precision) -> DType {
        plimsoll_run::Precision::from(precision).storage()
    }
}

impl Precision {
    /// A backend that computes so, wherever it can.
    pub fn on(self, backend: Arc<dyn Backend>) -> Outcome<Arc<dyn Backend>> {
        match self {
            Precision::F32 | Precision::Bf16 | Precision::F16 => Ok(backend),
            Precision::Tf32 => Ok(backend.with_tf32_products()?),
            Precision::Bf16Dot => Ok(backend.with_bf16_products(&Bf16Products::ALL)?),
        }
    }
}

impl Threads {
    /// The requested number of threads, or the number of cores.
    pub fn count(self) -> usize {
        self.threads.unwrap_or_else(default_threads).clamp(1, MOST_THREADS)
    }
}

/// The number formats of stored features and of products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// The same, and convolutions round them to 11 bits of mantissa before they multiply them, with sums in 32 bits: on GPUs since Ampere (8.0).
    Tf32,
    /// The upper halves of 32-bit floats; arithmetic stays in 32 bits.
    Bf16,
    /// Features as with bf16; convolutions multiply bf16, with sums in 32 bits: on processors with AVX-512 BF16 or Arm's BF16, where
    /// that is fast.
    Bf16Dot,
    /// 16-bit floats with more digits and a smaller range, for GPUs; the loss is scaled while training.
    F16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => Err(fmt::Error),
        }
    }
}

/// The whole job.
#[derive(Debug, ClapArgs)]
pub struct Demo {
    /// Classify images instead of segmenting volumes.
    #[arg(long)]
    pub classification: bool,
    /// The folder of the data set, the run and the predictions [default: a temporary folder that is removed].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The memory limit.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = limit)]
    pub ram: Bytes,
    #[command(flatten)]
    pub compute: Compute,
}

/// The reading of the files of a data set.
#[derive(Debug, Default, ClapArgs)]
pub struct Files {
    /// The unit of lengths in headers, whatever they state: um, mm or m.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<LengthUnit>,
    /// Read files outside the data set's folder that its list or table names.
    #[arg(long)]
    pub allow_outside: bool,
}

impl Files {
    /// The settings of the data set in flags; `None` without such flags.
    pub fn settings(&self) -> Option<DataSettings> {
        self.unit.map(|unit| DataSettings { unit: Some(unit), ..DataSettings::default() })
    }
}

/// A data set.
#[derive(Debug, ClapArgs)]
pub struct Inspect {
    /// The data set: a folder of images and one of label maps, a folder for each case, BIDS, a table of paths, a list of MONAI, nnU-Net's raw
    /// layout; or images, in a folder for each class or listed in a .csv file.
    pub dataset: PathBuf,
    #[command(flatten)]
    pub files: Files,
    /// Write a dataset.json with the detected layout, channels and label values into the folder, if it has none.
    #[arg(long)]
    pub write: bool,
    /// Write a page with thumbnails, plots and warnings to this file, and the numbers beside it as .json.
    #[arg(long, value_name = "FILE.html")]
    pub page: Option<PathBuf>,
    /// The file of settings [default: plimsoll.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub threads: Threads,
}

/// Runs to report on.
#[derive(Debug, ClapArgs)]
pub struct Status {
    /// Folders of runs, of their folds, or of sweeps.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
}

/// Runs to watch.
#[derive(Debug, ClapArgs)]
pub struct Watch {
    /// Folders of runs, of their folds, or of sweeps.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Print one frame as text.
    #[arg(long, conflicts_with = "serve")]
    pub once: bool,
    /// Show a page in a browser of this machine, on this port.
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "6007"
    )]
    pub serve: Option<u16>,
}

/// The kind of checkpoint of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichCheckpoint {
    /// The checkpoint after the last epoch.
    #[default]
    Final,
    /// The checkpoint with the highest moving average of the pseudo-Dice.
    Best,
    /// The last written checkpoint.
    Latest,
}

impl From<WhichCheckpoint> for CheckpointKind {
    fn from(which: WhichCheckpoint) -> CheckpointKind {
        match which {
            WhichCheckpoint::Final => CheckpointKind::Final,
            WhichCheckpoint::Best => CheckpointKind::Best,
            WhichCheckpoint::Latest => CheckpointKind::Latest,
        }
    }
}
