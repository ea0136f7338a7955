//! A training by several ranks as a job of a batch system: one rank on each node. The job resumes the run if it has begun, so the same file can
//! be submitted again, and a job that is put back into the queue continues.

use std::path::{Path, PathBuf};

use plimsoll_memory::Bytes;
use plimsoll_run::{FoldFolder, RunPlan};

use super::request::{FoldChoice, TrainRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;
use crate::jobs::plan_ranks::plan_rank;
use crate::jobs::sweep::batch::{
    BatchSystem, NOTICE_SECONDS, batch_name, expect_writable, json_text, mebibytes, minutes, quoted,
    requeueing, sbatch_word,
};

/// The longest name of a training for Kubeflow: with `plimsoll-` before it and `-launcher-0-0-` and five letters behind it, it names a pod, which takes 63
/// bytes.
const LONGEST_NAME: usize = 35;

/// A file that submits a training by several ranks.
pub struct SubmissionFile {
    /// The batch system.
    pub system: BatchSystem,
    /// The file.
    pub path: PathBuf,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The argument that continues a run.
    pub resume_argument: &'static str,
}

/// The nodes of a job.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Their number, which is the number of ranks.
    pub count: usize,
    /// The folder in which the command runs.
    pub folder: PathBuf,
    /// Requests a GPU of each.
    pub with_gpu: bool,
    /// MPI libraries to look for before those that the system finds by their usual names: the memory of their code is planned.
    pub libraries: Vec<PathBuf>,
}

/// Plans a training by one rank on each node, and writes files that submit it. Trains nothing. Returns the plan of the rank with the most moments.
///
/// # Errors
/// Returns an error if the training is impossible or does not fit the memory limit, or a file cannot be written.
pub fn write_submissions(
    request: &TrainRequest,
    nodes: &Nodes,
    files: &[SubmissionFile],
    context: &Context,
) -> Outcome<RunPlan> {
    let fold = only_fold(request)?;
    let numbers = plan_rank(&request.plan, nodes.count, &nodes.libraries, context)?;
    numbers.check()?;
    let (run, dataset) = (absolute(request.run.path())?, absolute(&request.plan.dataset)?);
    let submission = Submission {
        name: batch_name(&run, "training"),
        limit: numbers.ram_budget_bytes,
        minutes: minutes(numbers.predicted_seconds),
        begun: absolute(&fold.specification())?,
        run: &run,
        dataset: &dataset,
        threads: request.plan.threads,
        nodes,
    };
    for file in files {
        let text = submission.text(file)?;
        write(&file.path, |out| out.write_all(text.as_bytes()))?;
    }
    Ok(numbers)
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::at_path(path, &error))
}

/// The fold that ranks train.
fn only_fold(request: &TrainRequest) -> Outcome<FoldFolder> {
    match &request.folds {
        FoldChoice::Named(names) if names.len() == 1 => Ok(request.run.fold(names[0])),
        _ => Err(Error::new(
            "several ranks train one fold, but the request has several",
            "write a file for each fold, like ‹fold=0›",
        )),
    }
}

/// A training of a job.
struct Submission<'a> {
    name: String,
    limit: Bytes,
    minutes: u64,
    /// The file that exists when the run has begun.
    begun: PathBuf,
    run: &'a Path,
    dataset: &'a Path,
    threads: usize,
    nodes: &'a Nodes,
}

