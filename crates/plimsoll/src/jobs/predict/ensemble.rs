//! Segmenting images with several models, by the mean of their probabilities.
//!
//! Each model predicts all cases into a folder of its own below the folder of the labels before the next model is opened, so that only one
//! model is in memory. The mean is computed last. A case's probabilities are then removed unless the request keeps them.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll_data::{Case, FilesMemory, FoundImages, prediction_ending};
use plimsoll_infer::{
    CaseReport, CaseTimes, Destination, EnsembleRequest, InferError, LabelNames, Outcome as CaseOutcome,
    PredictPlan, label_by_mean,
};
use plimsoll_memory::{Budget, Digest};
use plimsoll_models::Answers;

use super::earlier_labels;
use super::image_warnings::ImageWarning;
use super::job::PredictionJob;
use super::label_folder::LabelFolder;
use super::model::{Opened, expect_earlier_used, open};
use super::output::{destination, expect_sound};
use super::parts::{self, PartLock};
use super::plan::{PLANS_ALL, PredictionPlan, earlier_plans, plan_cases};
use super::previews::Previews;
use super::report::PredictionReport;
use super::request::{PredictRequest, VolumeOptions};
use super::results::{Cases, Failed, Found, Kept, Predicted, refuse};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::outliers::OtherSpacing;
use crate::part::Share;

/// A model of several.
struct Member {
    opened: Opened,
    /// Its own request, whose labels and probabilities go into a folder of its own.
    request: PredictRequest,
}

/// Several models with their cases, before any is predicted.
struct Ensemble<'a> {
    /// The request of the ensemble.
    request: &'a PredictRequest,
    budget: Budget,
    labels: LabelFolder,
    members: Vec<Member>,
    cases: Vec<Case>,
    /// Images that no model can predict.
    refused: Vec<Failed>,
    /// The images of the requested part; `None` for all.
    share: Option<Share>,
    /// The destination of the labels by the mean.
    to: Destination,
    /// The reservation for the names of images.
    memory: FilesMemory,
}

fn no_model() -> Error {
    Error::new("no model is named", "name its folder")
}

impl<'a> Ensemble<'a> {
    fn open(requests: &'a [PredictRequest], context: &Context) -> Outcome<Ensemble<'a>> {
        let request = requests.first().ok_or_else(no_model)?;
        let budget = Budget::new(context.limits(request.ram).limit);
        expect_sound(request, &budget)?;
        let labels = LabelFolder::open(request, &budget, context)?;
        let members = open_all(requests, &budget, context)?;
        let model = &members.first().ok_or_else(no_model)?.opened.model;
        let found = request.images(model, &budget)?;
        let models: Vec<&Opened> = members.iter().map(|member| &member.opened).collect();
        let share = request.share(&models, &found, context);
        let FoundImages { cases, mut refused, memory } = found;
        refused.retain(|image| share.as_ref().is_none_or(|share| share.has(&image.case)));
        let refused = refuse(refused, context);
        let to = Destination {
            folder: labels.folder.clone(),
            names: LabelNames::Cases,
            ending: prediction_ending(&model.file_ending).into(),
            overwrite: request.overwrite,
            probabilities: false,
            earlier: None,
        };
        to.check(&cases)?;
        labels.last(&to).check(&cases)?;
        Ok(Ensemble { request, budget, labels, members, cases, refused, share, to, memory })
    }
}

/// The progress of a case.
struct CaseState<'a> {
    case: &'a Case,
    /// Windows of all models so far, and what they took.
    windows: usize,
    seconds: f64,
    /// The plan of the model that needs the most memory.
    plan: Option<PredictPlan>,
    /// Those at which models saw it in place of theirs.
    other_spacings: Vec<OtherSpacing>,
    times: Option<CaseTimes>,
    /// Why a model could not predict it.
    error: Option<InferError>,
}

