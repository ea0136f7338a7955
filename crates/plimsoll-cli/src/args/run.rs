//! Arguments of runs: what shapes them, and which are begun or gone on with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll::{FoldChoice, Monitoring, NewCases, PlanRequest, TrainRequest, read_settings};
use plimsoll_data::SpacingSetting;
use plimsoll_models::Model;
use plimsoll_nn::{NetworkName, NetworkSettings, Optimizer};
use plimsoll_plan::Backend;
use plimsoll_run::{FoldName, Preset, RunFolder, Settings};
use plimsoll_train::{Concession, Link};

use super::start::StartArgs;
use super::submission::Submission;
use super::{
    Compute, Files, MissingScores, Precision, Ram, network, preset, target_spacing, thread_count, triple,
};
use crate::failure::{Failure, Outcome};

/// A run that is planned.
#[derive(Debug, ClapArgs)]
pub struct Plan {
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub start: StartArgs,
    /// Print the trade-off between memory and time.
    #[arg(long, conflicts_with = "explain")]
    pub pareto: bool,
    /// Plan a classifier of images for each pair of classes, as `train --one-vs-one` trains them.
    #[arg(long, conflicts_with_all = ["pareto", "explain", "draw"])]
    pub one_vs_one: bool,
    /// Draw the arena of the training program into this SVG file: time across, addresses up.
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
    /// Explain the placement of a value of the training program.
    #[arg(long, value_name = "TENSOR")]
    pub explain: Option<String>,
    /// Print memory, messages and time of a step for each number of ranks up to this one.
    #[arg(long, value_name = "N", requires = "network", conflicts_with_all = ["pareto", "explain", "draw", "one_vs_one"])]
    #[arg(value_parser = rank_count)]
    pub ranks: Option<usize>,
    /// With --ranks: the bandwidth of a rank's network per second, and its latency if it is not 50us: 25Gbit, 800Mbit or 25Gbit,30us.
    #[arg(long, value_name = "RATE[,LATENCY]", requires = "ranks")]
    pub network: Option<Link>,
}

/// The most ranks that are planned.
const MOST_RANKS: usize = 1 << 16;

/// Reads a number of ranks.
pub(super) fn rank_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_RANKS).contains(count));
    count.ok_or_else(|| format!("from 1 to {MOST_RANKS} ranks are possible"))
}

/// A run to start or to continue.
#[derive(Debug, ClapArgs)]
pub struct Train {
    #[command(flatten)]
    pub run: RunArgs,
    /// The fold: 0, 1, 2, …; or `all`, which trains on all cases and then validates on the same cases.
    #[arg(long, default_value = "0", conflicts_with = "folds")]
    pub fold: String,
    /// Several folds, like 0,2-4; or `all`.
    #[arg(long, value_name = "N,N-N,…")]
    pub folds: Option<String>,
    /// With --folds: the number of folds that train at the same time, each with its part of the limit and of the threads.
    #[arg(long, value_name = "N", default_value = "1", value_parser = thread_count, requires = "folds")]
    pub parallel: usize,
    /// For images: train a classifier for each pair of classes, in folders of their own, whose votes are counted when predicting.
    #[arg(long, conflicts_with = "folds")]
    pub one_vs_one: bool,
    /// The folder of the run [default: runs/NAME].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Read cases into the cache before the first step, instead of when they are first used.
    #[arg(long)]
    pub warm: bool,
    /// Continue from the last checkpoint.
    #[arg(long)]
    pub resume: bool,
    /// Continue although images, labels or classes have changed since the run began, or cases are missing.
    #[arg(long)]
    pub accept_changed_data: bool,
    /// The treatment of cases that were added to the data set after the run began: folds that have not started validate and train on them,
    /// or they are left out.
    #[arg(long, value_name = "CHOICE")]
    pub new_cases: Option<WhatOfNewCases>,
    #[command(flatten)]
    pub start: StartArgs,
    /// The file of folds [default: the folds of the run, or of the data set's splits_final.json].
    #[arg(long, value_name = "FILE")]
    pub splits: Option<PathBuf>,
    /// The treatment of validation cases, and the records of training.
    #[command(flatten)]
    pub records: RecordArgs,
    /// Keep a text file with the numbers of the last epoch for Prometheus, as OpenMetrics; node_exporter reads names like FILE.prom.
    #[arg(long, value_name = "FILE")]
    pub openmetrics: Option<PathBuf>,
    /// With several ranks: the time after which a rank that makes no progress ends all [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: Option<u32>,
    /// With several ranks: the way of their messages [default: NCCL if each rank has a GPU of its own and NCCL 2.18, else MPI].
    #[arg(long, value_enum, value_name = "WAY")]
    pub transport: Option<TransportName>,
    /// Print all resolved settings, and stop.
    #[arg(long)]
    pub print_settings: bool,
    #[command(flatten)]
    pub submission: Submission,
}

/// A way of messages between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// MPI alone.
    Mpi,
    /// NCCL between GPUs, and MPI for short messages.
    Nccl,
}

