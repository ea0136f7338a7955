//! Arguments that write a training for a batch system.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgGroup, Args as ClapArgs};
use plimsoll::backend::DeviceName;
use plimsoll::{Nodes, SubmissionFile};
use plimsoll_plan::Backend;

use super::Compute;
use super::batch_files::{AskedFile, asked_files};
use super::run::rank_count;
use super::sweep::other_card;
use crate::failure::{Failure, Outcome};
use crate::invocation::Invocation;
use crate::launch::installed_mpi;

/// A job of a batch system that trains by several ranks.
#[derive(Debug, Default, ClapArgs)]
#[command(group = ArgGroup::new("batch_file").multiple(true).args(["slurm", "kubernetes"]))]
pub struct Submission {
    /// Train nothing, but write a file for sbatch that trains by a rank on each node. For GPUs --device names their kind, like sm_80.
    #[arg(long, value_name = "FILE.sbatch", requires_all = ["nodes", "ram", "threads"])]
    #[arg(conflicts_with_all = ["folds", "one_vs_one", "resume", "print_settings"])]
    pub slurm: Option<PathBuf>,
    /// Train nothing, but write a TrainJob of Kubeflow Trainer with a rank on each node.
    #[arg(long, value_name = "FILE.yaml", requires_all = ["nodes", "ram", "threads"])]
    #[arg(conflicts_with_all = ["folds", "one_vs_one", "resume", "print_settings"])]
    pub kubernetes: Option<PathBuf>,
    /// With --slurm or --kubernetes: the number of nodes. --ram and --threads are what a rank has of its node.
    #[arg(long, value_name = "N", value_parser = rank_count, requires = "batch_file")]
    pub nodes: Option<usize>,
}

/// The arguments of a submission, which its job does not have.
const OWN: [&str; 3] = ["--slurm", "--kubernetes", "--nodes"];

impl Submission {
    /// Returns `true` if a job of a batch system trains.
    pub fn is_some(&self) -> bool {
        self.slurm.is_some() || self.kubernetes.is_some()
    }

    /// The backend of the training, which a job on another machine opens.
    pub fn open(&self, compute: Compute) -> Outcome<Arc<dyn Backend>> {
        match (self.is_some(), compute.device) {
            (true, DeviceName::Cuda(_)) => Err(other_card(compute.device)),
            (true, _) => compute.open_to_plan(),
            (false, _) => compute.open(),
        }
    }

    /// The nodes.
    pub fn nodes(&self, compute: Compute) -> Outcome<Nodes> {
        let count = self.nodes.ok_or_else(|| {
            Failure::new("a submission needs the number of its nodes", "name it, like --nodes 4")
        })?;
        Ok(Nodes {
            count,
            folder: std::env::current_dir()?,
            with_gpu: matches!(compute.device, DeviceName::Kind(_)),
            libraries: installed_mpi(),
        })
    }

    /// The files to be written, whose jobs run this command.
    pub fn files(&self, invocation: &Invocation) -> Outcome<Vec<SubmissionFile>> {
        let asked = asked_files(self.slurm.as_ref(), self.kubernetes.as_ref(), invocation)?;
        let file = |AskedFile { system, path, program }| {
            let given = invocation.arguments().iter().map(|word| word.to_string_lossy().into_owned());
            let command = std::iter::once(program).chain(words(given)).collect();
            SubmissionFile { system, path, command, resume_argument: "--resume" }
        };
        Ok(asked.into_iter().map(file).collect())
    }
}

/// The arguments of a job: the arguments of the command that writes its file, without the submission's own. A job on GPUs uses the first that it
/// sees.
fn words(given: impl Iterator<Item = String>) -> Vec<String> {
    let (mut words, mut given) = (Vec::new(), given);
    while let Some(word) = given.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_string())),
            _ => (word.as_str(), None),
        };
        match name {
            "--" => {
                words.push(word);
                words.extend(given.by_ref());
            }
            name if OWN.contains(&name) => {
                if value.is_none() {
                    given.next();
                }
            }
            "--device" => {
                let Some(device) = value.or_else(|| given.next()) else { break };
                let device = if device == "cpu" { device } else { "cuda:0".into() };
                words.extend(["--device".into(), device]);
            }
            _ => words.push(word),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_all_arguments_but_those_of_its_submission() {
        let words = |given: &[&str]| words(given.iter().map(|word| word.to_string()));
        let given =
            ["train", "data", "--slurm", "a b.sh", "--nodes=4", "--ram=4GiB", "--device", "sm_80", "--warm"];
        assert_eq!(words(&given), ["train", "data", "--ram=4GiB", "--device", "cuda:0", "--warm"]);
        let given = ["train", "--kubernetes=job.yaml", "--device=cpu", "--nodes", "2", "--", "--nodes"];
        assert_eq!(words(&given), ["train", "--device", "cpu", "--", "--nodes"]);
    }
}
