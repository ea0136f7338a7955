//! The settings of a training: resolved from the request, and from the run if it has begun.

use std::collections::BTreeSet;

use plimsoll_data::{Fold, Splits};
use plimsoll_run::{FoldName, InitialWeights, Machine, Resolved, RunConfig, Settings, Specification};

use super::check::{Checked, FoldToTrain, no_fold};
use super::request::TrainRequest;
use crate::error::Outcome;
use crate::jobs::data_changes::Begun;
use crate::jobs::plan::Opened;

/// A training with resolved settings, before it is planned.
pub(super) struct Settled {
    pub(super) folds: Vec<FoldToTrain>,
    pub(super) splits: Option<Splits>,
    pub(super) initial: InitialWeights,
    pub(super) config: RunConfig,
    /// `true` if the micro-batch is set and must not be chosen by the plan.
    pub(super) is_set: bool,
    /// The cases of the first fold.
    pub(super) fold: Fold,
}

/// Resolves settings for a part of the machine. Settings of the run, or of runs that it shares them with, stay as they are unless the
/// request changes them.
pub(super) fn settle(
    request: &TrainRequest,
    Checked { mut folds, splits, mut initial, .. }: Checked,
    opened: &Opened,
    part: Machine,
) -> Outcome<Settled> {
    // A fold that resumes has its own settings; a fold that begins takes the settings of the folds before it.
    let resumed = folds.iter().map(|fold| &fold.folder).find(|folder| folder.is_begun()).cloned();
    let begun = match resumed.or(request.run.folds()?.into_iter().next()) {
        Some(fold) => Some(Specification::read(&fold)?),
        None => None,
    };
    if let Some(begun) = begun.as_ref().filter(|_| request.plan.start.is_none()) {
        // New folds begin with the same initial weights as the others.
        initial = begun.initial.clone();
    }
    let resolved =
        |begun: &Specification| Resolved { settings: begun.settings.clone(), config: begun.config.clone() };
    let known = begun.as_ref().map(resolved).or_else(|| request.like.clone());
    let fold = folds.first().map(|fold| fold.cases.clone()).ok_or_else(no_fold)?;
    let (config, is_set) = resolve(request, opened, part, &fold, known.as_ref())?;
    let known_settings = known.as_ref().map(|known| known.settings.clone());
    let settings = match known_settings {
        Some(known) => request.plan.settings.clone().or(known),
        None => request.plan.settings.clone(),
    };
    expect_same_run(request, begun.as_ref(), &folds, opened, &settings, &config)?;
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

/// The configuration of a training, and `true` if its micro-batch is set.
fn resolve(
    request: &TrainRequest,
    opened: &Opened,
    part: Machine,
    fold: &Fold,
    known: Option<&Resolved>,
) -> Outcome<(RunConfig, bool)> {
    let resolve = |settings| request.plan.resolve(settings, opened, fold, part);
    Ok(match known {
        None => (resolve(&request.plan.settings)?, request.plan.settings.micro_batch.is_some()),
        Some(known) => {
            let settings = request.plan.settings.clone().or(known.settings.clone());
            // A resumed run keeps its patch under any memory limit.
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
            // The usual precision of another device is no reason to change it.
            if settings.precision.is_none() {
                config.training.precision = known.config.training.precision;
                config.products = known.config.products.clone();
            }
            config.products.adopt(&known.config.products);
            // A resumed run keeps the concessions that it began with.
            for concession in &request.plan.allowed {
                concession.adopt(&mut config, &known.config);
            }
            (config, true)
        }
    })
}

/// Checks that folds which resume, or begin beside others, have the settings and the data of their run.
fn expect_same_run(
    request: &TrainRequest,
    begun: Option<&Specification>,
    folds: &[FoldToTrain],
    opened: &Opened,
    settings: &Settings,
    config: &RunConfig,
) -> Outcome {
    if let Some(begun) = begun.filter(|_| folds.iter().any(|fold| !fold.folder.is_begun())) {
        begun.expect_settings_of(request.run.path(), settings, config)?;
    }
    // Settings that must not change are reported before anything is planned.
    for fold in folds.iter().filter(|fold| fold.folder.is_begun()) {
        Specification::read(&fold.folder)?.expect_may_change(&fold.folder, settings, config)?;
    }
    if folds.iter().any(|fold| !fold.folder.is_begun()) && !request.accept_changed_data {
        Begun::read(&request.run)?.expect_same_data(
            request.run.path(),
            &config.task,
            &opened.data.contents(),
        )?;
    }
    Ok(())
}

/// Keeps the patch of a resumed run, and the settings that follow from it, unless the request changes them.
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
