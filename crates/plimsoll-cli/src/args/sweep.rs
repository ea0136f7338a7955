//! Arguments of sweeps.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use plimsoll::backend::DeviceName;
use plimsoll::{BatchFile, Monitoring, PlanRequest, SweepJob};
use plimsoll_run::{SweepFolder, SweepRequest, TrialPattern};

use super::batch_files::{AskedFile, asked_files};
use super::run::Allowed;
use super::{Compute, MissingScores, Ram, RecordArgs, thread_count};
use crate::failure::{Failure, Outcome};
use crate::invocation::Invocation;

/// Several choices of settings, each trained with several seeds and folds.
#[derive(Debug, ClapArgs)]
pub struct Sweep {
    /// The file of the sweep: a table `grid` of settings or a list of `arm`, with `seeds` and `folds`; see docs/sweeps.md.
    pub sweep: PathBuf,
    /// The data set [default: `dataset` of the file].
    pub dataset: Option<PathBuf>,
    /// The folder of the sweep.
    #[arg(short, long, value_name = "SWEEP")]
    pub out: PathBuf,
    /// Print the memory of each arm and the total time, and stop.
    #[arg(long)]
    pub plan: bool,
    /// Resume a sweep; arms, seeds and folds may have been added to the file.
    #[arg(long)]
    pub resume: bool,
    /// Only these trials: ARM, ARM/SEED or ARM/SEED/FOLD, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "ARM[/SEED[/FOLD]],…")]
    pub only: Vec<TrialPattern>,
    /// The number of trials that train at once, each with its part of the limit and of the threads; fewer if they do not fit.
    #[arg(long, value_name = "N", default_value = "1", value_parser = thread_count)]
    pub parallel: usize,
    /// Train nothing, but write a file for sbatch: an array with a task for each trial. For tasks on GPUs --device names their kind, like sm_80.
    #[arg(long, value_name = "FILE.sbatch", conflicts_with_all = ["plan", "parallel"])]
    pub slurm: Option<PathBuf>,
    /// Train nothing, but write a manifest of an Indexed Job with a pod for each trial.
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["plan", "parallel"])]
    pub kubernetes: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
    /// Threads that make batches [default: one, and one more for every eight kernel threads].
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub loader_threads: Option<usize>,
    /// Changes that may be made, in this order, in arms that do not fit the limit otherwise; each changes their results.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…")]
    pub allow: Vec<Allowed>,
    /// Leave out cases with an error, and list them, instead of refusing the data set. Each run keeps a record.
    #[arg(long)]
    pub skip_bad_cases: bool,
    /// Read files outside the data set's folder that its list or table names.
    #[arg(long)]
    pub allow_outside: bool,
    /// Read cases into the cache before the first step of each trial, instead of when they are first used.
    #[arg(long)]
    pub warm: bool,
    /// The treatment of validation cases, and the records of training.
    #[command(flatten)]
    pub records: RecordArgs,
}

impl Sweep {
    /// The job.
    pub fn job(&self) -> Outcome<SweepJob> {
        let asked = SweepRequest::read(&self.sweep, self.dataset.as_deref())?;
        let threads = self.compute.threads.count();
        if self.parallel > threads {
            let message =
                format!("--parallel {} needs as many threads, but there are {threads}", self.parallel);
            return Err(Failure::new(message, format!("--parallel {threads} at most, or more --threads")));
        }
        let dataset = asked.dataset.clone().ok_or_else(|| {
            let message = format!("{} names no data set, and neither does the command", self.sweep.display());
            Failure::new(message, "write `dataset = \"…\"`, or name it behind the file")
        })?;
        let compute = match (self.is_for_batch(), self.compute.device) {
            // The machine that writes the file mostly has no GPU, and one that it has is not what tasks train on.
            (true, DeviceName::Cuda(_)) => return Err(other_card(self.compute.device)),
            (true, _) => self.compute.open_to_plan()?,
            (false, _) if self.plan => self.compute.open_to_plan()?,
            (false, _) => self.compute.open()?,
        };
        let settings = asked.arms.first().map(|arm| arm.settings.clone()).ok_or_else(|| {
            let message = format!("{} has no arm", self.sweep.display());
            Failure::new(message, "list some as [[arm]], or values in [grid]")
        })?;
        Ok(SweepJob {
            plan: PlanRequest {
                dataset,
                settings,
                ram: self.ram.ram,
                threads,
                loader_threads: self.loader_threads,
                skip_bad_cases: self.skip_bad_cases,
                backend: compute,
                allowed: self.allow.iter().map(|allowed| (*allowed).into()).collect(),
                plans_from: None,
                start: None,
                allow_outside: self.allow_outside,
            },
            asked,
            folder: SweepFolder::new(absolute(&self.out)?),
            device: self.compute.device,
            parallel: self.parallel,
            warm: self.warm,
            monitoring: Monitoring {
                steps: self.records.log_steps,
                tensorboard: self.records.tensorboard,
                openmetrics: None,
            },
            validate: !self.records.skip_validation,
            missing: self.records.missing.into(),
            resume: self.resume,
            only: self.only.clone(),
        })
    }

