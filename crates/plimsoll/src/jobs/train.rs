//! Training folds of a run: one after the other, or several at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_data::{Fold, FoldsNeeds, Splits};
use plimsoll_disk::atomic::sweep;
use plimsoll_memory::Budget;
use plimsoll_metrics::{CrossValidation, Missing, Summary};
use plimsoll_remedy::Remedy;
use plimsoll_run::{
    Asked, FoldFolder, FoldName, InitialWeights, Machine, Resolved, RunConfig, RunError, RunFolder,
    RunRecord, Settings, Specification, StopReason, Task, holder,
};
use plimsoll_train::{Company, Job, PlannedRun, RunData, UntrainedClass, train as train_fold};
use serde::Serialize;

use super::at_once::{AtOnce, Sharing};
use super::data_changes::{Begun, NewCases, unassigned};
use super::listed::{Listed, folds_needs};
use super::plan::{Opened, PlanRequest};
use super::validate::{ValidateRequest, cross_validate, summary_of};
use super::validate_images::ImageValidation;
use crate::backend::DeviceName;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::events::Event;
use crate::monitors::{Monitoring, Monitors};
use crate::watcher::Watcher;

/// Folds to be trained.
#[derive(Clone)]
pub struct TrainRequest {
    /// What shapes the run.
    pub plan: PlanRequest,
    /// The folder of the run.
    pub run: RunFolder,
    /// Which folds.
    pub folds: FoldChoice,
    /// How many of them train at once, at most.
    pub parallel: usize,
    /// What runs their programs.
    pub device: DeviceName,
    /// Whether cases are read into the cache before the first step.
    pub warm: bool,
    /// Whether to go on with what is there.
    pub resume: bool,
    /// Whether data that has changed since the run began is taken as it is.
    pub accept_changed_data: bool,
    /// What becomes of cases that the data set has gained since the run was begun.
    pub new_cases: Option<NewCases>,
    /// Parameters to start from, instead of random ones.
    pub weights: Option<WeightChoice>,
    /// Folds, instead of those of the run or of the data set.
    pub splits: Option<PathBuf>,
    /// What is written of it for those who watch.
    pub monitoring: Monitoring,
    /// Whether the validation cases of each fold are predicted whole and scored.
    pub validate: bool,
    /// How means over these treat missing scores.
    pub missing: Missing,
    /// What settings came to for other runs that this one is to be like; none where it is by itself. A run that goes on has its own.
    pub like: Option<Resolved>,
}

/// A file of parameters to start from.
#[derive(Clone)]
pub struct WeightChoice {
    /// The file of weights.
    pub path: PathBuf,
    /// Whether tensors that the network has no place for are left out.
    pub allow_extra: bool,
    /// Whether heads that do not fit begin anew.
    pub new_head: bool,
    /// Whether weights of three channels of an image are summed for one.
    pub sum_stem: bool,
}

/// Which folds of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldChoice {
    /// These.
    Named(Vec<FoldName>),
    /// As many as the splits have.
    Every,
}

/// A fold that is to be trained, with its cases.
#[derive(Clone)]
struct FoldToTrain {
    folder: FoldFolder,
    cases: Fold,
    /// Cases of the data set that are in no fold of the run.
    left_out: Vec<String>,
}

/// What follows from files' names and their first lines, before any image is read.
#[derive(Clone)]
pub(super) struct Checked {
    folds: Vec<FoldToTrain>,
    /// To be kept with the run, where it has none yet.
    splits: Option<Splits>,
    /// Whether the run's own are to be replaced, since its data set has changed.
    replaces_splits: bool,
    initial: InitialWeights,
}

impl Checked {
    /// A fold with these cases that begins at random, and the folds to be kept with its run.
    pub(super) fn of_fold(
        folder: FoldFolder,
        cases: Fold,
        (splits, left_out): (Option<Splits>, Vec<String>),
    ) -> Checked {
        let folds = vec![FoldToTrain { folder, cases, left_out }];
        Checked { folds, splits, replaces_splits: false, initial: InitialWeights::Seed }
    }

    /// The memory of the folds.
    fn folds_needs(&self) -> Outcome<FoldsNeeds> {
        self.splits.as_ref().map_or(Ok(FoldsNeeds::default()), folds_needs)
    }

