//! Predicting the validation cases of a trained fold whole, as nnU-Net does, and scoring them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Case, Dataset};
use plimsoll_disk::atomic::sweep;
use plimsoll_infer::Destination;
use plimsoll_memory::{Budget, Digest};
use plimsoll_metrics::{CasePaths, CaseScores, CrossValidation, Missing, Settings, Summary};
use plimsoll_models::Model;
use plimsoll_monitor::tensorboard::EventFile;
use plimsoll_plan::Backend;
use plimsoll_report::inspect_page::label_table;
use plimsoll_report::preview::{Files, thumbnail};
use plimsoll_run::{
    CheckpointKind, FoldFolder, RunError, RunFolder, RunRecord, checkpoint_origin, read_json, write_json,
};
use serde::{Deserialize, Serialize};

use super::evaluate::{foreground, score};
use super::memory_limit::MemoryLimit;
use super::predict::fold::{FoldPrediction, fold_labels};
use super::train::Validated;
use super::validating_ranks::ValidatingRanks;
use crate::context::Context;
use crate::error::{Error, Outcome};

/// The longest summary that is read; one of a hundred thousand cases is shorter.
pub(super) const LONGEST_SUMMARY: u64 = 256 << 20;

/// The number of cases in TensorBoard, and the pixels of their longer side.
const SHOWN: usize = 4;
const SIDE: usize = 400;

/// The checkpoint that predictions were made with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The identity of the run.
    specification: Digest,
    /// Steps done.
    steps: u64,
}

impl Origin {
    /// The checkpoint of a fold's validation, which must have its final weights.
    ///
    /// # Errors
    /// Returns an error if the fold is not validated, has no final weights, or was trained on since.
    pub fn read_validated(fold: &FoldFolder) -> Outcome<Origin> {
        let validated: Origin = read_json(&fold.validation().join(ORIGIN), LONGEST_SUMMARY)?;
        let (specification, steps) = checkpoint_origin(fold, CheckpointKind::Final)?;
        let trained = Origin { specification, steps };
        if validated != trained {
            let message = format!(
                "{} was validated after step {}, but its weights are from step {}",
                fold.path().display(),
                validated.steps,
                trained.steps
            );
            return Err(Error::new(
                message,
                "‹job train +resume› without ‹skip_validation› validates it again",
            ));
        }
        Ok(validated)
    }
}

/// The file that names the checkpoint of a fold's validation.
const ORIGIN: &str = "origin.json";

/// A fold to be validated.
pub struct ValidateRequest<'a> {
    /// The folder.
    pub folder: &'a FoldFolder,
    /// The record of the training.
    pub record: &'a RunRecord,
    /// The data set.
    pub dataset: &'a Dataset,
    /// The backend that runs programs.
    pub backend: &'a Arc<dyn Backend>,
    /// Threads that compute.
    pub threads: usize,
    /// The treatment of missing scores in means.
    pub missing: Missing,
    /// Shows some predictions in TensorBoard.
    pub tensorboard: bool,
}