/// Segments every image of the input with several models. The requests differ in the model, and in what follows from its kind.
pub fn predict_ensemble(requests: &[PredictRequest], context: &Context) -> Outcome<PredictionReport> {
    let start = Instant::now();
    let Ensemble { request, budget, labels, members, cases, refused, share, to, memory: _memory } =
        Ensemble::open(requests, context)?;
    let _lock = share.as_ref().map(|share| PartLock::take(&request.output, share.part)).transpose()?;
    let model = &members.first().ok_or_else(no_model)?.opened.model;
    labels.make()?;
    let previews = request.volumes.preview.then(|| Previews::new(&cases, model));
    let keeps = request.volumes.probabilities;
    let mean = Mean { members: &members, answers: &model.answers, to: &to, keeps };
    let own = cases.iter().filter(|case| share.as_ref().is_none_or(|share| share.has(&case.id)));
    let (done, missing): (Vec<&Case>, Vec<&Case>) = own.partition(|case| mean.is_done(case));
    parts::forget(request, missing.iter().copied(), &budget)?;
    let warnings = ImageWarning::collect(missing.iter().copied(), context);
    let mut states: Vec<CaseState> = missing.into_iter().map(CaseState::new).collect();
    for (number, member) in (1..).zip(&members) {
        if !states.is_empty() {
            context.note(format_args!(
                "model {number} of {}: {}",
                members.len(),
                member.opened.folder.display()
            ));
        }
        let job = PredictionJob { request: &member.request, budget: &budget, context };
        member.predict(job, &cases, &mut states, share.as_ref())?;
    }
    let kept = |case: &Case| Kept::new(case.id.clone(), to.file(case));
    let mut found = Cases { kept: done.into_iter().map(kept).collect(), failed: refused, ..Cases::default() };
    let folds = members.iter().map(|member| member.opened.model.weights.len()).sum();
    let job = PredictionJob { request, budget: &budget, context };
    let mut finished = job.finished_cases(folds);
    for state in states {
        let before = found.predicted.len();
        if state.error.is_none() {
            labels.remove_outdated([state.case], &to)?;
        }
        mean.label(state, &mut found, &budget, context.stop.flag())?;
        found.predicted.iter().skip(before).for_each(|predicted| finished.add(&predicted.case, predicted));
    }
    labels.process(&mut found, &budget, context.stop.flag())?;
    let not_drawn =
        previews.map_or(Ok(Vec::new()), |previews| previews.draw(&found, &budget, context.stop.flag()))?;
    let report = PredictionReport::write(job, found, warnings, not_drawn, finished, share.as_ref(), start)?;
    share.map_or(Ok(()), |share| parts::merge(&request.output, &share, &budget, context))?;
    Ok(report)
}

/// Plans what each model of several would hold and take, with the probabilities that it writes for the mean.
pub fn plan_ensemble(requests: &[PredictRequest], context: &Context) -> Outcome<Vec<PredictionPlan>> {
    requests.first().map_or(Ok(()), |request| request.expect_all(PLANS_ALL))?;
    let Ensemble { request, budget, members, cases, refused, to, memory: _memory, .. } =
        Ensemble::open(requests, &context.silent())?;
    let model = &members.first().ok_or_else(no_model)?.opened.model;
    let keeps = request.volumes.probabilities;
    let mean = Mean { members: &members, answers: &model.answers, to: &to, keeps };
    let (done, missing): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| mean.is_done(case));
    let mut plans = Vec::new();
    for Member { opened, request } in &members {
        let alone = VolumeOptions { probabilities: true, ..request.volumes.clone() };
        let request = PredictRequest { volumes: alone, ..request.clone() };
        if !missing.is_empty() {
            plans.extend(earlier_plans(&request, opened, context)?);
        }
        // Its labels go beside its probabilities, and no steps are done on them.
        let to = destination(&request, opened, request.output.clone());
        to.check(&missing)?;
        let (kept, left): (Vec<Case>, Vec<Case>) = missing.iter().cloned().partition(|case| to.keeps(case));
        let kept = kept.into_iter().chain(done.iter().cloned()).collect();
        let job = PredictionJob { request: &request, budget: &budget, context };
        let mut plan = plan_cases(job, opened, left, kept, &to)?;
        plan.refused.splice(..0, refused.iter().cloned());
        plans.push(plan);
    }
    Ok(plans)
}

