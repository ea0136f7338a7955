//! A `summary.json` as it is read: of this program, or of nnU-Net.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use crate::{CaseScores, Scores, Settings, Summary};

/// Why a `summary.json` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// It is no JSON of this form.
    #[error("is not a summary of scores: {0}")]
    Json(#[from] serde_json::Error),
    /// It has scores of something that is no class.
    #[error("has scores of `{0}`, which is not a class number from 0 to 255")]
    NoClass(String),
    /// It has no case.
    #[error("has no cases")]
    Empty,
}

impl SummaryError {
    /// Returns a remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            SummaryError::Json(_) => {
                "name a summary.json of ‹job evaluate›, of a validation, or of nnU-Net's evaluation"
            }
            SummaryError::NoClass(_) => {
                "regions have several labels: score the predictions with ‹job evaluate›, label by label"
            }
            SummaryError::Empty => "score predictions with ‹job evaluate› first",
        }
    }
}

/// The content that is read from a file. Means are computed from its cases.
#[derive(Deserialize)]
pub(crate) struct Written {
    metric_per_case: Vec<WrittenCase>,
    /// None in files of nnU-Net.
    settings: Option<Settings>,
}

#[derive(Deserialize)]
struct WrittenCase {
    prediction_file: PathBuf,
    reference_file: PathBuf,
    /// By class; nnU-Net writes regions as `(1, 2)`.
    metrics: BTreeMap<String, Scores>,
    counted_voxels: Option<u64>,
    diagonal_mm: Option<f64>,
}

impl TryFrom<Written> for Summary {
    type Error = SummaryError;

    fn try_from(Written { metric_per_case, settings }: Written) -> Result<Summary, SummaryError> {
        let case = |case: WrittenCase| -> Result<CaseScores, SummaryError> {
            let class = |(name, scores): (String, Scores)| match name.parse() {
                Ok(class) => Ok((class, scores)),
                Err(_) => Err(SummaryError::NoClass(name)),
            };
            Ok(CaseScores {
                prediction_file: case.prediction_file,
                reference_file: case.reference_file,
                metrics: case.metrics.into_iter().map(class).collect::<Result<_, _>>()?,
                counted_voxels: case.counted_voxels,
                diagonal_mm: case.diagonal_mm,
            })
        };
        let cases = metric_per_case.into_iter().map(case).collect::<Result<Vec<_>, _>>()?;
        let settings = settings.unwrap_or_else(|| {
            let classes: BTreeSet<u8> = cases.iter().flat_map(|case| case.metrics.keys().copied()).collect();
            Settings::new(classes.into_iter().collect())
        });
        Ok(Summary::new(cases, settings))
    }
}

impl Summary {
    /// Reads the text of a `summary.json`. nnU-Net's says nothing of how it was scored: it has the overlap of the classes that it has scores of, and
    /// writes `NaN`, which is no JSON, where a score is undefined.
    ///
    /// # Errors
    /// Returns an error if the text is no summary, has no case, or has scores of regions.
    pub fn parse(text: &[u8]) -> Result<Summary, SummaryError> {
        let written: Written = serde_json::from_slice(&without_nan(text))?;
        if written.metric_per_case.is_empty() {
            return Err(SummaryError::Empty);
        }
        written.try_into()
    }
}

/// The text with `null` for each `NaN` that is not within a string.
fn without_nan(text: &[u8]) -> Cow<'_, [u8]> {
    const NAN: &[u8] = b"NaN";
    let nans = text.windows(NAN.len()).filter(|part| *part == NAN).count();
    // `null` is one letter longer.
    let mut found = Vec::with_capacity(if nans == 0 { 0 } else { text.len() + nans });
    let (mut copied, mut at, mut in_string) = (0, 0, false);
    while at < text.len() {
        match text[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'N' if !in_string && text[at..].starts_with(NAN) => {
                found.extend_from_slice(&text[copied..at]);
                found.extend_from_slice(b"null");
                copied = at + NAN.len();
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return text.into();
    }
    found.extend_from_slice(&text[copied..]);
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    /// A file in the format of nnU-Net 2 (`nnunetv2/evaluation/evaluate_predictions.py`).
    const OF_NNUNET: &str = r#"{
        "foreground_mean": {"Dice": 0.75, "FN": 1.0, "FP": 1.0, "IoU": 0.6, "TN": 9.0, "TP": 3.0, "n_pred": 4.0, "n_ref": 4.0},
        "mean": {"1": {"Dice": 0.75, "IoU": 0.6}},
        "metric_per_case": [
            {"metrics": {"1": {"Dice": 0.75, "FN": 1, "FP": 1, "IoU": 0.6, "TN": 9, "TP": 3, "n_pred": 4, "n_ref": 4},
                         "2": {"Dice": NaN, "FN": 0, "FP": 0, "IoU": NaN, "TN": 14, "TP": 0, "n_pred": 0, "n_ref": 0}},
             "prediction_file": "out/NaN \"a\\.nii.gz", "reference_file": "labelsTr/a.nii.gz"}
        ]}"#;

    #[test]
    fn what_nnunet_writes_is_read_with_undefined_scores() {
        let found = Summary::parse(OF_NNUNET.as_bytes()).unwrap();
        assert_eq!(found.settings.classes, [1, 2]);
        let case = &found.metric_per_case[0];
        assert_eq!(case.prediction_file, PathBuf::from("out/NaN \"a\\.nii.gz"));
        assert_eq!(case.metrics[&1].get(Metric::Dice), Some(0.75));
        assert_eq!(
            (case.metrics[&2].get(Metric::Dice), case.metrics[&2].get(Metric::TN)),
            (None, Some(14.0))
        );
        assert_eq!(found.foreground_mean.get(Metric::Dice), Some(0.75));
    }

    #[test]
    fn what_this_program_writes_is_read_as_it_was() {
        let cases = Summary::parse(OF_NNUNET.as_bytes()).unwrap().metric_per_case;
        let summary = Summary::new(cases, Settings { tolerance: 2.0, ..Settings::new(vec![1, 2]) });
        let text = serde_json::to_vec(&summary).unwrap();
        assert_eq!(Summary::parse(&text).unwrap(), summary);
    }

    #[test]
    fn regions_and_what_is_no_summary_are_refused() {
        let regions = OF_NNUNET.replace("\"2\":", "\"(1, 2)\":");
        let told = Summary::parse(regions.as_bytes()).unwrap_err();
        assert_eq!(told.to_string(), "has scores of `(1, 2)`, which is not a class number from 0 to 255");
        assert!(matches!(Summary::parse(b"{}"), Err(SummaryError::Json(_))));
        assert!(matches!(Summary::parse(b"{\"metric_per_case\": []}"), Err(SummaryError::Empty)));
    }
}