    /// The same with other initial weights.
    pub(super) fn with_initial(self, initial: InitialWeights) -> Checked {
        Checked { initial, ..self }
    }
}

impl TrainRequest {
    /// Training fold 0 of a planned run from random parameters into a folder, and validating it.
    pub fn new(plan: PlanRequest, run: impl AsRef<Path>) -> TrainRequest {
        TrainRequest {
            plan,
            run: RunFolder::new(run.as_ref()),
            folds: FoldChoice::Named(vec![FoldName::Number(0)]),
            parallel: 1,
            device: DeviceName::Cpu,
            warm: false,
            resume: false,
            accept_changed_data: false,
            new_cases: None,
            weights: None,
            splits: None,
            monitoring: Monitoring::default(),
            validate: true,
            missing: Missing::default(),
            like: None,
        }
    }

    /// All that can be known at once. Everything that is wrong is told together.
    pub(super) fn check(&self, listed: &Listed, budget: &Budget, context: &Context) -> Outcome<Checked> {
        let ids = listed.names();
        let mut problems = Vec::new();
        let mut found = |problem: Error| problems.push(problem);
        let begun = Begun::of(&self.run).map_err(&mut found).unwrap_or(Begun { folds: Vec::new() });
        let placed = self
            .splits(listed, &ids, budget)
            .and_then(|splits| self.place(splits, &begun, (listed, &ids), context));
        let (splits, replaces_splits) = placed.map_err(&mut found).unwrap_or((None, false));
        let left_out = splits.as_ref().map_or_else(Vec::new, |splits| unassigned(&ids, splits));
        let initial = self.initial().unwrap_or_else(|problem| {
            found(problem);
            InitialWeights::Seed
        });
        let names = match (&self.folds, &splits) {
            (FoldChoice::Named(names), _) => names.clone(),
            (FoldChoice::Every, Some(splits)) => (0..splits.folds.len()).map(FoldName::Number).collect(),
            (FoldChoice::Every, None) => Vec::new(),
        };
        let mut folds = Vec::new();
        for name in names {
            let cases = match (name, &splits) {
                (FoldName::All, _) => {
                    let expected = begun.expect_all(&self.run.fold(name), &ids, self.new_cases);
                    expected.map(|()| Fold::all(&ids))
                }
                (FoldName::Number(number), Some(splits)) => splits.fold(number).cloned().map_err(Error::from),
                // Why there are no splits was told already.
                (FoldName::Number(_), None) => continue,
            };
            let folder = self.run.fold(name);
            if folder.is_begun() && !self.resume {
                found(RunError::Occupied { folder: folder.path().into() }.into());
            }
            if let Some((by, true)) = holder(&folder) {
                found(RunError::Locked { folder: folder.path().into(), holder: by.to_string() }.into());
            }
            match cases {
                Ok(cases) => {
                    let left_out = if name == FoldName::All { Vec::new() } else { left_out.clone() };
                    folds.push(FoldToTrain { folder, cases, left_out });
                }
                Err(problem) => found(problem),
            }
        }
        if self.resume && !folds.is_empty() && folds.iter().all(|fold| !fold.folder.is_begun()) {
            let specification = folds[0].folder.specification();
            found(RunError::NothingToResume { specification }.into());
        }
        writable(&self.run).unwrap_or_else(&mut found);
        self.monitoring.check().unwrap_or_else(&mut found);
        if problems.is_empty() {
            let splits = splits.filter(|_| {
                matches!(self.folds, FoldChoice::Every)
                    || folds.iter().any(|fold| fold.folder.name() != FoldName::All)
            });
            return Ok(Checked { folds, splits, replaces_splits, initial });
        }
        let all: Vec<String> = problems.iter().map(Error::line).collect();
        let remedy = problems.first().map_or_else(|| Remedy::from(""), |first| first.remedy().clone());
        Err(Error::new(all.join("; also: "), remedy))
    }