impl Submission<'_> {
    fn text(&self, file: &SubmissionFile) -> Outcome<String> {
        let paths = [&file.path, &self.begun, &self.nodes.folder, &self.dataset.to_path_buf()];
        let paths: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        for word in file.command.iter().chain(&paths) {
            expect_writable(word)?;
        }
        Ok(match file.system {
            BatchSystem::Slurm => self.slurm(file),
            BatchSystem::Kubernetes => self.kubernetes(file),
        })
    }

    /// The lines of a shell that prepare the command: `$resume` continues a run that has begun.
    fn prepared(&self, file: &SubmissionFile) -> String {
        format!(
            "cd {} || exit 1\nresume=\nif [ -e {} ]; then resume={}; fi\n",
            quoted(&self.nodes.folder.to_string_lossy()),
            quoted(&self.begun.to_string_lossy()),
            file.resume_argument
        )
    }

    fn command(&self, file: &SubmissionFile) -> String {
        let words: Vec<String> = file.command.iter().map(|word| quoted(word)).collect();
        format!("{} $resume", words.join(" "))
    }

    fn slurm(&self, file: &SubmissionFile) -> String {
        let logs = self.run.join("slurm");
        let count = self.nodes.count;
        format!(
            "\
#!/bin/bash
# A training by {count} ranks, one on each node. Submit it with:
#   mkdir -p {folder} && sbatch {file}
# Give further options of Slurm, such as a partition or an account, to sbatch. If ranks do not find each other, set SLURM_MPI_TYPE to what
# `srun --mpi=list` lists for your MPI, such as pmix or pmi2.
#SBATCH --job-name={name}
#SBATCH --nodes={count}
#SBATCH --ntasks={count}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={threads}
#SBATCH --mem={memory}M
#SBATCH --time={minutes}
#SBATCH --signal=B:USR1@{NOTICE_SECONDS}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={output}
{gpu}
{prepared}
# Ranks that have ended wait for the first, which writes the scores.
srun --wait=0 --cpus-per-task={threads} {command} &
child=$!

{requeueing}",
            folder = quoted(&logs.to_string_lossy()),
            file = quoted(&file.path.to_string_lossy()),
            name = self.name,
            threads = self.threads,
            memory = mebibytes(self.limit),
            minutes = self.minutes,
            output = sbatch_word(&format!("{}/%j.log", logs.to_string_lossy().replace('%', "%%"))),
            gpu = if self.nodes.with_gpu { "#SBATCH --gres=gpu:1\n" } else { "" },
            prepared = self.prepared(file),
            command = self.command(file),
            requeueing = requeueing("$SLURM_JOB_ID"),
        )
    }

    /// A TrainJob of Kubeflow Trainer 2.
    fn kubernetes(&self, file: &SubmissionFile) -> String {
        let (count, threads, memory) = (self.nodes.count, self.threads, mebibytes(self.limit));
        let script = format!("{}exec mpirun -n {count} {}", self.prepared(file), self.command(file));
        // Kubernetes replaces $(NAME) before the shell sees it, unless its dollar is doubled.
        let script = json_text(&script.replace("$(", "$$("));
        let name: String = self.name.chars().take(LONGEST_NAME).collect();
        let name = name.trim_end_matches('-');
        let gpu = if self.nodes.with_gpu { "\n        nvidia.com/gpu: 1" } else { "" };
        format!(
            "\
# A training by {count} ranks, one on each node: kubectl apply -f FILE. Needs Kubeflow Trainer 2, and a runtime of your cluster with
# `mlPolicy.mpi`, such as a copy of its own `deepspeed-distributed`. Before that, put in your own image (with `plimsoll`, a shell, Open MPI and the sshd
# of the runtime) and the name of the runtime. The runtime mounts the data set and the folder of the run on all nodes where they are named here:
#   {dataset}
#   {run}
# A node of the job has the memory limit and a sixteenth more. 75 is the status of a training that received a signal and has written a
# checkpoint: let the runtime start it again, for example with `backoffLimit`.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: plimsoll-{name}
spec:
  runtimeRef:
    name: plimsoll-mpi
  trainer:
    image: plimsoll:latest
    numNodes: {count}
    numProcPerNode: 1
    command: [\"/bin/sh\", \"-c\"]
    args:
      - {script}
    resourcesPerNode:
      requests:
        cpu: {threads}
        memory: {memory}Mi
      limits:
        memory: {memory}Mi{gpu}
",
            dataset = self.dataset.display(),
            run = self.run.display(),
        )
    }
}
