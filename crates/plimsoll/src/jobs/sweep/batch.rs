//! The trials of a sweep as jobs of a batch system: a Slurm array, or an Indexed Job of Kubernetes. Trials are independent, so a task is
//! a process that trains one of them; when its machine is taken back, it writes a checkpoint, ends with 75, and is begun again.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use plimsoll_memory::Bytes;
use plimsoll_run::Trial;

use super::Sweep;
use crate::error::{Error, Outcome};
use crate::files::write;

/// A batch system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSystem {
    /// Slurm: the file is one for `sbatch`.
    Slurm,
    /// Kubernetes: the file is one for `kubectl apply -f`.
    Kubernetes,
}

/// A file to be written for a batch system.
pub struct BatchFile {
    /// The batch system.
    pub system: BatchSystem,
    /// The file.
    pub path: PathBuf,
    /// The program and its arguments, but for the trial.
    pub command: Vec<String>,
    /// The argument of the program before the name of a trial.
    pub trial_argument: &'static str,
    /// Threads of a task.
    pub threads: usize,
    /// Requests a GPU for each task.
    pub on_gpu: bool,
}

/// The seconds before its time limit at which a task is notified.
pub(in crate::jobs) const NOTICE_SECONDS: u32 = 120;

/// The time limit of a task as a multiple of its predicted time; a constant is added. A task that reaches it resumes in another task.
const TIMES: f64 = 2.0;
const MORE_MINUTES: u64 = 30;

/// The longest word that the kernel takes as an argument of a process: the script of a pod is one.
const LONGEST_SCRIPT: usize = (128 << 10) - 1;

/// The longest name of a sweep for Kubernetes: with `plimsoll-` before it and the number of a trial behind it, it names a pod's host, which
/// takes 63 bytes.
const LONGEST_NAME: usize = 48;

impl Sweep<'_> {
    /// Writes a file with a task for each requested trial.
    pub fn write_batch(&self, file: &BatchFile) -> Outcome {
        let paths = [file.path.to_string_lossy().into_owned()];
        for word in file.command.iter().chain(&paths) {
            expect_writable(word)?;
        }
        let trials = self.asked_trials();
        let longest = trials.iter().filter_map(|trial| Some(self.arm(trial)?.numbers.predicted_seconds));
        let tasks = Tasks {
            name: batch_name(self.job.folder.path(), "sweep"),
            limit: self.opened.memory.limits.limit,
            minutes: minutes(longest.fold(0.0, f64::max)),
            folder: self.job.folder.path(),
            dataset: &self.job.plan.dataset,
            trials: &trials,
            file,
        };
        let text = match file.system {
            BatchSystem::Slurm => {
                tasks.slurm().map_err(|problem| Error::new(problem, "choose another file"))?
            }
            BatchSystem::Kubernetes => tasks.kubernetes()?,
        };
        write(&file.path, |out| out.write_all(text.as_bytes()))
    }
}

/// The name of a folder, as batch systems take names.
pub(in crate::jobs) fn batch_name(folder: &Path, otherwise: &str) -> String {
    let folder = folder.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let plain = |letter: char| if is_plain(letter) { letter } else { '-' };
    let name: String = folder.iter().flat_map(|name| name.chars()).map(plain).take(LONGEST_NAME).collect();
    match name.trim_matches('-') {
        "" => otherwise.into(),
        name => name.into(),
    }
}

/// The MiB of a task: the limit, and a sixteenth for memory that only the kernel counts.
pub(in crate::jobs) fn mebibytes(limit: Bytes) -> u64 {
    limit.0.saturating_add(limit.0 / 16).div_ceil(1 << 20)
}

/// The time limit in minutes of a task that is predicted to take some seconds.
pub(in crate::jobs) fn minutes(seconds: f64) -> u64 {
    ((TIMES * seconds / 60.0).ceil() as u64).saturating_add(MORE_MINUTES)
}