/// Opens all models, and refuses those whose probabilities are not of the same.
fn open_all(requests: &[PredictRequest], budget: &Budget, context: &Context) -> Outcome<Vec<Member>> {
    let mut members: Vec<Member> = Vec::with_capacity(requests.len());
    for request in requests {
        let opened = open(request, budget, context)?;
        let mut own = request.clone();
        own.output = request.output.join(named_by_path(&opened.folder));
        if let Some(same) = members.iter().find(|member| member.request.output == own.output) {
            let message = format!("{} is named twice", same.opened.folder.display());
            return Err(Error::new(message, "name each model of an ensemble once"));
        }
        if let Some(first) = members.first() {
            expect_same(&first.opened, &opened)?;
        }
        members.push(Member { opened, request: own });
    }
    if let Some(request) = requests.first() {
        let opened: Vec<&Opened> = members.iter().map(|member| &member.opened).collect();
        expect_earlier_used(request, &opened)?;
    }
    Ok(members)
}

/// The most letters of a model's name in the name of a folder.
pub(in crate::jobs) const MOST_LETTERS: usize = 80;

/// The name of the folder of a model's predictions: the model's own name, and a number of its path. Models of the same name thus have
/// different folders, and a model that is passed in another place of a later call finds its own predictions.
pub(in crate::jobs) fn named_by_path(model: &Path) -> String {
    let path = model.canonicalize().unwrap_or_else(|_| model.to_path_buf());
    let number = Digest::compute(path.as_os_str().as_encoded_bytes()).0 as u32;
    match path.file_name() {
        Some(name) => {
            let name: String = name.to_string_lossy().chars().take(MOST_LETTERS).collect();
            format!("{name}.{number:08x}")
        }
        // The root of a file system.
        None => format!("{number:08x}"),
    }
}

/// Refuses two models that do not answer the same about the same images.
fn expect_same(one: &Opened, other: &Opened) -> Outcome {
    let channels = |opened: &Opened| {
        let names: Vec<&str> = opened.model.channels.iter().map(|channel| channel.name.as_str()).collect();
        names.join(", ")
    };
    let answers = |opened: &Opened| match &opened.model.answers {
        Answers::Classes(_) => opened.model.outputs.join(", "),
        Answers::Regions(values) => {
            format!("{}, written as {values:?}", opened.model.outputs.join(", "))
        }
    };
    let ending = |opened: &Opened| opened.model.file_ending.clone();
    let compared = [
        ("channels", channels(one), channels(other)),
        ("labels", answers(one), answers(other)),
        ("endings of images", ending(one), ending(other)),
    ];
    match compared.into_iter().find(|(_, own, others)| own != others) {
        None => Ok(()),
        Some((what, own, others)) => {
            let message = format!(
                "{} and {} cannot be averaged: their {what} are {own} and {others}",
                one.folder.display(),
                other.folder.display()
            );
            Err(Error::new(message, "average models of the same channels and labels"))
        }
    }
}

impl Member {
    /// The file of its probabilities of a case.
    fn probabilities(&self, case: &Case) -> PathBuf {
        self.request.output.join(format!("{}.npz", case.id))
    }

