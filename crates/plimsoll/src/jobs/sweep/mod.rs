//! A sweep: the trials of some arms, planned as a whole and then trained.
//!
//! A trial is a fold of a run like any other. A sweep adds the list of trials, the settings that the trials of an arm share, and their
//! order.

pub(in crate::jobs) mod batch;
mod planning;
mod side_by_side;
mod trials;
mod unchanged;

use std::path::Path;

use plimsoll_data::{Fold, Splits};
use plimsoll_disk::File;
use plimsoll_disk::atomic::sweep as sweep_unfinished;
use plimsoll_memory::Budget;
use plimsoll_metrics::Missing;
use plimsoll_run::{
    ArmRequest, FoldFolder, FoldName, FolderUse, Resolved, RunError, Settings, SweepFolder, SweepRequest,
    Trial, TrialPattern, Trials, write_json,
};

pub use batch::{BatchFile, BatchSystem, quoted};
pub use planning::{ArmReport, SweepReport};
pub use trials::{TrialReport, TrialState};

use self::planning::PlannedArm;
use self::unchanged::{DataState, expect_data_of_begun};
use super::data_changes::{Begun, unassigned};
use super::listed::Listed;
use super::plan::{Opened, PlanRequest};
use super::train::{Checked, FoldChoice, TrainRequest, expect_missing_is_used};
use crate::backend::DeviceName;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;
use crate::monitors::Monitoring;

/// A sweep to train.
pub struct SweepJob {
    /// The arms, seeds and folds.
    pub asked: SweepRequest,
    /// Its folder.
    pub folder: SweepFolder,
    /// The data set and the share of the machine of all trials, with the settings of the first arm.
    pub plan: PlanRequest,
    /// The device that runs the programs.
    pub device: DeviceName,
    /// The largest number of trials that train at the same time.
    pub parallel: usize,
    /// Reads cases into the cache before the first step.
    pub warm: bool,
    /// Files and events for dashboards.
    pub monitoring: Monitoring,
    /// Predicts and scores the validation cases of each trial after its training.
    pub validate: bool,
    /// The treatment of missing scores in means.
    pub missing: Missing,
    /// Resumes a sweep, or adds to it.
    pub resume: bool,
    /// The trials to train; empty for all.
    pub only: Vec<TrialPattern>,
}

/// A sweep whose data set is open and whose arms are planned.
pub struct Sweep<'a> {
    job: &'a SweepJob,
    trials: Trials,
    /// The trials of the sweep before this call; `None` if it is new.
    stored: Option<Trials>,
    cases: Cases,
    arms: Vec<PlannedArm>,
    opened: Opened,
    /// The state of the data set's files when they were opened.
    state: DataState,
}

/// The cases of the data set as they are divided.
struct Cases {
    names: Vec<String>,
    /// None if only `all` is trained.
    splits: Option<Splits>,
}

impl Cases {
    fn fold(&self, name: FoldName) -> Outcome<Fold> {
        match (name, &self.splits) {
            (FoldName::All, _) | (_, None) => Ok(Fold::all(&self.names)),
            (FoldName::Number(number), Some(splits)) => Ok(splits.fold(number)?.clone()),
        }
    }
}