    /// The folds: those that were given, else the run's, else the data set's, else the usual ones; none if only `all` is asked for
    /// and there are too few cases to divide.
    fn splits(&self, listed: &Listed, ids: &[String], budget: &Budget) -> Outcome<Option<Splits>> {
        if let Some(given) = &self.splits
            && !given.is_file()
        {
            let message = format!("{} is not there", given.display());
            return Err(Error::new(message, "leave ‹splits› out to have folds made"));
        }
        let places = [self.splits.clone(), Some(self.run.splits()), listed.splits_file()];
        // Fold `all` is of no folds, so that no memory is needed for any.
        let only_all = self.folds == FoldChoice::Named(vec![FoldName::All]);
        Ok(match places.into_iter().flatten().find(|path| path.is_file()) {
            _ if only_all => None,
            Some(path) if path == self.run.splits() => Some(Splits::read_of_run(path, budget)?),
            Some(path) => Some(Splits::read(path, ids, budget)?),
            None => Some(listed.usual_splits(budget)?),
        })
    }

    /// Does with cases that the data set has gained or lost what is chosen. Returns also whether the run's splits are to be replaced.
    fn place(
        &self,
        splits: Option<Splits>,
        begun: &Begun,
        (listed, ids): (&Listed, &[String]),
        context: &Context,
    ) -> Outcome<(Option<Splits>, bool)> {
        // Fold `all` is of no splits.
        let has_numbers = match &self.folds {
            FoldChoice::Every => true,
            FoldChoice::Named(names) => names.iter().any(|name| *name != FoldName::All),
        };
        let Some(mut splits) = splits.filter(|_| has_numbers) else { return Ok((None, false)) };
        let run = self.run.path();
        let is_shorter = begun.remove_lost(run, &mut splits, ids, self.accept_changed_data)?;
        let (is_longer, notice) = begun.place_new(run, &mut splits, (listed, ids), self.new_cases)?;
        if let Some(notice) = notice {
            context.warn(notice);
        }
        Ok((Some(splits), is_shorter || is_longer))
    }

    /// Where parameters come from.
    fn initial(&self) -> Outcome<InitialWeights> {
        let Some(WeightChoice { path, allow_extra, new_head, sum_stem }) = &self.weights else {
            return Ok(InitialWeights::Seed);
        };
        Ok(InitialWeights::of_file(path, *allow_extra, *new_head, *sum_stem)?)
    }
}

/// That files can be made in the folder of a run, or in the first folder above it that is there.
fn writable(run: &RunFolder) -> Outcome {
    let there = run.path().ancestors().find(|folder| folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| Error::of_path(there, &error.into()))
}

/// What came of a fold.
#[derive(Serialize)]
pub struct TrainedFold {
    /// Which.
    pub fold: FoldName,
    /// Of its training.
    #[serde(flatten)]
    pub record: RunRecord,
    /// The scores of its validation cases, predicted whole.
    pub validation: Option<Summary>,
}

/// What came of all folds.
#[derive(Serialize)]
pub struct Trained {
    /// The folds.
    pub folds: Vec<TrainedFold>,
    /// Over all folds of the run that are validated.
    pub scores: Option<CrossValidation>,
    /// What the process held while several trained at once.
    pub at_once: Option<AtOnce>,
    /// Whether the process was told to end before all was done.
    pub is_stopped: bool,
}

/// Trains and validates folds, so many at a time as is asked for, until all are done or the process is told to end. What is done
/// already is not done again. Folds that train at once are validated one after the other, each with the whole line.
pub fn train(request: &TrainRequest, context: &Context) -> Outcome<Trained> {
    let (checked, mut opened) = open(request, context)?;
    train_opened(request, checked, &mut opened, context)
}

/// Refuses a convention for missing scores where classifiers are validated, which have none.
pub(super) fn expect_missing_is_used(listed: &Listed, missing: Missing) -> Outcome {
    match listed {
        Listed::Images { .. } if missing != Missing::default() => Err(Error::new(
            format!(
                "‹missing={}› is of label maps, but this data set has images with classes",
                missing.name()
            ),
            "leave it out",
        )),
        _ => Ok(()),
    }
}