    /// Predicts, with probabilities, all cases at which no model before it failed.
    fn predict(
        &self,
        job: PredictionJob<'_>,
        all: &[Case],
        states: &mut [CaseState<'_>],
        share: Option<&Share>,
    ) -> Outcome {
        let Member { opened, request } = self;
        let mut states: Vec<&mut CaseState> = states.iter_mut().filter(|s| s.error.is_none()).collect();
        if states.is_empty() {
            return Ok(());
        }
        let to = Destination {
            folder: request.output.clone(),
            names: LabelNames::Cases,
            ending: prediction_ending(&opened.model.file_ending).into(),
            overwrite: request.overwrite,
            probabilities: true,
            earlier: earlier_labels(request, opened, share, job.context)?,
        };
        let cases: Vec<Case> = states.iter().map(|state| state.case.clone()).collect();
        let model = opened.model.clone();
        // A case is finished when it has its mean.
        let mut finish = |_: &Predicted| {};
        let Found { report, windows } = job.predict_into(&to, None, all, &cases, model, &mut finish)?;
        for (state, CaseReport { outcome, .. }) in states.iter_mut().zip(report.cases) {
            state.other_spacings.extend(windows.used(&state.case.id).cloned());
            state.add(outcome);
        }
        Ok(())
    }
}

impl<'a> CaseState<'a> {
    fn new(case: &'a Case) -> CaseState<'a> {
        CaseState {
            case,
            windows: 0,
            seconds: 0.0,
            plan: None,
            other_spacings: Vec::new(),
            times: None,
            error: None,
        }
    }

    /// Adds the result of another model.
    fn add(&mut self, outcome: CaseOutcome) {
        match outcome {
            CaseOutcome::Kept => {}
            CaseOutcome::Failed(error) => self.error = Some(error),
            CaseOutcome::Predicted { windows, seconds, plan, times } => {
                self.times = Some(self.times.map_or(times, |before| before.and(times)));
                self.windows += windows;
                self.seconds += seconds;
                let held = self.plan.as_ref().map(|plan| plan.total_bytes);
                if held.is_none_or(|held| plan.total_bytes > held) {
                    self.plan = Some(plan);
                }
            }
        }
    }
}

/// Labels by the mean of the models' probabilities.
struct Mean<'a> {
    members: &'a [Member],
    answers: &'a Answers,
    to: &'a Destination,
    /// Keeps probabilities when a case is labelled.
    keeps: bool,
}

impl Mean<'_> {
    fn probabilities(&self, case: &Case) -> Vec<PathBuf> {
        self.members.iter().map(|member| member.probabilities(case)).collect()
    }

    /// Returns `true` if all files of a case exist.
    fn is_done(&self, case: &Case) -> bool {
        let has_probabilities = || self.probabilities(case).iter().all(|file| file.exists());
        !self.to.overwrite && self.to.file(case).exists() && (!self.keeps || has_probabilities())
    }

    /// Labels a case that all models have predicted, and reports the result.
    fn label(&self, state: CaseState<'_>, found: &mut Cases, budget: &Budget, stop: &AtomicBool) -> Outcome {
        let CaseState { case, windows, seconds, plan, other_spacings, times, error } = state;
        let start = Instant::now();
        match error.map_or_else(|| self.write(case, budget, stop), Err) {
            Ok(()) => {
                let of_mean = start.elapsed().as_secs_f64();
                let times =
                    times.map(|times| CaseTimes { export_seconds: times.export_seconds + of_mean, ..times });
                if !self.keeps {
                    remove(&self.probabilities(case))?;
                }
                let seconds = seconds + start.elapsed().as_secs_f64();
                let file = self.to.file(case);
                let case = case.id.clone();
                let predicted = Predicted { case, file, windows, seconds, times, plan, other_spacings };
                found.predicted.push(predicted);
            }
            Err(error) => {
                // Here it is the file of one case that cannot be read.
                let is_unreadable = matches!(error, InferError::Probabilities { .. });
                if !is_unreadable && !error.is_of_one_case() {
                    return Err(error.into());
                }
                let mut failed = Failed::new(case.id.clone(), error);
                if is_unreadable {
                    failed.hint = "remove this file: the same command then predicts the case again".into();
                }
                found.failed.push(failed);
            }
        }
        Ok(())
    }

    fn write(&self, case: &Case, budget: &Budget, stop: &AtomicBool) -> Result<(), InferError> {
        let Some(image) = case.image_files().next() else {
            return Err(InferError::Unreadable { case: case.id.clone() });
        };
        let request = EnsembleRequest {
            case: &case.id,
            probabilities: &self.probabilities(case),
            answers: self.answers,
            image,
            labels: &self.to.file(case),
        };
        label_by_mean(&request, budget, stop)
    }
}

fn remove(files: &[PathBuf]) -> Outcome {
    let remove =
        |file: &PathBuf| plimsoll_disk::remove_file(file).map_err(|error| Error::at_path(file, &error));
    files.iter().try_for_each(remove)
}
