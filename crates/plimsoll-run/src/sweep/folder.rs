//! The files of a sweep.
//!
//! ```text
//! SWEEP/sweep.toml                     the request, with the settings that all arms share
//! SWEEP/sweep.json                     the trials that follow from it; written last: with it the sweep has begun
//! SWEEP/splits_final.json              the folds of all trials
//! SWEEP/lock                           the process that begins the sweep or adds to it
//! SWEEP/ARM/resolved.json              the settings of an arm, with the values that follow from the memory limit
//! SWEEP/ARM/seed_0/                    a run, whose folds are trials
//! SWEEP/ARM/seed_0/fold_0/             a trial
//! SWEEP/ARM/seed_0/fold_0_failed.json  the last failure of a trial
//! ```
//!
//! An arm is one choice of all settings that are varied; its folds and seeds are its repeats.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Trial, TrialFailure};
use crate::{
    FoldFolder, FoldName, RunConfig, RunError, RunFolder, Settings, printable, read_json, write_json,
};

/// The most bytes of the list of trials.
const MOST_BYTES: u64 = 16 << 20;

/// The most bytes of what stands beside runs: a failure, or the settings of an arm.
const MOST_BYTES_BESIDE: u64 = 1 << 20;

/// The longest name of an arm, in bytes: a file system takes 255.
const LONGEST_NAME: usize = 100;

/// One choice of all settings that are varied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name: a part of a path, and unique in the sweep.
    pub name: String,
    /// Its settings, by the dotted keys of `plimsoll.toml`.
    pub settings: BTreeMap<String, Value>,
}

/// The trials of a sweep: each arm, with each seed, on each fold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// In the order in which they were given.
    pub arms: Vec<Arm>,
    /// Ascending.
    pub seeds: Vec<u64>,
    /// Ascending.
    pub folds: Vec<FoldName>,
}

impl Trials {
    /// The most of a sweep.
    pub const MOST: usize = 10_000;

    /// The number of trials; `None` if it exceeds the limit of a sweep.
    pub fn count(&self) -> Option<usize> {
        let repeats = [self.seeds.len(), self.folds.len()];
        let count = repeats.into_iter().try_fold(self.arms.len(), |count, more| count.checked_mul(more));
        count.filter(|count| *count <= Trials::MOST)
    }

    /// The numbers of arms, seeds and folds, for the error about too many trials.
    pub fn too_many(&self) -> String {
        let Trials { arms, seeds, folds } = self;
        let (arms, seeds, folds, most) = (arms.len(), seeds.len(), folds.len(), Trials::MOST);
        format!("{arms} arms with {seeds} seeds on {folds} folds are more than {most} trials")
    }

    /// Each arm with each seed on each fold. All arms come on the first fold with the first seed before any comes on another, so that what
    /// is done can be compared at any time.
    pub fn each(&self) -> impl Iterator<Item = Trial> + '_ {
        let places = self.seeds.iter().flat_map(|seed| self.folds.iter().map(move |fold| (*seed, *fold)));
        places.flat_map(|(seed, fold)| {
            self.arms.iter().map(move |arm| Trial { arm: arm.name.clone(), seed, fold })
        })
    }

    /// The arms, seeds and folds that `others` lack, and arms with other settings there.
    pub fn missing_from(&self, others: &Trials) -> Vec<String> {
        let mut missing = Vec::new();
        for arm in &self.arms {
            match others.arms.iter().find(|other| other.name == arm.name) {
                None => missing.push(format!("arm {}", arm.name)),
                Some(other) if other != arm => missing.push(format!("arm {} with its settings", arm.name)),
                Some(_) => {}
            }
        }
        let seeds = self.seeds.iter().filter(|seed| !others.seeds.contains(seed));
        missing.extend(seeds.map(|seed| format!("seed {seed}")));
        let folds = self.folds.iter().filter(|fold| !others.folds.contains(fold));
        missing.extend(folds.map(|fold| format!("fold {fold}")));
        missing
    }
}

/// The resolved settings of an arm: its patch, its micro-batch and allowed changes follow from the memory limit and the machine when the
/// sweep begins. All trials of the arm share them, whenever and wherever they are trained, except for the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// The user's settings.
    pub settings: Settings,
    /// The resolved configuration.
    pub config: RunConfig,
}

impl Resolved {
    /// The same with another seed.
    pub fn with_seed(mut self, seed: u64) -> Resolved {
        self.settings.seed = Some(seed);
        self.config.seed = seed;
        self
    }
}

/// The folder of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepFolder {
    path: PathBuf,
}

