//! The prediction of cases with one model into one folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_data::Case;
use plimsoll_infer::{Destination, FolderProgress, Predictor, predict_cases};
use plimsoll_memory::Budget;
use plimsoll_models::SegmentationModel;

use super::case_files::CaseFiles;
use super::entry::Call;
use super::finished_cases::FinishedCases;
use super::label_folder::LabelFolder;
use super::model::can_overlap;
use super::record_files::RecordFiles;
use super::request::PredictRequest;
use super::results::{Found, Predicted};
use super::watcher::PredictionWatcher;
use crate::context::Context;
use crate::error::Outcome;
use crate::files::make_folder;
use crate::jobs::outliers::{Counting, OutlierRemedy, WindowCounts};

/// A request with the budget and the observer of its call.
#[derive(Clone, Copy)]
pub(super) struct PredictionJob<'a> {
    pub(super) request: &'a PredictRequest,
    pub(super) budget: &'a Budget,
    pub(super) context: &'a Context,
}

impl PredictionJob<'_> {
    /// An empty list of the cases that the call finishes, which averages `folds` folds of weights.
    pub(super) fn finished_cases(&self, folds: usize) -> FinishedCases {
        let PredictionJob { request, context, .. } = self;
        let call = Call { folds, engine: request.backend.identity(), threads: request.options.threads };
        FinishedCases::none(call, RecordFiles::for_call(&request.output, request.part), context)
    }

    /// Predicts `cases`, the unfinished ones of `all`, into a folder that is created if it does not exist. Each finished case is passed to
    /// `finish`. Files derived from earlier labels of these cases are removed first.
    pub(super) fn predict_into(
        &self,
        to: &Destination,
        labels: Option<&LabelFolder>,
        all: &[Case],
        cases: &[Case],
        model: SegmentationModel,
        finish: &mut dyn FnMut(&Predicted),
    ) -> Outcome<Found> {
        let PredictionJob { request, budget, context } = *self;
        to.check(cases)?;
        let can_overlap = can_overlap(&model, request.options);
        let mut predictor = Predictor::new(model, request.options, Arc::clone(&request.backend), budget)?;
        let left: BTreeSet<&str> =
            cases.iter().filter(|case| !to.keeps(case)).map(|case| case.id.as_str()).collect();
        let files: Vec<CaseFiles> = all.iter().map(|case| CaseFiles::new(case.clone(), to)).collect();
        let counting = files.iter().map(|files| Counting {
            request: files.request(),
            is_kept: !left.contains(files.case.id.as_str()),
        });
        let remedy = OutlierRemedy::asked(request.volumes.outlier_spacing);
        let windows = WindowCounts::count(&mut predictor, &counting.collect::<Vec<_>>(), remedy, context)?;
        let folders: BTreeSet<PathBuf> =
            cases.iter().filter_map(|case| Some(to.file(case).parent()?.to_path_buf())).collect();
        std::iter::once(&to.folder).chain(&folders).try_for_each(|folder| make_folder(folder))?;
        if let Some(labels) = labels {
            labels.remove_outdated(cases.iter().filter(|case| left.contains(case.id.as_str())), to)?;
        }
        let mut watcher = PredictionWatcher::new(context).knowing(windows.clone(), can_overlap);
        let report = predict_cases(&mut predictor, cases, to, context.stop.flag(), &mut |progress| {
            watcher.see(progress);
            if let FolderProgress::Case { report, .. } = progress {
                Predicted::new(report, &windows).iter().for_each(&mut *finish);
            }
        })?;
        Ok(Found { report, windows })
    }
}