impl ValidateRequest<'_> {
    fn summary(&self) -> PathBuf {
        summary_of(self.folder)
    }

    /// Predicts the remaining cases and scores all, each rank a part of them. Results of another checkpoint are removed first.
    pub(super) fn run(
        &self,
        memory: &mut MemoryLimit,
        ranks: &mut ValidatingRanks<'_>,
        context: &Context,
    ) -> Outcome<Validated> {
        let cases = self.cases()?;
        let to = fold_labels(&self.folder.validation(), &self.dataset.file_ending, false);
        let known = if ranks.is_first() { self.known_scores(&cases, &to)? } else { None };
        if !ranks.begin(known.is_none())? {
            return Ok(known.map_or(Validated::Elsewhere, Validated::Volumes));
        }
        let own = ranks.own(&cases);
        let is_predicted = own.is_empty() || {
            let model = Model::open(self.folder.path(), CheckpointKind::Final)?.try_into()?;
            let prediction = FoldPrediction { backend: self.backend, threads: self.threads, context };
            prediction.predict(model, &own, &to, memory, &mut || ranks.exchange())?
        };
        let settings = self.settings();
        let scores = match is_predicted {
            true => self.score_own(&own, &to, &settings, &memory.budget, context)?,
            false => Vec::new(),
        };
        if ranks.finish(!is_predicted)? {
            return Ok(Validated::Stopped);
        }
        let Some(merged) = ranks.merge(scores, &memory.budget)? else { return Ok(Validated::Elsewhere) };
        // A case without a reference has no scores.
        let summary = Summary::new(merged.all.into_iter().flatten().collect(), settings);
        write_json(&self.summary(), &summary)?;
        if self.tensorboard
            && let Err(failure) = self.show(&cases, &to, &memory.budget)
        {
            // The predictions and their scores are complete without it.
            context.warn(format_args!("monitoring: {}", failure.line()));
        }
        Ok(Validated::Volumes(summary))
    }

    /// Prepares the folder of the results. Returns the scores if they are of this checkpoint.
    fn known_scores(&self, cases: &[Case], to: &Destination) -> Outcome<Option<Summary>> {
        let folder = self.folder.validation();
        let io = |error| Error::at_path(&folder, &error);
        plimsoll_disk::create_dir_all(&folder).map_err(io)?;
        sweep(&folder).map_err(io)?;
        let files: Vec<PathBuf> = cases.iter().map(|case| to.file(case)).chain([self.summary()]).collect();
        keep_or_clear(&folder, self.record, &files)?;
        let Some(mut summary) = read_summary(self.folder)? else { return Ok(None) };
        if summary.settings.missing != self.missing {
            summary = summary.with_missing(self.missing);
            write_json(&self.summary(), &summary)?;
        }
        Ok(Some(summary))
    }

    /// The settings of the scores.
    fn settings(&self) -> Settings {
        let labels = &self.dataset.labels;
        let (regions, ignore, missing) = (labels.scored_regions(), labels.ignore(), self.missing);
        Settings { regions, ignore, missing, ..Settings::new(foreground(labels)) }
    }

    /// Scores the predicted cases of this rank; `None` for a case without a reference.
    fn score_own(
        &self,
        cases: &[Case],
        to: &Destination,
        settings: &Settings,
        budget: &Budget,
        context: &Context,
    ) -> Outcome<Vec<Option<CaseScores>>> {
        let paths = |case: &Case| {
            Some(CasePaths {
                prediction: to.file(case),
                reference: case.label.clone()?,
                reference_values: case.reading.label_values.clone(),
                prediction_values: None,
            })
        };
        let pairs: Vec<CasePaths> = cases.iter().filter_map(paths).collect();
        let mut scores = score(&pairs, settings, budget, self.threads, context)?.metric_per_case.into_iter();
        Ok(cases.iter().map(|case| case.label.as_ref().and_then(|_| scores.next())).collect())
    }

    /// Writes pictures of the first cases with their predicted labels for TensorBoard.
    fn show(&self, cases: &[Case], to: &Destination, budget: &Budget) -> Outcome {
        let folder = self.folder.path();
        let io = |error| Error::at_path(folder, &error);
        let steps = self.record.steps;
        let names = label_table(self.dataset);
        let mut events = EventFile::open(folder, steps).map_err(io)?;
        for case in cases.iter().take(SHOWN) {
            let Some(image) = case.image_files().next() else { continue };
            let png = thumbnail(&Files { image, labels: &to.file(case), names: &names }, SIDE, budget)?;
            events.image(steps, &format!("validation/{}", case.id), png).map_err(io)?;
        }
        events.flush().map_err(io)
    }

    fn cases(&self) -> Outcome<Vec<Case>> {
        let find = |id: &String| {
            let found = self.dataset.cases.iter().find(|case| case.id == *id).cloned();
            found.ok_or_else(|| Error::from(RunError::UnknownCase { case: id.clone() }))
        };
        self.record.specification.cases.val.iter().map(find).collect()
    }
}

/// The scores of the validation cases of a fold; `None` if they do not exist.
pub fn read_summary(fold: &FoldFolder) -> Outcome<Option<Summary>> {
    let path = summary_of(fold);
    match path.is_file() {
        true => Ok(Some(read_json(&path, LONGEST_SUMMARY)?)),
        false => Ok(None),
    }
}

/// The file of the scores of a fold's validation cases.
pub fn summary_of(fold: &FoldFolder) -> PathBuf {
    fold.validation().join("summary.json")
}

/// Removes files from the folder of validation that are of another checkpoint than the last, and notes which that is.
pub(super) fn keep_or_clear(folder: &Path, record: &RunRecord, files: &[PathBuf]) -> Outcome {
    let origin = Origin { specification: record.identity, steps: record.steps };
    let said = folder.join(ORIGIN);
    let known: Option<Origin> = if said.is_file() { read_json(&said, LONGEST_SUMMARY).ok() } else { None };
    if known.as_ref() != Some(&origin) {
        for file in files.iter().filter(|file| file.exists()) {
            plimsoll_disk::remove_file(file).map_err(|error| Error::at_path(file, &error))?;
        }
        write_json(&said, &origin)?;
    }
    Ok(())
}

/// Writes the scores of all validated folds of a run, with means by one convention; `None` if fewer than two folds are validated.
pub fn cross_validate(run: &RunFolder, missing: Missing) -> Outcome<Option<CrossValidation>> {
    loop {
        let validated = validated_folds(run)?;
        let mut summaries = Vec::new();
        for fold in &validated {
            let summary = read_summary(fold)?;
            summaries.extend(summary.map(|summary| (fold.name().to_string(), summary.with_missing(missing))));
        }
        let found = CrossValidation::new(&summaries).filter(|found| found.folds.len() > 1);
        let Some(found) = found else { return Ok(None) };
        write_json(&run.scores(), &found)?;
        // Another process may have validated one more meanwhile, and written before this one.
        if validated_folds(run)? == validated {
            return Ok(Some(found));
        }
    }
}

fn validated_folds(run: &RunFolder) -> Outcome<Vec<FoldFolder>> {
    let mut folds = run.folds()?;
    folds.retain(|fold| summary_of(fold).is_file());
    Ok(folds)
}
