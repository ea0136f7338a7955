//! Predicting cases with a trained fold, as nnU-Net validates: with windows half a window apart, and none mirrored.

use std::path::Path;
use std::sync::Arc;

use plimsoll_data::{Case, prediction_ending};
use plimsoll_infer::{
    Destination, InferError, LabelNames, Outcome as CaseOutcome, PredictOptions, Predictor, predict_cases,
};
use plimsoll_models::SegmentationModel;
use plimsoll_plan::Backend;

use super::watcher::PredictionWatcher;
use crate::context::Context;
use crate::error::Outcome;
use crate::jobs::memory_limit::MemoryLimit;

/// The share of a window from one to the next.
const STEP: f64 = 0.5;

/// The prediction of cases with one fold.
pub(in crate::jobs) struct FoldPrediction<'a> {
    pub(in crate::jobs) backend: &'a Arc<dyn Backend>,
    pub(in crate::jobs) threads: usize,
    pub(in crate::jobs) context: &'a Context,
}

impl FoldPrediction<'_> {
    /// Predicts the cases that are not predicted yet. Returns `false` if it was stopped before the end. A case that cannot be predicted is
    /// an error. `beside` is called with every window.
    pub(in crate::jobs) fn predict(
        &self,
        model: SegmentationModel,
        cases: &[Case],
        to: &Destination,
        memory: &mut MemoryLimit,
        beside: &mut dyn FnMut() -> Outcome,
    ) -> Outcome<bool> {
        let options = PredictOptions::new(STEP, false, self.threads);
        let mut problem = None;
        let found = memory.lend_overhead(|budget| {
            let mut predictor = Predictor::new(model, options, Arc::clone(self.backend), budget)?;
            let mut watcher = PredictionWatcher::new(self.context);
            Ok(predict_cases(&mut predictor, cases, to, self.context.stop.flag(), &mut |progress| {
                watcher.see(progress);
                if problem.is_none()
                    && let Err(error) = beside()
                {
                    problem = Some(error);
                    self.context.stop.ask();
                }
            }))
        })?;
        if let Some(problem) = problem {
            return Err(problem);
        }
        let report = match found {
            Err(InferError::Interrupted { .. }) => return Ok(false),
            found => found?,
        };
        let failed = report.cases.into_iter().find_map(|case| match case.outcome {
            CaseOutcome::Failed(problem) => Some(problem),
            CaseOutcome::Kept | CaseOutcome::Predicted { .. } => None,
        });
        match failed {
            Some(problem) => Err(problem.into()),
            None => Ok(true),
        }
    }
}

/// The destination of the labels of a data set whose images have an ending, with or without probabilities. Existing files are kept.
pub(in crate::jobs) fn fold_labels(folder: &Path, file_ending: &str, probabilities: bool) -> Destination {
    Destination {
        folder: folder.into(),
        names: LabelNames::Cases,
        ending: prediction_ending(file_ending).into(),
        overwrite: false,
        probabilities,
        earlier: None,
    }
}