/// The treatment of validation cases, and the records of training, of a run and of the trials of a sweep.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct RecordArgs {
    /// Skip the prediction and scoring of validation cases after each fold.
    #[arg(long)]
    pub skip_validation: bool,
    /// The treatment in means over validation cases of a score that is undefined because only one of prediction and reference has the
    /// class.
    #[arg(long, value_enum, value_name = "CONVENTION", default_value_t, conflicts_with = "skip_validation")]
    pub missing: MissingScores,
    /// Write the numbers of each step into steps.jsonl.
    #[arg(long)]
    pub log_steps: bool,
    /// Write event files of TensorBoard into the folder of each fold: numbers of epochs, with --log-steps of steps, and the curves.
    #[arg(long)]
    pub tensorboard: bool,
}

impl Train {
    /// The request.
    pub fn request(&self) -> Outcome<TrainRequest> {
        self.request_on(self.submission.open(self.run.compute)?)
    }

    /// The request, with a backend.
    pub fn request_on(&self, backend: Arc<dyn Backend>) -> Outcome<TrainRequest> {
        let folds = match self.folds.as_deref() {
            Some("all") => FoldChoice::Every,
            Some(list) => FoldChoice::Named(numbers(list)?.into_iter().map(FoldName::Number).collect()),
            None => FoldChoice::Named(vec![self.fold.parse()?]),
        };
        let run = self.out.clone().unwrap_or_else(|| {
            let name = self.run.dataset.file_name().unwrap_or(self.run.dataset.as_os_str());
            Path::new("runs").join(name)
        });
        let threads = self.run.compute.threads.count();
        if self.parallel > threads {
            let message =
                format!("--parallel {} needs as many threads, but there are {threads}", self.parallel);
            return Err(Failure::new(message, format!("--parallel {threads} at most, or more --threads")));
        }
        Ok(TrainRequest {
            plan: self.run.request_from(&self.start, self.resume, backend)?,
            parallel: self.parallel,
            device: self.run.compute.device,
            run: RunFolder::new(run),
            folds,
            warm: self.warm,
            resume: self.resume,
            accept_changed_data: self.accept_changed_data,
            new_cases: self.new_cases.map(NewCases::from),
            splits: self.splits.clone(),
            monitoring: Monitoring {
                steps: self.records.log_steps,
                tensorboard: self.records.tensorboard,
                openmetrics: self.openmetrics.clone(),
            },
            validate: !self.records.skip_validation,
            missing: self.records.missing.into(),
            like: None,
            notes: Vec::new(),
        })
    }
}

/// The most folds that a list may name.
const MOST_FOLDS: usize = 1000;

/// Reads numbers and ranges of them, in order, each once.
fn numbers(list: &str) -> Outcome<Vec<usize>> {
    let wrong = || Failure::new(format!("`--folds {list}` names no folds"), "like 0,2-4, or `all`");
    let mut found = std::collections::BTreeSet::new();
    for item in list.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < MOST_FOLDS);
        let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
        if first > last {
            return Err(wrong());
        }
        found.extend(first..=last);
    }
    Ok(found.into_iter().collect())
}

/// Arguments that define a run.
#[derive(Debug, Default, ClapArgs)]
pub struct RunArgs {
    /// The data set: a folder of images and one of label maps, a folder for each case, BIDS, a table of paths, a list of MONAI, nnU-Net's raw
    /// layout; or images, in a folder for each class or listed in a .csv file.
    pub dataset: PathBuf,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
    /// Threads that make batches [default: one, and one more for every eight kernel threads].
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub loader_threads: Option<usize>,
    /// Leave out cases with an error, and list them, instead of refusing the data set. The run keeps a record.
    #[arg(long)]
    pub skip_bad_cases: bool,
    /// The file of settings [default: plimsoll.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// nnU-Net's planner that chooses network, patch and batch, where they are not set.
    #[arg(long, value_parser = preset())]
    pub preset: Option<Preset>,
    /// With a preset: its 3d_lowres, with a coarser spacing, where images are so large that it has one.
    #[arg(long)]
    pub lowres: bool,
    /// 2: patches are slices across the depth, resampled in their plane alone; 3: they are volumes.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=3), value_name = "N")]
    pub dimensions: Option<u8>,
    #[command(flatten)]
    pub files: Files,
    /// Depth,height,width of a patch in voxels.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W")]
    pub patch_size: Option<[usize; 3]>,
    /// Spacing that images are brought to, in millimetres: depth,height,width; of slices height,width; 5,1,1um in micrometres; or `native`:
    /// no image is resampled.
    #[arg(long, value_parser = target_spacing, value_name = "D,H,W")]
    pub spacing: Option<SpacingSetting>,
    /// Samples of a step.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Samples that go through the network at a time.
    #[arg(long, value_name = "N")]
    pub micro_batch: Option<usize>,
    /// Number formats of stored features and of products.
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// The network.
    #[arg(long, value_parser = network())]
    pub net: Option<NetworkName>,
    /// Channels of each stage, the finest first.
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub features: Option<Vec<usize>>,
    /// Channels of the finest stage of a SegResNet, doubled from stage to stage.
    #[arg(long, value_name = "N")]
    pub init_filters: Option<usize>,
    /// Channels behind the patch embedding of swinunetr, or of the finest stage of unetr's decoder, doubled from stage to stage.
    #[arg(long, value_name = "N")]
    pub feature_size: Option<usize>,
    /// The probability with which an element of a convolution's result is dropped while training.
    #[arg(long, value_name = "P")]
    pub dropout: Option<f32>,
    /// Epochs.
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Steps of an epoch.
    #[arg(long, value_name = "N")]
    pub iterations: Option<u64>,
    /// Batches that are validated after each epoch.
    #[arg(long, value_name = "N")]
    pub validation_iterations: Option<u64>,
    /// The optimizer.
    #[arg(long, value_enum)]
    pub optimizer: Option<WhichOptimizer>,
    /// The highest learning rate.
    #[arg(long, value_name = "RATE")]
    pub learning_rate: Option<f64>,
    /// The seed of initial weights, patches and augmentation.
    #[arg(long)]
    pub seed: Option<u64>,
    /// The folder of a run whose patch, spacing, network and normalisation are taken where nothing else is set, to train on from
    /// its weights.
    #[arg(long, value_name = "MODEL")]
    pub plans_from: Option<PathBuf>,
    /// Changes that may be made, in this order, if the run does not fit the limit otherwise; each changes the results.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…")]
    pub allow: Vec<Allowed>,
}