/// Checks and inspects.
fn open(request: &TrainRequest, context: &Context) -> Outcome<(Checked, Opened)> {
    let line = request.plan.draw_line()?;
    let listed = request.plan.open_dataset(&line, context)?;
    listed.folder_use().expect_in(request.run.path())?;
    let checked = request.check(&listed, &line.budget, context)?;
    expect_missing_is_used(&listed, request.missing)?;
    Ok((checked, request.plan.inspect(listed, line, context)?))
}

/// Trains and validates folds of a data set that is open.
pub(super) fn train_opened(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    context: &Context,
) -> Outcome<Trained> {
    let prepared = prepare(request, checked, opened, context)?;
    let Prepared { folds, splits, replaces_splits, planned, at_once, .. } = &prepared;
    context.emit(&Event::Planned { planned, at_once: at_once.as_ref() });
    for FoldToTrain { folder, cases, .. } in folds {
        for warning in class_warnings(&opened.data, &planned.config.task, folder.name(), cases) {
            context.warn(warning);
        }
    }
    planned.numbers.check()?;
    if request.run.path().is_dir() {
        // What a killed process left; what another one writes is locked.
        sweep(request.run.path()).map_err(|error| Error::of_path(request.run.path(), &error))?;
    }
    let is_due = at_once.is_some() && !request.run.splits().exists();
    if let Some(splits) = splits.as_ref().filter(|_| is_due || *replaces_splits) {
        // Which of several folds would be the first to write them is not known.
        let made = plimsoll_disk::create_dir_all(request.run.path());
        made.map_err(|error| Error::of_path(request.run.path(), &error))?;
        splits.write(request.run.splits())?;
    }
    let mut trained =
        Trained { folds: Vec::new(), scores: None, at_once: at_once.clone(), is_stopped: false };
    let monitors = request.monitoring.open(&request.run);
    let group = trained.at_once.as_ref().map_or(1, |at_once| at_once.folds);
    for some in folds.chunks(group) {
        let company = trained.at_once.as_ref().map(AtOnce::company);
        let jobs = some.iter().map(|fold| prepared.job(request, opened, fold, company));
        let jobs = jobs.collect::<Outcome<Vec<Job>>>()?;
        context.keep_results();
        let records = match &mut trained.at_once {
            Some(at_once) => at_once.train(jobs, &mut opened.line, &monitors, context)?,
            None => {
                let alone = jobs.into_iter().map(|job| train_alone(job, opened, &monitors, context));
                alone.collect::<Outcome<_>>()?
            }
        };
        let stopped = records.iter().any(|record| record.ended == StopReason::Signal);
        for (FoldToTrain { folder, .. }, record) in some.iter().zip(records) {
            let mut validation = None;
            let is_validated = request.validate && is_validated(folder.name());
            if is_validated && !stopped && !trained.is_stopped {
                match validate(request, opened, (folder, &record), context)? {
                    Validated::Volumes(summary) => validation = Some(summary),
                    Validated::Images => {}
                    Validated::Stopped => trained.is_stopped = true,
                }
            }
            trained.folds.push(TrainedFold { fold: folder.name(), record, validation });
        }
        trained.is_stopped |= stopped;
        if trained.is_stopped {
            return Ok(trained);
        }
    }
    trained.scores = cross_validate(&request.run, request.missing)?;
    Ok(trained)
}

/// What validating a fold came to.
#[expect(clippy::large_enum_variant, reason = "one is made for each fold")]
pub(super) enum Validated {
    /// Label maps are written and scored.
    Volumes(Summary),
    /// The table of probabilities is written.
    Images,
    /// It was told to end before.
    Stopped,
}

/// Whether a fold has validation cases of its own: `all` validates with what it trains on.
pub(super) fn is_validated(fold: FoldName) -> bool {
    fold != FoldName::All
}

/// Whether the validation cases of a fold were predicted.
pub(super) fn has_validation(opened: &Opened, folder: &FoldFolder) -> bool {
    match opened.data {
        RunData::Volumes { .. } => summary_of(folder).is_file(),
        RunData::Images { .. } => folder.image_predictions().is_file(),
    }
}

