//! Arguments.

mod nnunet;
mod run;
mod segment;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
pub use nnunet::{NnUnetFlags, with_own_names};
use plimsoll_data::TargetSpacing;
use plimsoll_graph::DType;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::Bytes;
use plimsoll_metrics::votes::Rule;
use plimsoll_nn::NetworkName;
use plimsoll_plan::Backend;
use plimsoll_run::CheckpointKind;
use plimsoll_run::nnunet::is_nnunet;
pub use run::{Plan, Train};
pub use segment::Segment;

use crate::backend::DeviceName;
use crate::failure::{Failure, Outcome};
use crate::jobs::predict::{PredictRequest, VolumeOptions};

/// Trains and runs medical-image networks inside a memory line, and never over it.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Do the whole job on a small data set that it makes itself, in minutes.
    Demo(Demo),
    /// Show the machine: cores, instruction sets, and what limits memory.
    Doctor(Ram),
    /// Check and fingerprint a data set; name each case that is wrong or would blow up.
    Inspect(Inspect),
    /// Say what a run would hold, part by part, before it begins.
    Plan(Plan),
    /// List what can be set in plimsoll.toml, with defaults and meanings.
    Settings,
    /// Train a network.
    Train(Train),
    /// Say how runs stand: epoch, scores, memory, time left, what happened last.
    Status(Status),
    /// Segment images with a trained network.
    Predict(Predict),
    /// Segment CT or MR images as TotalSegmentator does, with the weights that you have of it.
    Segment(Segment),
    /// Import models of nnU-Net, and say what models are.
    #[command(subcommand)]
    Models(Models),
    /// Compare predictions with references.
    Evaluate(Evaluate),
    /// Write a model's weights as PyTorch's networks load them.
    Export(Export),
    /// Measure speed on this machine.
    #[command(subcommand)]
    Bench(Bench),
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

/// Reads `D,H,W` or `H,W`, or one number for three axes.
fn target_spacing(text: &str) -> Result<TargetSpacing, String> {
    let lengths: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    let lengths = lengths.ok_or("write numbers with commas between: depth,height,width, or height,width")?;
    match lengths[..] {
        [all] => TargetSpacing::try_from(vec![all; 3]),
        _ => TargetSpacing::try_from(lengths),
    }
}

/// Reads the name of a network.
fn network() -> impl TypedValueParser<Value = NetworkName> {
    let named = NetworkName::ALL.iter().map(|net| PossibleValue::new(net.as_str()).help(net.summary()));
    PossibleValuesParser::new(named).try_map(|name| name.parse::<NetworkName>())
}

/// Numbers without a unit below this are no memory that anything runs in, but a forgotten unit.
const FORGOTTEN_UNIT: Bytes = Bytes::mib(1);

/// Reads the memory line.
fn line(text: &str) -> Result<Bytes, String> {
    memory("--ram", text)
}

/// Reads the line of a device's own memory.
fn device_line(text: &str) -> Result<Bytes, String> {
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

/// Reads a sensitivity that thresholds are to have.
fn sensitivity(text: &str) -> Result<f64, String> {
    let share = text.trim().parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "a sensitivity is above 0 and at most 1".into())
}

/// Reads a number of threads.
fn thread_count(text: &str) -> Result<usize, String> {
    let most = MOST_THREADS;
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("from 1 to {most} threads are possible"))
}

/// The most threads of a kind.
const MOST_THREADS: usize = 256;

/// The memory line.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Ram {
    /// The memory line, like 1.5GiB [default: what the machine leaves, less a sixteenth].
    #[arg(long, value_name = "BYTES", value_parser = line)]
    pub ram: Option<Bytes>,
}

/// Threads of kernels.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct Threads {
    /// Threads that kernels run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
}

/// What programs run on.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct Compute {
    #[command(flatten)]
    pub threads: Threads,
    /// What runs programs: cpu, or an NVIDIA GPU by its number, like cuda:0; a kind of GPU, like sm_80, to plan for without one.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,
    /// The line of the GPU's memory, like 12GiB [default: what is free there, less a sixteenth].
    #[arg(long, value_name = "BYTES", value_parser = device_line)]
    pub vram: Option<Bytes>,
}

impl Compute {
    /// The backend.
    pub fn open(self) -> Outcome<Arc<dyn Backend>> {
        self.device.open(self.threads.count(), self.vram)
    }

    /// The same, to plan with alone.
    pub fn open_to_plan(self) -> Outcome<Arc<dyn Backend>> {
        self.device.open_to_plan(self.threads.count(), self.vram)
    }
}