/// A change that reduces the memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Allowed {
    /// Features are stored as bf16.
    Precision,
    /// Components of the loss that see shapes, at a lower resolution; not the factor that the loss has in f16.
    LossScale,
    /// A smaller patch.
    Patch,
    /// A narrower network.
    Features,
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => Err(std::fmt::Error),
        }
    }
}

impl From<Allowed> for Concession {
    fn from(allowed: Allowed) -> Concession {
        match allowed {
            Allowed::Precision => Concession::Precision,
            Allowed::LossScale => Concession::LossScale,
            Allowed::Patch => Concession::Patch,
            Allowed::Features => Concession::Features,
        }
    }
}

impl RunArgs {
    /// The request, with a backend.
    pub fn request(&self, backend: Arc<dyn Backend>) -> Outcome<PlanRequest> {
        self.request_from(&StartArgs::default(), false, backend)
    }

    /// The request of a run from trained weights, with a backend.
    pub fn request_from(
        &self,
        start: &StartArgs,
        resumes: bool,
        backend: Arc<dyn Backend>,
    ) -> Outcome<PlanRequest> {
        let plans_from = self.plans_from.as_deref().map(Model::plans).transpose()?;
        let mut settings = read_settings(self.config.as_deref(), self.settings())?;
        if let Some(model) = &plans_from {
            settings = settings.or(model.plans()?);
        }
        let (settings, start) = start.open(settings, resumes)?;
        Ok(PlanRequest {
            dataset: self.dataset.clone(),
            settings,
            ram: self.ram.ram,
            threads: self.compute.threads.count(),
            loader_threads: self.loader_threads,
            skip_bad_cases: self.skip_bad_cases,
            backend,
            allowed: self.allow.iter().map(|allowed| (*allowed).into()).collect(),
            plans_from,
            start,
            allow_outside: self.files.allow_outside,
        })
    }

    /// The settings in flags.
    pub fn settings(&self) -> Settings {
        Settings {
            data: self.files.settings(),
            network: NetworkSettings {
                net: self.net,
                features: self.features.clone(),
                init_filters: self.init_filters,
                feature_size: self.feature_size,
                dropout: self.dropout,
                ..NetworkSettings::default()
            },
            preset: self.preset,
            lowres: self.lowres.then_some(true),
            dimensions: self.dimensions.map(usize::from),
            patch_size: self.patch_size,
            spacing: self.spacing,
            batch_size: self.batch_size,
            micro_batch: self.micro_batch,
            precision: self.precision.map(Into::into),
            epochs: self.epochs,
            iterations_per_epoch: self.iterations,
            validation_iterations: self.validation_iterations,
            optimizer: self.optimizer.map(|which| match which {
                WhichOptimizer::Sgd => Optimizer::nnunet(),
                WhichOptimizer::Adamw => Optimizer::adamw(),
                WhichOptimizer::Adam => Optimizer::adam(),
            }),
            learning_rate: self.learning_rate,
            seed: self.seed,
            ..Settings::default()
        }
    }
}

/// Optimizers, with the constants that their settings default to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichOptimizer {
    /// Gradient descent with Nesterov momentum 0.99, as nnU-Net.
    Sgd,
    /// AdamW, as PyTorch.
    Adamw,
    /// Adam, as PyTorch: weight decay is part of the gradient.
    Adam,
}

/// The choice for cases that a data set has gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhatOfNewCases {
    /// Each is validated in one fold that has not started, and trained on in the other such folds; groups stay together.
    Include,
    /// They are in no fold.
    LeaveOut,
}

impl From<WhatOfNewCases> for NewCases {
    fn from(choice: WhatOfNewCases) -> NewCases {
        match choice {
            WhatOfNewCases::Include => NewCases::Include,
            WhatOfNewCases::LeaveOut => NewCases::LeaveOut,
        }
    }
}