impl SweepFolder {
    /// At a place, where it need not be yet.
    pub fn new(path: impl Into<PathBuf>) -> SweepFolder {
        SweepFolder { path: path.into() }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` if the sweep has begun.
    pub fn is_begun(&self) -> bool {
        self.index().is_file()
    }

    /// The file of the request.
    pub fn request(&self) -> PathBuf {
        self.path.join("sweep.toml")
    }

    /// The trials that follow from it.
    pub fn index(&self) -> PathBuf {
        self.path.join("sweep.json")
    }

    /// The run of an arm with a seed.
    pub fn run(&self, arm: &str, seed: u64) -> RunFolder {
        RunFolder::new(self.path.join(arm).join(format!("seed_{seed}")))
    }

    /// The folds of all trials.
    pub fn splits(&self) -> PathBuf {
        self.path.join("splits_final.json")
    }

    /// Locked by a process that begins the sweep or adds to it.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Returns `true` if an arm can have a name: a single part of a path that needs no quotes in a shell, and is no file of a sweep.
    pub(super) fn may_be_an_arm(name: &str) -> bool {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.+=".contains(letter);
        let own = SweepFolder::new("");
        let files = [own.request(), own.index(), own.splits(), own.lock()];
        (1..=LONGEST_NAME).contains(&name.len())
            && name.chars().all(is_plain)
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && files.iter().all(|file| file != Path::new(name))
    }

    /// The settings of an arm, with what was chosen for the limit.
    pub fn resolved(&self, arm: &str) -> PathBuf {
        self.path.join(arm).join("resolved.json")
    }

    /// Reads these settings.
    ///
    /// # Errors
    /// Returns an error if they are not there, or are none.
    pub fn read_resolved(&self, arm: &str) -> Result<Resolved, RunError> {
        let path = self.resolved(arm);
        let value: Value = read_json(&path, MOST_BYTES_BESIDE)?;
        let mut resolved: Resolved = serde_json::from_value(value)
            .map_err(|problem| RunError::Json { path: path.clone(), why: problem.to_string() })?;
        resolved.config.restore();
        let checked = resolved.settings.check().and_then(|()| resolved.config.check());
        match checked {
            Ok(()) => Ok(resolved),
            Err(problem) => Err(RunError::Json { path, why: problem.to_string() }),
        }
    }

    /// The file of the last failure of a trial.
    pub fn failure(&self, trial: &Trial) -> PathBuf {
        self.run(&trial.arm, trial.seed).path().join(format!("fold_{}_failed.json", trial.fold))
    }

    /// Reads the last failure of a trial; `None` if it did not fail.
    ///
    /// # Errors
    /// Returns an error if the file exists but cannot be read.
    pub fn read_failure(&self, trial: &Trial) -> Result<Option<TrialFailure>, RunError> {
        let path = self.failure(trial);
        match path.is_file() {
            true => Ok(Some(read_json(&path, MOST_BYTES_BESIDE)?)),
            false => Ok(None),
        }
    }

    /// The folder of a trial.
    pub fn trial(&self, arm: &str, seed: u64, fold: FoldName) -> FoldFolder {
        self.run(arm, seed).fold(fold)
    }

    /// Its trials.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, are too many, or an arm's name is no part of a path.
    pub fn read(&self) -> Result<Trials, RunError> {
        let trials: Trials = read_json(&self.index(), MOST_BYTES)?;
        let wrong = |why: String| RunError::Json { path: self.index(), why };
        if trials.count().is_none() {
            return Err(wrong(trials.too_many()));
        }
        match trials.arms.iter().find(|arm| !SweepFolder::may_be_an_arm(&arm.name)) {
            None => Ok(trials),
            Some(arm) => Err(wrong(format!("{:?} is not a valid name of an arm", printable(&arm.name)))),
        }
    }

    /// Writes its trials, whole or not at all.
    ///
    /// # Errors
    /// Returns an error if they cannot be written.
    pub fn write(&self, trials: &Trials) -> Result<(), RunError> {
        write_json(&self.index(), trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_more_trials_than_a_sweep_may_have_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SweepFolder::new(dir.path());
        let arm = |number: u64| Arm { name: format!("arm{number}"), settings: BTreeMap::new() };
        let folds: Vec<FoldName> = (0..100).map(FoldName::Number).collect();
        let mut trials = Trials { arms: vec![arm(0)], seeds: (0..100).collect(), folds };
        folder.write(&trials).unwrap();
        assert_eq!(folder.read().unwrap(), trials);
        trials.arms.push(arm(1));
        folder.write(&trials).unwrap();
        let problem = folder.read().unwrap_err().to_string();
        assert!(problem.contains("2 arms with 100 seeds on 100 folds are more than 10000"), "{problem}");
    }
}