impl From<Precision> for DType {
    fn from(precision: Precision) -> DType {
        match precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}

impl Threads {
    /// The number asked for, or of cores.
    pub fn count(self) -> usize {
        self.threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
            .clamp(1, MOST_THREADS)
    }
}

/// How features are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// The upper halves of 32-bit floats; arithmetic stays in 32 bits.
    Bf16,
}

/// The whole job.
#[derive(Debug, ClapArgs)]
pub struct Demo {
    /// Classify images instead of segmenting volumes.
    #[arg(long)]
    pub classification: bool,
    /// Where the data set, the run and the predictions are left [default: a temporary folder, removed afterwards].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The memory line.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = line)]
    pub ram: Bytes,
    #[command(flatten)]
    pub compute: Compute,
}

/// A data set.
#[derive(Debug, ClapArgs)]
pub struct Inspect {
    /// The data set: a folder in nnU-Net's raw layout or the Medical Segmentation Decathlon's; or images, in a folder for each class
    /// or listed in a .csv file.
    pub dataset: PathBuf,
    /// Settings [default: plimsoll.toml where it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub threads: Threads,
}

/// Runs to say the state of.
#[derive(Debug, ClapArgs)]
pub struct Status {
    /// Folders of runs, or of their folds.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
}

/// Images to segment.
#[derive(Debug, ClapArgs)]
pub struct Predict {
    /// The folder of a run (all its folds are averaged), of one fold, or of one-vs-one classifiers; or of a model of nnU-Net.
    #[arg(value_name = "MODEL", required_unless_present_any = ["model_named", "dataset"], conflicts_with = "dataset")]
    model: Option<PathBuf>,
    /// The same; given several times, models that label voxels by the mean of their probabilities.
    #[arg(id = "model_named", short = 'm', long = "model", value_name = "MODEL", conflicts_with_all = ["model", "dataset"])]
    model_named: Vec<PathBuf>,
    /// A folder of images named as in imagesTr, or one image. Of classifiers: images, folders of classes, or a .csv file.
    #[arg(short, long, value_name = "IN")]
    pub input: PathBuf,
    /// The folder that label maps are written to, not that of the images; of classifiers the .csv file of probabilities.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// The checkpoint; of models of nnU-Net, -chk names its file [default: final].
    #[arg(long, value_enum)]
    pub checkpoint: Option<WhichCheckpoint>,
    /// Of volumes: the share of a window that the next one covers too, from 0 to less than 1 [default: 0.5].
    #[arg(long, value_name = "SHARE")]
    pub overlap: Option<f64>,
    /// Look at each window mirrored, too, in all eight ways, or the four of slices.
    #[arg(long)]
    pub mirror: bool,
    /// How classifiers of pairs vote [default: sum].
    #[arg(long, value_enum)]
    pub votes: Option<WhichVotes>,
    /// Of classifiers of pairs: write the probabilities of each pair, too, in columns behind `predicted`.
    #[arg(long)]
    pub pair_columns: bool,
    /// Of classifiers, with images whose labels are known: draw the N that are most wrong, and where in them the network finds what it
    /// says (Grad-CAM), into an .svg beside the table.
    #[arg(long, value_name = "N")]
    pub mistakes: Option<NonZeroUsize>,
    /// Replace predictions that are there [default: they are kept, and what is missing is predicted].
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
    #[command(flatten)]
    pub nnunet: NnUnetFlags,
}

/// nnU-Net's share of a window from one to the next.
const USUAL_STEP: f64 = 0.5;

impl Predict {
    /// The folder of the model, and those of others whose probabilities are averaged with its.
    pub fn models(&self) -> Outcome<(PathBuf, Vec<PathBuf>)> {
        let mut named = self.model.iter().chain(&self.model_named).cloned();
        let first = match named.next() {
            Some(model) => Some(model),
            None => self.nnunet.folder()?,
        };
        let first = first.ok_or_else(|| Failure::new("no model is named", "name its folder"))?;
        let others: Vec<PathBuf> = named.collect();
        let is_archive = |path: &Path| {
            path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip")) && path.is_file()
        };
        match std::iter::once(&first).chain(&others).find(|path| is_archive(path)) {
            None => Ok((first, others)),
            Some(archive) => {
                let message = format!("{} is an archive, not the folder of a model", archive.display());
                let hint = format!("unpack it with `plimsoll models import {}`", archive.display());
                Err(Failure::new(message, hint))
            }
        }
    }

    /// The share of a window from one to the next, whichever way it is said. A step is taken as it is said: 1 − (1 − 0.2) is less than
    /// 0.2, and would be one window more.
    fn step(&self) -> Outcome<f64> {
        let (said, step) = match (self.nnunet.step_size, self.overlap) {
            (Some(step), _) => (format!("-step_size {step} is not more than 0 and at most 1"), step),
            (None, Some(overlap)) => {
                (format!("--overlap {overlap} is not at least 0 and less than 1"), 1.0 - overlap)
            }
            (None, None) => return Ok(USUAL_STEP),
        };
        match step > 0.0 && step <= 1.0 {
            true => Ok(step),
            false => Err(Failure::new(said, "half of a window, --overlap 0.5, is what most take")),
        }
    }