/// Predicts the validation cases of a trained fold, and scores those that are volumes, with the whole line.
pub(super) fn validate(
    request: &TrainRequest,
    opened: &mut Opened,
    (folder, record): (&FoldFolder, &RunRecord),
    context: &Context,
) -> Outcome<Validated> {
    let (backend, threads) = (&request.plan.backend, request.plan.threads);
    match &opened.data {
        RunData::Volumes { dataset, .. } => {
            let tensorboard = request.monitoring.tensorboard;
            let missing = request.missing;
            let fold = ValidateRequest { folder, record, dataset, backend, threads, missing, tensorboard };
            let summary = fold.run(&mut opened.line, context)?;
            Ok(summary.map_or(Validated::Stopped, Validated::Volumes))
        }
        RunData::Images { dataset, .. } => {
            let fold = ImageValidation { folder, record, images: dataset, backend, threads };
            let is_done = fold.run(&mut opened.line, context)?;
            Ok(if is_done { Validated::Images } else { Validated::Stopped })
        }
    }
}

/// Trains a fold with the whole line.
pub(super) fn train_alone(
    job: Job,
    opened: &Opened,
    monitors: &Monitors,
    context: &Context,
) -> Outcome<RunRecord> {
    let mut watcher = Watcher::new(&job.folder, &job.planned, monitors, context);
    let record = train_fold(job, &opened.line.budget, context.stop.flag(), &mut watcher)?;
    Ok(record)
}

/// What is ready to begin.
pub(super) struct Prepared {
    folds: Vec<FoldToTrain>,
    /// To be kept with the run, where it has none yet.
    splits: Option<Splits>,
    replaces_splits: bool,
    initial: InitialWeights,
    pub(super) planned: PlannedRun,
    /// If more than one fold trains at a time.
    at_once: Option<AtOnce>,
}

impl Prepared {
    /// The training of a fold.
    fn job(
        &self,
        request: &TrainRequest,
        opened: &Opened,
        fold @ FoldToTrain { folder, .. }: &FoldToTrain,
        company: Option<Company>,
    ) -> Outcome<Job> {
        let mut notes = opened.skipped.clone();
        notes.extend(class_warnings(&opened.data, &self.planned.config.task, folder.name(), &fold.cases));
        Ok(Job {
            planned: self.planned.clone(),
            data: opened.data.clone(),
            asked: asked(request, opened, &self.planned, fold, &self.initial)?,
            folder: folder.clone(),
            resume: request.resume,
            splits: self.splits.clone().map(|splits| (request.run.splits(), splits)),
            log_steps: request.monitoring.steps,
            company,
            warm: request.warm,
            notes,
        })
    }

    /// The training of its first fold, of whose folder another process may have made a run by now.
    pub(super) fn trial(
        &self,
        request: &TrainRequest,
        opened: &Opened,
        company: Option<Company>,
    ) -> Outcome<Job> {
        let first = self.folds.first().ok_or_else(no_fold)?;
        Ok(Job { resume: true, ..self.job(request, opened, first, company)? })
    }
}

/// Warnings about classes that no training case of a fold has.
fn class_warnings<'a>(
    data: &RunData,
    task: &Task,
    name: FoldName,
    fold: &'a Fold,
) -> impl Iterator<Item = String> + use<'a> {
    data.untrained_classes(task, fold).into_iter().map(move |UntrainedClass { name: class, validation }| {
        match validation.first() {
            None => format!("class {class} is in no case of fold {name}"),
            Some(first) => format!(
                "class {class} is in no training case of fold {name}, but in {} validation cases, such as {first}",
                validation.len()
            ),
        }
    })
}

fn no_fold() -> Error {
    Error::new("no fold is named", "like ‹fold=0›")
}

/// Checks, inspects, resolves and plans; what is known of the run holds unless something else is said.
fn prepare(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    context: &Context,
) -> Outcome<Prepared> {
    let group = request.parallel.min(checked.folds.len()).max(1);
    opened.folds = checked.folds_needs()?;
    let sharing = Sharing::new(&request.plan, request.device, opened);
    let part = sharing.part(group, opened);
    let replaces_splits = checked.replaces_splits;
    let Settled { folds, splits, initial, config, is_set, fold } = settle(request, checked, opened, part)?;
    let plan = |plan: &PlanRequest, opened: &Opened| plan.plan(opened, (&config, &fold), is_set, context);
    let planned = sharing.plan(group, opened, plan)?;
    let at_once = (group > 1).then(|| AtOnce::new(group, opened, &planned));
    Ok(Prepared { folds, splits, replaces_splits, initial, planned, at_once })
}