    /// Returns `true` if tasks of a batch system train the trials.
    fn is_for_batch(&self) -> bool {
        self.slurm.is_some() || self.kubernetes.is_some()
    }

    /// The files for batch systems, with the limit of their tasks.
    pub fn batch_files(
        &self,
        job: &SweepJob,
        limit: plimsoll_memory::Bytes,
        invocation: &Invocation,
    ) -> Outcome<Vec<BatchFile>> {
        let asked = asked_files(self.slurm.as_ref(), self.kubernetes.as_ref(), invocation)?;
        let file = |AskedFile { system, path, program }| BatchFile {
            system,
            path,
            command: self.command(program, job, limit),
            trial_argument: "--only",
            threads: job.plan.threads,
            on_gpu: matches!(self.compute.device, DeviceName::Kind(_)),
        };
        Ok(asked.into_iter().map(file).collect())
    }

    /// The command of a task, which resumes the recorded sweep.
    fn command(&self, program: String, job: &SweepJob, limit: plimsoll_memory::Bytes) -> Vec<String> {
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let folder = &job.folder;
        let mut words = vec![program, "sweep".into(), shown(&folder.request()), shown(&job.plan.dataset)];
        let mut flag = |name: &str, value: Option<String>| {
            words.push(name.into());
            words.extend(value);
        };
        flag("--out", Some(shown(folder.path())));
        flag("--resume", None);
        flag("--ram", Some(limit.0.to_string()));
        flag("--threads", Some(job.plan.threads.to_string()));
        // A task has one GPU of the kind that was planned for, which is the first that it sees.
        let device = match self.compute.device {
            DeviceName::Kind(_) => DeviceName::Cuda(0),
            other => other,
        };
        flag("--device", Some(device.to_string()));
        if let Some(vram) = self.compute.vram {
            flag("--vram", Some(vram.0.to_string()));
        }
        if let Some(threads) = self.loader_threads {
            flag("--loader-threads", Some(threads.to_string()));
        }
        if !self.allow.is_empty() {
            let names: Vec<String> = self.allow.iter().map(|allowed| allowed.to_string()).collect();
            flag("--allow", Some(names.join(",")));
        }
        if self.records.missing != MissingScores::default() {
            flag("--missing", Some(plimsoll_metrics::Missing::from(self.records.missing).name().into()));
        }
        let switches = [
            ("--skip-bad-cases", self.skip_bad_cases),
            ("--allow-outside", self.allow_outside),
            ("--warm", self.warm),
            ("--skip-validation", self.records.skip_validation),
            ("--log-steps", self.records.log_steps),
            ("--tensorboard", self.records.tensorboard),
        ];
        for (name, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
            flag(name, None);
        }
        words
    }
}

/// A card of this machine is named, where tasks train on others.
pub(super) fn other_card(device: DeviceName) -> Failure {
    Failure::new(
        format!(
            "--device {device} is a GPU of this machine, but the tasks of a batch file train on other machines"
        ),
        "name the kind of GPU of the tasks, and its memory limit: --device sm_80 --vram 12GiB plans for it without one, and each task \
         uses the first GPU that it sees",
    )
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::at_path(path, &error))
}
