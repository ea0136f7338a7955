//! The results of cases: predicted, kept or failed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use plimsoll_data::RefusedImage;
use plimsoll_infer::{CaseReport, CaseTimes, FolderReport, Outcome as CaseOutcome, PredictPlan};
use serde::Serialize;

use super::entry::EarlierCall;
use crate::context::Context;
use crate::error::Error;
use crate::jobs::outliers::{OtherSpacing, WindowCounts};

/// A case that was predicted.
#[derive(Serialize)]
pub struct Predicted {
    /// The name of the case.
    pub case: String,
    /// The file that was written.
    pub file: PathBuf,
    /// The number of windows.
    pub windows: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// The parts of that time; `None` if the probabilities existed and only their mean was missing.
    pub times: Option<CaseTimes>,
    /// The planned memory; `None` if the probabilities existed and only their mean was missing.
    pub plan: Option<PredictPlan>,
    /// The spacings at which networks saw it other than their training spacings, one for each such model.
    pub other_spacings: Vec<OtherSpacing>,
}

impl Predicted {
    /// The result of a case with one model; `None` if it was not predicted.
    pub(super) fn new(report: &CaseReport, all: &WindowCounts) -> Option<Predicted> {
        let CaseOutcome::Predicted { windows, seconds, plan, times } = &report.outcome else { return None };
        Some(Predicted {
            case: report.case.clone(),
            file: report.file.clone(),
            windows: *windows,
            seconds: *seconds,
            times: Some(*times),
            plan: Some(plan.clone()),
            other_spacings: all.used(&report.case).cloned().into_iter().collect(),
        })
    }
}

/// A case whose prediction was there already.
#[derive(Serialize)]
pub struct Kept {
    /// The name of the case.
    pub case: String,
    /// The file that was written.
    pub file: PathBuf,
    /// The record of the call that predicted it; `None` if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierCall>,
}

impl Kept {
    pub(super) fn new(case: String, file: PathBuf) -> Kept {
        Kept { case, file, earlier: None }
    }
}

/// A case that could not be predicted.
#[derive(Clone, Serialize)]
pub struct Failed {
    /// The name of the case.
    pub case: String,
    /// The error in one line.
    pub error: String,
    /// The remedy as a text.
    pub hint: String,
}

impl Failed {
    /// A case, and why something could not be done with it.
    pub(in crate::jobs) fn new(case: String, error: impl Into<Error>) -> Failed {
        let error = error.into();
        let (text, hint) = (case_error(&case, error.line()), error.remedy().clone().into());
        Failed { case, error: text, hint }
    }
}

/// The results of all cases.
#[derive(Default)]
pub(super) struct Cases {
    pub(super) predicted: Vec<Predicted>,
    pub(super) kept: Vec<Kept>,
    pub(super) failed: Vec<Failed>,
    /// The names of those whose labels had steps done on them now.
    pub(super) processed: BTreeSet<String>,
}

/// The results of cases with one model, and their windows.
pub(super) struct Found {
    pub(super) report: FolderReport,
    pub(super) windows: WindowCounts,
}

impl From<Found> for Cases {
    fn from(Found { report, windows: all }: Found) -> Cases {
        let mut cases = Cases::default();
        for report in report.cases {
            cases.predicted.extend(Predicted::new(&report, &all));
            match report.outcome {
                CaseOutcome::Predicted { .. } => {}
                CaseOutcome::Kept => cases.kept.push(Kept::new(report.case, report.file)),
                CaseOutcome::Failed(error) => cases.failed.push(Failed::new(report.case, error)),
            }
        }
        cases
    }
}

/// Prints why images are refused, and returns them as cases that failed.
pub(super) fn refuse(refused: Vec<RefusedImage>, context: &Context) -> Vec<Failed> {
    let fail = |RefusedImage { case, error }| {
        let failed = Failed::new(case, error);
        context.note(&failed.error);
        failed
    };
    refused.into_iter().map(fail).collect()
}

/// The error of a case, beginning with its name.
pub(super) fn case_error(case: &str, error: String) -> String {
    let error = error.strip_prefix("case ").unwrap_or(&error);
    match error.starts_with(case) {
        true => error.into(),
        false => format!("{case}: {error}"),
    }
}