/// The same of folds that have one of so many equal parts of the machine, whether they fit it or not. What is open has the whole machine
/// again afterwards.
pub(super) fn prepare_part(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    parts: usize,
) -> Outcome<Prepared> {
    let whole = opened.machine;
    opened.folds = checked.folds_needs()?;
    let sharing = Sharing::new(&request.plan, request.device, opened);
    let part = sharing.part(parts, opened);
    let Settled { folds, splits, initial, config, is_set, fold } = settle(request, checked, opened, part)?;
    let silent = Context::unobserved();
    let plan = |plan: &PlanRequest, opened: &Opened| plan.plan(opened, (&config, &fold), is_set, &silent);
    let planned = sharing.planned(parts, opened, &plan);
    opened.machine = whole;
    Ok(Prepared { folds, splits, replaces_splits: false, initial, planned: planned?, at_once: None })
}

/// What is to be trained, before it is planned.
struct Settled {
    folds: Vec<FoldToTrain>,
    splits: Option<Splits>,
    initial: InitialWeights,
    config: RunConfig,
    /// Whether the micro-batch is.
    is_set: bool,
    /// The first of the folds.
    fold: Fold,
}

/// Resolves settings with a part of the machine; what is known of the run, or of runs that it is to be like, holds unless something else
/// is said.
fn settle(
    request: &TrainRequest,
    Checked { mut folds, splits, mut initial, .. }: Checked,
    opened: &Opened,
    part: Machine,
) -> Outcome<Settled> {
    // A fold that resumes has its own settings, and one that begins those of the folds before it.
    let resumed = folds.iter().map(|fold| &fold.folder).find(|folder| folder.is_begun()).cloned();
    let begun = match resumed.or(request.run.folds()?.into_iter().next()) {
        Some(fold) => Some(Specification::read(&fold)?),
        None => None,
    };
    if let Some(begun) = begun.as_ref().filter(|_| request.weights.is_none()) {
        // Folds that are begun now begin as the others did.
        initial = begun.initial.clone();
    }
    let of_begun =
        |begun: &Specification| Resolved { settings: begun.settings.clone(), config: begun.config.clone() };
    let known = begun.as_ref().map(of_begun).or_else(|| request.like.clone());
    let fold = folds.first().map(|fold| fold.cases.clone()).ok_or_else(no_fold)?;
    let resolve = |settings| request.plan.resolve(settings, opened, &fold, part);
    let (config, is_set) = match &known {
        None => (resolve(&request.plan.settings)?, request.plan.settings.micro_batch.is_some()),
        Some(known) => {
            let settings = request.plan.settings.clone().or(known.settings.clone());
            // The patch of a run that goes on is its own, whatever its line is now.
            let own = known.config.training.patch;
            let is_volume = known.config.task.segmentation().is_ok_and(|task| task.dimensions() == 3);
            let with_patch =
                Settings { patch_size: settings.patch_size.or(is_volume.then_some(own)), ..settings.clone() };
            let resolved = resolve(&with_patch)?;
            let mut config = match settings == known.settings {
                true => known.config.clone(),
                false => resolved.clone(),
            };
            if settings.patch_size.is_none() && is_volume {
                keep_what_follows_from_patch(&mut config, &settings, known);
            }
            config.task.adopt_dataset(resolved.task);
            let range_is_set = settings.images.as_ref().is_some_and(|images| images.range_16_bit.is_some());
            config.task.keep_normalisation(&known.config.task, range_is_set);
            if request.plan.settings.micro_batch.is_none() {
                config.training.micro_batch = known.config.training.micro_batch;
            }
            config.products.adopt(&known.config.products);
            // A run that goes on keeps the changes that it began with.
            for concession in &request.plan.allowed {
                concession.adopt(&mut config, &known.config);
            }
            (config, true)
        }
    };
    let known_settings = known.as_ref().map(|known| known.settings.clone());
    let settings = match known_settings {
        Some(known) => request.plan.settings.clone().or(known),
        None => request.plan.settings.clone(),
    };
    if let Some(begun) = begun.filter(|_| folds.iter().any(|fold| !fold.folder.is_begun())) {
        begun.expect_settings_of(request.run.path(), (&settings, &config))?;
    }
    // What may not change is reported before it is planned.
    for fold in folds.iter().filter(|fold| fold.folder.is_begun()) {
        Specification::read(&fold.folder)?.expect_may_change(&fold.folder, (&settings, &config))?;
    }
    if folds.iter().any(|fold| !fold.folder.is_begun()) && !request.accept_changed_data {
        Begun::of(&request.run)?.expect_same_data(
            request.run.path(),
            &config.task,
            &opened.data.contents(),
        )?;
    }
    for fold in &mut folds {
        let used = opened.data.used(&config.task, &fold.cases);
        if fold.folder.name() == FoldName::All {
            let known: BTreeSet<&String> = used.train.iter().collect();
            fold.left_out = fold.cases.train.iter().filter(|case| !known.contains(case)).cloned().collect();
        }
        fold.cases = used;
    }
    let fold = opened.data.used(&config.task, &fold);
    Ok(Settled { folds, splits, initial, config, is_set, fold })
}