    /// What is asked of a model.
    pub fn request(&self, model: PathBuf, backend: Arc<dyn Backend>) -> Outcome<PredictRequest> {
        let threads = self.compute.threads.count();
        let is_nnunet = is_nnunet(&model);
        Ok(PredictRequest {
            volumes: VolumeOptions {
                nnunet: is_nnunet.then(|| self.nnunet.choice()),
                earlier: self.nnunet.prev_stage_predictions.clone(),
                probabilities: self.nnunet.save_probabilities,
                postprocessing: self.nnunet.postprocessing.clone(),
                verbose: self.nnunet.verbose,
            },
            model,
            checkpoint: self.checkpoint.unwrap_or_default().into(),
            input: self.input.clone(),
            output: self.output.clone(),
            overwrite: self.overwrite,
            options: PredictOptions {
                step: self.step()?,
                // As both programs do it where nothing is said.
                mirror: self.mirror || (is_nnunet && !self.nnunet.disable_tta),
                threads,
            },
            ram: self.ram.ram,
            backend,
        })
    }
}

/// What to do with models.
#[derive(Debug, Subcommand)]
pub enum Models {
    /// Unpack what nnUNetv2_export_model_to_zip wrote, or copy models of a folder.
    Import(ImportModels),
    /// Say what a model is: its network, channels, labels, folds.
    Show(ShowModels),
}

/// Models to import.
#[derive(Debug, ClapArgs)]
pub struct ImportModels {
    /// A .zip file of nnU-Net, or a folder with models in it.
    pub from: PathBuf,
    /// The folder that they are put into [default: that of the variable nnUNet_results, or the current one].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
}

/// Models to show.
#[derive(Debug, ClapArgs)]
pub struct ShowModels {
    /// The folder of a model, or one with several in it.
    pub folder: PathBuf,
    #[command(flatten)]
    pub ram: Ram,
}

/// How classifiers of pairs of classes vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichVotes {
    /// The mean probability of a class over its pairs.
    #[default]
    Sum,
    /// The most pairs that are won.
    Majority,
    /// Probabilities that fit those of all pairs best (Wu, Lin and Weng 2004).
    Coupling,
    /// Means weighted by accuracy and confidence, as published for retinopathy.
    Weighted,
}

impl From<WhichVotes> for Rule {
    fn from(votes: WhichVotes) -> Rule {
        match votes {
            WhichVotes::Sum => Rule::ProbabilitySum,
            WhichVotes::Majority => Rule::Majority,
            WhichVotes::Coupling => Rule::Coupling,
            WhichVotes::Weighted => Rule::Weighted,
        }
    }
}

/// Weights to write.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// The folder of a run with one fold, or of one fold.
    pub model: PathBuf,
    /// The .safetensors file that is written, with every name that the network's authors give its tensors.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The checkpoint.
    #[arg(long, value_enum, default_value_t)]
    pub checkpoint: WhichCheckpoint,
    /// Replace the file if it is there.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
}

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichCheckpoint {
    /// That after the last epoch.
    #[default]
    Final,
    /// That of the highest moving average of the pseudo-Dice.
    Best,
    /// The last that was written.
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

/// Predictions to compare.
#[derive(Debug, ClapArgs)]
pub struct Evaluate {
    /// The folder of predictions, or one label map.
    #[arg(required_unless_present = "classification")]
    pub predictions: Option<PathBuf>,
    /// The folder of references, or one label map.
    #[arg(required_unless_present = "classification")]
    pub references: Option<PathBuf>,
    /// Classes to score [default: those of the dataset.json beside the folder of references].
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub labels: Option<Vec<u8>>,
    /// Score only references that have a prediction, instead of asking for all.
    #[arg(long)]
    pub partial: bool,
    #[command(flatten)]
    pub scores: Scores,
    /// The folder of the images, for pictures: named as in imagesTr, of which the first channel is shown.
    #[arg(long, value_name = "DIR", requires = "pictures")]
    pub images: Option<PathBuf>,
    /// Write a picture of each case here: three slices with the outlines of reference (green) and prediction (red).
    #[arg(long, value_name = "DIR", requires = "images")]
    pub pictures: Option<PathBuf>,
    #[command(flatten)]
    pub classification: Classification,
    /// Where the scores are written [default: summary.json, scores.csv and scores.svg in the folder of predictions; of a
    /// classification scores.json, scores.csv and scores.svg]; tables and plots stand beside it under the same name.
    #[arg(short, long, value_name = "FILE.json")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub threads: Threads,
}

/// Which scores of a segmentation, and how.
#[derive(Debug, Default, ClapArgs)]
pub struct Scores {
    /// Groups of scores; all but overlap take memory by the voxel of the box around a class.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUP,GROUP,…", default_value = "overlap")]
    pub metrics: Vec<Metrics>,
    /// What a surface is.
    #[arg(long, value_enum, default_value_t)]
    pub surface: SurfaceKind,
    /// The distance up to which surfaces agree for the NSD, in mm [default: 1].
    #[arg(long, value_name = "MM")]
    pub tolerance: Option<f64>,
    /// The share of a lesion that must be covered for it to be found [default: 0, any voxel].
    #[arg(long, value_name = "SHARE")]
    pub lesion_overlap: Option<f64>,
}

/// Groups of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metrics {
    /// All groups.
    All,
    /// Dice, IoU, sensitivity, precision, volume similarity, counts.
    Overlap,
    /// Hausdorff distances, ASSD, NSD (surface Dice).
    Surface,
    /// clDice, Betti errors.
    Topology,
    /// Lesion-wise F1, panoptic quality, variation of information.
    Lesion,
}