impl<'a> Sweep<'a> {
    /// Opens and inspects the data set, and plans every arm. Nothing is written.
    pub fn open(job: &'a SweepJob, context: &Context) -> Outcome<Sweep<'a>> {
        FolderUse::Sweep.expect_in(job.folder.path())?;
        let stored = job.stored()?;
        job.expect_one_data_set()?;
        let memory = job.plan.set_limit(context)?;
        let listed = job.plan.open_dataset(&memory, context)?;
        expect_missing_is_used(&listed, job.missing)?;
        let (cases, trials) = job.cases(&listed, &memory.budget)?;
        if let Some(stored) = &stored {
            let missing = stored.missing_from(&trials);
            if !missing.is_empty() {
                let message = format!(
                    "{} is another sweep: it has {}",
                    job.folder.path().display(),
                    missing.join(", ")
                );
                let hint = "name all that it was started with, and further ones if needed; or start another sweep with ‹out›";
                return Err(Error::new(message, hint));
            }
        }
        if let Some(pattern) = job.only.iter().find(|pattern| !trials.each().any(|trial| pattern.has(&trial)))
        {
            let arms: Vec<&str> = trials.arms.iter().map(|arm| arm.name.as_str()).collect();
            let message = format!("‹only={pattern}›: there is no such trial");
            return Err(Error::new(message, format!("arms are {}", arms.join(", "))));
        }
        let opened = job.plan.inspect(listed, memory, context)?;
        if let Some(stored) = &stored {
            expect_data_of_begun(&job.folder, stored, &opened.data)?;
        }
        let state = DataState::read(&opened.data, &opened.memory.budget)?;
        let mut sweep = Sweep { job, trials, stored, cases, arms: Vec::new(), opened, state };
        sweep.plan(context)?;
        Ok(sweep)
    }

    /// Writes the request, the folds and the resolved settings of the arms, unless they are written already.
    pub fn record(&self) -> Outcome {
        let SweepJob { folder, asked, .. } = self.job;
        let io = |error| Error::at_path(folder.path(), &error);
        if self.stored.as_ref() == Some(&self.trials) {
            return Ok(());
        }
        plimsoll_disk::create_dir_all(folder.path()).map_err(io)?;
        let lock = File::append(folder.lock()).map_err(io)?;
        let is_ours = lock.try_lock().map_err(io)?;
        // Another process may have been faster since this one looked.
        let now = if folder.is_begun() { Some(folder.read()?) } else { None };
        if !is_ours || now != self.stored {
            let message =
                format!("another process has just started {}, or added to it", folder.path().display());
            return Err(Error::new(message, "the same command with ‹resume› continues it"));
        }
        sweep_unfinished(folder.path()).map_err(io)?;
        if let Some(splits) = &self.cases.splits {
            splits.write(folder.splits())?;
        }
        for arm in self.arms.iter().filter(|arm| !self.is_stored(&arm.asked)) {
            let path = folder.resolved(&arm.asked.arm.name);
            if let Some(parent) = path.parent() {
                plimsoll_disk::create_dir_all(parent).map_err(io)?;
                sweep_unfinished(parent).map_err(io)?;
            }
            write_json(&path, &arm.resolved)?;
        }
        write(&folder.request(), |file| file.write_all(asked.text.as_bytes()))?;
        Ok(folder.write(&self.trials)?)
    }

    /// Returns `true` if an arm was part of the sweep before.
    fn is_stored(&self, asked: &ArmRequest) -> bool {
        self.stored.iter().flat_map(|stored| &stored.arms).any(|arm| arm.name == asked.arm.name)
    }

    /// The requested trials, in order.
    fn asked_trials(&self) -> Vec<Trial> {
        let only = &self.job.only;
        self.trials
            .each()
            .filter(|trial| only.is_empty() || only.iter().any(|some| some.has(trial)))
            .collect()
    }

    fn fold(&self, trial: &Trial) -> FoldFolder {
        self.job.folder.trial(&trial.arm, trial.seed, trial.fold)
    }

    /// The training of a trial of an arm, and what is known of it without opening images.
    fn request(
        &self,
        asked: &ArmRequest,
        like: Option<Resolved>,
        trial: &Trial,
    ) -> Outcome<(TrainRequest, Checked)> {
        let job = self.job;
        let fold = self.fold(trial);
        let settings = Settings { seed: Some(trial.seed), ..asked.settings.clone() };
        let splits = self.cases.splits.clone().filter(|_| trial.fold != FoldName::All);
        let left_out = splits.as_ref().map_or_else(Vec::new, |splits| unassigned(&self.cases.names, splits));
        let checked = Checked::for_fold(fold.clone(), self.cases.fold(trial.fold)?, splits, left_out);
        let request = TrainRequest {
            plan: PlanRequest { settings, ..job.plan.clone() },
            run: job.folder.run(&trial.arm, trial.seed),
            folds: FoldChoice::Named(vec![trial.fold]),
            parallel: 1,
            device: job.device,
            warm: job.warm,
            resume: fold.is_begun(),
            accept_changed_data: false,
            new_cases: None,
            splits: None,
            monitoring: job.monitoring.clone(),
            validate: job.validate,
            missing: job.missing,
            like: like.map(|like| like.with_seed(trial.seed)),
            notes: Vec::new(),
        };
        Ok((request, checked))
    }
}

impl SweepJob {
    /// The existing trials; `None` if the sweep begins.
    fn stored(&self) -> Outcome<Option<Trials>> {
        match (self.folder.is_begun(), self.resume) {
            (true, true) => Ok(Some(self.folder.read()?)),
            (true, false) => Err(RunError::Occupied { folder: self.folder.path().into() }.into()),
            (false, true) => Err(RunError::NothingToResume { specification: self.folder.index() }.into()),
            (false, false) => Ok(None),
        }
    }