/// Takes over from a run that goes on what followed from the patch that was chosen for it, where its settings do not say otherwise now.
fn keep_what_follows_from_patch(config: &mut RunConfig, settings: &Settings, known: &Resolved) {
    let (own, began) = (&mut config.training, &known.config.training);
    own.patch = began.patch;
    let same_grid =
        (settings.dimensions, settings.spacing) == (known.settings.dimensions, known.settings.spacing);
    if same_grid && settings.network == known.settings.network {
        own.net.clone_from(&began.net);
    }
    if settings.batch_size.is_none() {
        own.batch = began.batch;
    }
    if settings.loss == known.settings.loss {
        own.loss.clone_from(&began.loss);
    }
}

fn asked(
    request: &TrainRequest,
    opened: &Opened,
    planned: &PlannedRun,
    FoldToTrain { folder, cases, left_out }: &FoldToTrain,
    initial: &InitialWeights,
) -> Outcome<Asked> {
    let known = if folder.is_begun() { Some(Specification::read(folder)?) } else { None };
    let names_cases = request.splits.is_some();
    let cases = match &known {
        Some(known) if !names_cases => &known.cases,
        _ => cases,
    };
    let settings = match known {
        Some(ref known) => request.plan.settings.clone().or(known.settings.clone()),
        None => request.plan.settings.clone(),
    };
    let contents = opened.data.contents();
    let mut specification = Specification::new(
        (settings, planned.config.clone()),
        (folder.name(), cases.clone()),
        &|case| contents.get(case).copied(),
        initial.clone(),
        planned.programs.all(),
        planned.backend.arithmetic(),
    )?;
    specification.left_out.clone_from(left_out);
    if folder.name() == FoldName::All {
        // What is new since the fold was begun is in no list.
        let known: BTreeSet<&str> =
            cases.train.iter().chain(&cases.val).chain(left_out).map(String::as_str).collect();
        let mut new: Vec<&str> = contents.keys().copied().filter(|case| !known.contains(case)).collect();
        new.sort_unstable();
        specification.left_out.extend(new.into_iter().map(String::from));
    }
    Ok(Asked {
        specification,
        names_cases,
        names_weights: request.weights.is_some(),
        accepts_changed_data: request.accept_changed_data,
    })
}

/// What would be trained: the specification of the first fold that is asked for.
pub fn describe(request: &TrainRequest, context: &Context) -> Outcome<Specification> {
    let (checked, mut opened) = open(request, context)?;
    describe_opened(request, checked, &mut opened, context)
}

/// The same, of a data set that is open.
pub(super) fn describe_opened(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    context: &Context,
) -> Outcome<Specification> {
    let Prepared { folds, initial, planned, .. } = prepare(request, checked, opened, context)?;
    let first = folds.first().ok_or_else(no_fold)?;
    let asked = asked(request, opened, &planned, first, &initial)?;
    Ok(asked.specification)
}
