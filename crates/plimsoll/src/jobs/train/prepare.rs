//! From a checked request to a planned training.

use std::collections::BTreeSet;

use plimsoll_data::{Fold, Splits};
use plimsoll_run::{FoldName, FoldRequest, InitialWeights, Resolved, RunConfig, Specification, Task};
use plimsoll_train::{Job, PlannedRun, RunData, Siblings, UntrainedClass};

use super::check::{Checked, FoldToTrain, no_fold};
use super::request::TrainRequest;
use super::settle::{Settled, settle};
use crate::context::Context;
use crate::error::Outcome;
use crate::folds_at_once::AtOnce;
use crate::jobs::at_once::Sharing;
use crate::jobs::plan::{Opened, PlanRequest};

/// A planned training that is ready to begin.
pub(in crate::jobs) struct Prepared {
    pub(super) folds: Vec<FoldToTrain>,
    /// The splits to store with a run that has none.
    pub(super) splits: Option<Splits>,
    pub(super) replaces_splits: bool,
    pub(super) initial: InitialWeights,
    pub(in crate::jobs) planned: PlannedRun,
    /// The memory of all folds, if several train at the same time.
    pub(super) at_once: Option<AtOnce>,
}

impl Prepared {
    /// The training of a fold.
    pub(super) fn job(
        &self,
        request: &TrainRequest,
        opened: &Opened,
        fold @ FoldToTrain { folder, .. }: &FoldToTrain,
        siblings: Option<Siblings>,
    ) -> Outcome<Job> {
        let mut notes = opened.skipped.clone();
        notes.extend(class_warnings(&opened.data, &self.planned.config.task, folder.name(), &fold.cases));
        notes.extend(request.notes.iter().cloned());
        Ok(Job {
            planned: self.planned.clone(),
            data: opened.data.clone(),
            request: fold_request(request, opened, &self.planned, fold, &self.initial)?,
            folder: folder.clone(),
            resume: request.resume,
            splits: self.splits.clone().map(|splits| (request.run.splits(), splits)),
            log_steps: request.monitoring.steps,
            siblings,
            warm: request.warm,
            cache: opened.cache.clone(),
            notes,
        })
    }

    /// The training of its first fold, which another process may have begun in the meantime.
    pub(in crate::jobs) fn trial(
        &self,
        request: &TrainRequest,
        opened: &Opened,
        siblings: Option<Siblings>,
    ) -> Outcome<Job> {
        let first = self.folds.first().ok_or_else(no_fold)?;
        Ok(Job { resume: true, ..self.job(request, opened, first, siblings)? })
    }
}

/// Warnings about classes that no training case of a fold has.
pub(super) fn class_warnings<'a>(
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

/// Resolves and plans a training. Settings of the run stay as they are unless the request changes them.
pub(super) fn prepare(
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
    let plan = |plan: &PlanRequest, opened: &Opened| plan.plan(opened, &config, &fold, is_set, context);
    let planned = sharing.plan(group, opened, plan)?;
    let at_once = (group > 1).then(|| AtOnce::new(group, opened, &planned));
    Ok(Prepared { folds, splits, replaces_splits, initial, planned, at_once })
}

/// The same for another rank than the first, which has planned the run with this configuration.
pub(super) fn prepare_like(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    config: &RunConfig,
    context: &Context,
) -> Outcome<Prepared> {
    opened.folds = checked.folds_needs()?;
    let replaces_splits = checked.replaces_splits;
    let Settled { folds, splits, initial, fold, .. } = settle(request, checked, opened, opened.machine)?;
    let planned = request.plan.plan(opened, config, &fold, true, context)?;
    Ok(Prepared { folds, splits, replaces_splits, initial, planned, at_once: None })
}

/// Resolves and plans a training in one of `parts` equal parts of the machine, even if it does not fit. `opened` has the whole machine
/// again when the function returns.
pub(in crate::jobs) fn prepare_part(
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
    let silent = Context::default();
    let plan = |plan: &PlanRequest, opened: &Opened| plan.plan(opened, &config, &fold, is_set, &silent);
    let planned = sharing.planned(parts, opened, &plan);
    opened.machine = whole;
    Ok(Prepared { folds, splits, replaces_splits: false, initial, planned: planned?, at_once: None })
}

/// The request of a fold, as its run compares it with its specification.
pub(super) fn fold_request(
    request: &TrainRequest,
    opened: &Opened,
    planned: &PlannedRun,
    FoldToTrain { folder, cases, left_out }: &FoldToTrain,
    initial: &InitialWeights,
) -> Outcome<FoldRequest> {
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
        Resolved { settings, config: planned.config.clone() },
        folder.name(),
        cases.clone(),
        &|case| contents.get(case).copied(),
        initial.clone(),
        &planned.programs.specified(),
        planned.backend.arithmetic(),
    )?;
    specification.left_out.clone_from(left_out);
    if folder.name() == FoldName::All {
        // Cases that were added after the fold began are in no list.
        let known: BTreeSet<&str> =
            cases.train.iter().chain(&cases.val).chain(left_out).map(String::as_str).collect();
        let mut new: Vec<&str> = contents.keys().copied().filter(|case| !known.contains(case)).collect();
        new.sort_unstable();
        specification.left_out.extend(new.into_iter().map(String::from));
    }
    Ok(FoldRequest {
        specification,
        names_cases,
        names_weights: request.plan.start.is_some(),
        accepts_changed_data: request.accept_changed_data,
    })
}