    /// Checks that all arms open the data set in the same way, since it is opened once.
    fn expect_one_data_set(&self) -> Outcome {
        let opening = |settings: &Settings| {
            let table = settings.images.as_ref().and_then(|images| images.table.clone());
            (settings.data.clone(), settings.labels.clone(), table)
        };
        let mut openings = self.asked.arms.iter().map(|arm| (arm, opening(&arm.settings)));
        let Some((_, first)) = openings.next() else { return Ok(()) };
        match openings.find(|(_, opening)| *opening != first) {
            None => Ok(()),
            Some((other, _)) => Err(Error::new(
                format!(
                    "arm `{}` sets `data`, `labels` or `images.table` differently, but all arms share one data set",
                    other.arm.name
                ),
                "set them in [settings], for all arms",
            )),
        }
    }

    /// The division of the data set, and the trials that follow from it. Folds are those that the sweep began with, or else of the
    /// request's file, of the data set, or the usual ones.
    fn cases(&self, listed: &Listed, budget: &Budget) -> Outcome<(Cases, Trials)> {
        let names = listed.names();
        let asked = &self.asked;
        let only_all = asked.folds.as_deref() == Some(&[FoldName::All]);
        let own = Some(self.folder.splits()).filter(|own| self.folder.is_begun() && own.is_file());
        match (&own, &asked.splits) {
            (None, Some(given)) if !given.is_file() => {
                let message = format!("{} does not exist", given.display());
                return Err(Error::new(message, "leave `splits` out to create folds"));
            }
            (Some(own), Some(given)) if given.is_file() => expect_same_folds(own, given, &names, budget)?,
            _ => {}
        }
        let places = [own, asked.splits.clone(), listed.splits_file()];
        let splits = match places.into_iter().flatten().find(|path| path.is_file()) {
            _ if only_all => None,
            Some(path) => Some(Splits::read(path, &names, budget)?),
            None => Some(listed.usual_splits(budget)?),
        };
        if let Some(splits) = &splits {
            self.expect_known(&unassigned(&names, splits))?;
        }
        let folds = match (&asked.folds, &splits) {
            (Some(folds), _) => folds.clone(),
            (None, Some(splits)) => (0..splits.folds.len()).map(FoldName::Number).collect(),
            (None, None) => Vec::new(),
        };
        let cases = Cases { names, splits };
        for fold in &folds {
            cases.fold(*fold)?;
        }
        let arms = asked.arms.iter().map(|arm| arm.arm.clone()).collect();
        let trials = Trials { arms, seeds: asked.seeds.clone(), folds };
        match trials.count() {
            Some(_) => Ok((cases, trials)),
            None => Err(Error::new(trials.too_many(), "divide it into several sweeps")),
        }
    }
}

impl SweepJob {
    /// Checks that cases which are in no fold were so when the sweep began.
    fn expect_known(&self, unassigned: &[String]) -> Outcome {
        if unassigned.is_empty() || !self.folder.is_begun() {
            return Ok(());
        }
        let trials = self.folder.read()?;
        for (arm, seed) in
            trials.arms.iter().flat_map(|arm| trials.seeds.iter().map(move |seed| (arm, *seed)))
        {
            let begun = Begun::read(&self.folder.run(&arm.name, seed))?;
            let Some((_, first)) = begun.folds.iter().find(|(fold, _)| fold.name() != FoldName::All) else {
                continue;
            };
            let new = unassigned.iter().filter(|case| !first.left_out.contains(case)).cloned();
            let cases: Vec<String> = new.collect();
            return match cases.is_empty() {
                true => Ok(()),
                false => Err(RunError::NewCasesOfSweep { folder: self.folder.path().into(), cases }.into()),
            };
        }
        Ok(())
    }
}

/// Checks that a file has the folds that the sweep began with.
fn expect_same_folds(own: &Path, given: &Path, names: &[String], budget: &Budget) -> Outcome {
    if Splits::read(own, names, budget)? == Splits::read(given, names, budget)? {
        return Ok(());
    }
    let message =
        format!("{} has other folds than {}, which the sweep started with", given.display(), own.display());
    Err(Error::new(message, "start another sweep with ‹out›, or leave `splits` out"))
}