/// The end of a script of Slurm whose process `$child` trains. `job` is the job as scontrol names it.
pub(in crate::jobs) fn requeueing(job: &str) -> String {
    format!(
        "\
# Slurm signals this shell when time is nearly up, or another job needs the machine; the shell signals the training, which then writes a
# checkpoint and ends with 75. A signal ends `wait` before the training has ended, so the shell waits again.
told=yes
trap 'told=yes; kill -USR1 \"$child\" 2>/dev/null' USR1 TERM
while [ \"$told\" = yes ]; do
  told=no
  wait \"$child\"
  status=$?
done

# 75: unfinished. The task is put back into the queue; if that is refused, it fails and can be submitted again.
if [ \"$status\" -eq 75 ]; then
  scontrol requeue \"{job}\"
fi
exit \"$status\"
"
    )
}

struct Tasks<'a> {
    name: String,
    limit: Bytes,
    minutes: u64,
    folder: &'a Path,
    dataset: &'a Path,
    trials: &'a [Trial],
    file: &'a BatchFile,
}

impl Tasks<'_> {
    /// The command of a task, but for the name of its trial.
    fn command(&self) -> String {
        let argument = std::iter::once(self.file.trial_argument);
        let words = self.file.command.iter().map(String::as_str).chain(argument);
        words.map(quoted).collect::<Vec<_>>().join(" ")
    }

    fn slurm(&self) -> Result<String, std::fmt::Error> {
        let (last, command) = (self.trials.len().saturating_sub(1), self.command());
        let requeueing = requeueing("${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}");
        let logs = self.folder.join("slurm");
        let mut text = format!(
            "#!/bin/bash
# One task for each trial of a sweep. Submit it with:
#   mkdir -p {folder} && sbatch {file}
# Give further \
             options of Slurm, such as a partition or an account, to sbatch; --array=0-{last}%8 runs 8 at a time.
#SBATCH \
             --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task={threads}
#SBATCH --mem={mebibytes}M
#SBATCH \
             --time={minutes}
#SBATCH --signal=B:USR1@{NOTICE_SECONDS}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH \
             --output={output}
",
            folder = quoted(&logs.to_string_lossy()),
            file = quoted(&self.file.path.to_string_lossy()),
            name = self.name,
            threads = self.file.threads,
            mebibytes = mebibytes(self.limit),
            minutes = self.minutes,
            output = sbatch_word(&format!("{}/%A_%a.log", logs.to_string_lossy().replace('%', "%%"))),
        );
        if self.file.on_gpu {
            text.push_str("#SBATCH --gres=gpu:1\n");
        }
        text.push_str("\ntrials=(\n");
        for trial in self.trials {
            writeln!(text, "  {trial}")?;
        }
        write!(
            text,
            ")
trial=${{trials[$SLURM_ARRAY_TASK_ID]}}

{command} \"$trial\" &
child=$!

{requeueing}"
        )?;
        Ok(text)
    }

    fn kubernetes(&self) -> Outcome<String> {
        let count = self.trials.len();
        let trials: Vec<String> = self.trials.iter().map(ToString::to_string).collect();
        // Kubernetes replaces $(NAME) before the shell sees it, unless its dollar is doubled.
        let script = format!(
            "set -- {}; shift \"$JOB_COMPLETION_INDEX\"; exec {} \"$1\"",
            trials.join(" "),
            self.command().replace('$', "$$")
        );
        if script.len() > LONGEST_SCRIPT {
            let message = format!("the names of {count} trials are too long for one manifest");
            return Err(Error::new(message, "write several, each for some arms, with ‹only›"));
        }
        Ok(self.manifest(&script))
    }

    /// The manifest of a job whose pods run `script`.
    fn manifest(&self, script: &str) -> String {
        let (name, count) = (&self.name, self.trials.len());
        let (script, dataset, folder) = (
            json_text(script),
            json_text(&self.dataset.to_string_lossy()),
            json_text(&self.folder.to_string_lossy()),
        );
        let (memory, threads) = (mebibytes(self.limit), self.file.threads);
        let gpu = if self.file.on_gpu { "\n              nvidia.com/gpu: 1" } else { "" };
        format!(
            "# One pod for each trial of a sweep: kubectl apply -f FILE. Before that, put in your own image (with `plimsoll` and a shell) \
             and
# your own claims for the data set and for the folder of the sweep, which must be mounted where they are named \
             here.
apiVersion: batch/v1
kind: Job
metadata:
  name: plimsoll-{name}
spec:
  completionMode: Indexed
  completions: \
             {count}
  parallelism: {count}  # quotas decide how many run at a time
  backoffLimitPerIndex: 3
  podFailurePolicy:
    \
             rules:
      # 75: it received a signal, has written a checkpoint, and continues in another pod; this does not count as a \
             failure.
      - action: Ignore
        onExitCodes:
          containerName: plimsoll
          operator: In
          \
             values: [75]
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
      # An error is the same \
             the next time; a process that was killed is tried again.
      - action: FailIndex
        onExitCodes:
          \
             containerName: plimsoll
          operator: In
          values: [1, 2]
  template:
    spec:
      restartPolicy: Never
    \
               terminationGracePeriodSeconds: {NOTICE_SECONDS}
      containers:
        - name: plimsoll
          image: \
             plimsoll:latest
          command: [\"/bin/sh\", \"-c\"]
          args:
            - {script}
          resources:
        \
                 requests:
              cpu: {threads}
              memory: {memory}Mi
            limits:
              memory: \
             {memory}Mi{gpu}
          volumeMounts:
            - name: dataset
              mountPath: {dataset}
              \
             readOnly: true
            - name: sweep
              mountPath: {folder}
      volumes:
        - name: dataset
          \
             persistentVolumeClaim:
            claimName: dataset
            readOnly: true
        - name: sweep
          \
             persistentVolumeClaim:
            claimName: sweep
"
        )
    }
}

/// Checks that a path stays the same in a file that a shell, sbatch and YAML read.
pub(in crate::jobs) fn expect_writable(word: &str) -> Outcome {
    let is_changed = |letter: char| letter.is_control() || "\"\\\u{fffd}".contains(letter);
    if !word.contains(is_changed) {
        return Ok(());
    }
    let message = format!("{word:?} would be a different path in a file for a batch system");
    Err(Error::new(message, "choose one in UTF-8 without double quotes, backslashes and line breaks"))
}

/// A word as sbatch reads it: it knows double quotes, and takes everything else as it is.
pub(in crate::jobs) fn sbatch_word(word: &str) -> String {
    if word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word.into() }
}

/// A text as JSON has it, which YAML reads too.
pub(in crate::jobs) fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A word as a shell takes it for one.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        for (word, shown) in [
            ("/data/set-1", "/data/set-1"),
            ("my data", "'my data'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), shown);
        }
        assert_eq!(sbatch_word("/my data/1.log"), "\"/my data/1.log\"");
        assert!(expect_writable("/my data/50%").is_ok());
        for word in ["a\nb", "a\"b", r"a\b", "a\u{fffd}b"] {
            assert!(expect_writable(word).is_err(), "{word:?}");
        }
    }
}