/// Definitions of surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SurfaceKind {
    /// Marching-cubes elements weighted by area, as DeepMind's surface-distance.
    #[default]
    Elements,
    /// Voxels at the rim, unweighted, as MONAI.
    Voxels,
}

/// A classification instead of segmentations.
#[derive(Debug, Default, ClapArgs)]
pub struct Classification {
    /// Score a classification instead: a table with a header `case,label,` and the names of the classes, and in each
    /// line a case, its class, and the probability of each class.
    #[arg(
        id = "classification",
        long = "classification",
        value_name = "FILE.csv",
        conflicts_with_all = ["predictions", "references", "labels", "partial", "metrics", "surface", "tolerance",
            "lesion_overlap", "images", "pictures"]
    )]
    pub table: Option<PathBuf>,
    /// Cases have any number of the classes, each by itself: names with `|` between them, or none; probabilities do not sum to 1.
    #[arg(long, requires = "classification")]
    pub several_labels: bool,
    /// How often cases are drawn anew for confidence intervals [default: 1000].
    #[arg(long, value_name = "N", requires = "classification")]
    pub resamples: Option<usize>,
    /// Of these draws [default: 0].
    #[arg(long, requires = "classification")]
    pub seed: Option<u64>,
    /// Find the threshold of each class that has at least these sensitivities, like 0.9 or 0.9,0.95.
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = sensitivity, requires = "classification")]
    pub sensitivity: Vec<f64>,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Training steps of a network on made-up data.
    Step(BenchStep),
    /// Points between keeping all values and the least memory: planned, predicted and measured.
    Curve(BenchCurve),
    /// The passes of single convolutions, as fractions of what the machine can do.
    Kernels(BenchKernels),
}

/// How to measure kernels.
#[derive(Debug, ClapArgs)]
pub struct BenchKernels {
    /// How features are stored.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    /// Runs, of which the best counts.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Only layers of two or of three dimensions.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub axes: Option<u8>,
    #[command(flatten)]
    pub threads: Threads,
}

/// Of which step.
#[derive(Debug, ClapArgs)]
pub struct BenchedStep {
    /// The network.
    #[arg(long, value_parser = network(), default_value_t = NetworkName::DynUNet)]
    pub net: NetworkName,
    /// Channels of each stage, the finest first [default: those that its authors give it].
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub features: Option<Vec<usize>>,
    /// Edge of the patch, or depth,height,width.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W", default_value = "64")]
    pub size: [usize; 3],
    /// Samples of a step.
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// How features are stored.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    #[command(flatten)]
    pub compute: Compute,
    #[command(flatten)]
    pub ram: Ram,
}

/// Which curve to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchCurve {
    #[command(flatten)]
    pub step: BenchedStep,
    /// Steps that are timed at each point, in turn.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// Which step to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchStep {
    #[command(flatten)]
    pub step: BenchedStep,
    /// Steps that are timed, after one that is not.
    #[arg(long, default_value_t = 6)]
    pub steps: usize,
    /// The forward pass alone: logits, without labels, gradients and updates.
    #[arg(long)]
    pub forward: bool,
    /// Print what the steps are predicted to take, by kind of kernel, instead of measuring them: with --device sm_90, without a card.
    #[arg(long, conflicts_with_all = ["steps", "profile"])]
    pub predict: bool,
    /// Print the time of each node: its best of the steps.
    #[arg(long)]
    pub profile: bool,
    /// Bytes that the arena may take; values are recomputed instead of held as far as needed.
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
}
