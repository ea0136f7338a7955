//! The report of a prediction: the result, the memory and the time of each case.

use std::time::Instant;

use plimsoll_infer::CaseTimes;
use plimsoll_memory::{Bytes, MappedFiles, Reservation, mapped_files, resident};
use serde::Serialize;

use super::entry::Call;
use super::finished_cases::FinishedCases;
use super::image_warnings::ImageWarning;
use super::job::PredictionJob;
use super::record::{Record, write_record};
use super::record_files::{RecordFiles, length};
use super::results::{Cases, Failed, Kept, Predicted};
use crate::error::{Error, Outcome};
use crate::part::{PartRecord, Share};

/// Adds the entries of an earlier record to labels that were kept. Returns the reservation of their memory.
fn complete(kept: &mut [Kept], record: Record) -> Outcome<Reservation> {
    let (mut earlier, memory) = record.by_case();
    for kept in kept.iter_mut().filter(|kept| kept.earlier.is_none()) {
        let mut found = earlier.remove(&kept.case);
        if let Some(found) = &mut found {
            // A killed call recorded the file as it was before steps were done on it.
            found.predicted.set_file(&kept.file)?;
        }
        kept.earlier = found;
    }
    Ok(memory)
}

/// The report of a prediction.
#[derive(Serialize)]
pub struct PredictionReport {
    /// Folds of weights that were averaged.
    pub folds: usize,
    /// The backend and its instruction set.
    pub engine: String,
    /// Threads that compute.
    pub threads: usize,
    /// All that the call took, opening models, steps after predictions and previews as well.
    pub seconds: f64,
    /// The time of all cases together, a part of `seconds`.
    pub times: CaseTimes,
    /// The cases.
    pub cases: Vec<Predicted>,
    /// Cases whose labels were there already.
    pub kept: Vec<Kept>,
    /// Those that failed, with reasons.
    pub failed: Vec<Failed>,
    /// The warnings about the predicted images: lossy compression, a tilted gantry, lengths without a unit.
    pub warnings: Vec<ImageWarning>,
    /// Cases whose labels exist but could not be drawn.
    pub previews_failed: Vec<Failed>,
    /// The part of the images that was predicted; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartRecord>,
    /// The planned memory of the case that needs most; `None` if no case was predicted.
    pub planned_bytes: Option<Bytes>,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
    /// The program and its libraries: planned as mapped, resident as far as they were touched.
    pub code: MappedFiles,
    /// The reservation of the records of earlier calls.
    #[serde(skip)]
    _earlier: Vec<Reservation>,
}

impl PredictionReport {
    /// Reports the cases of a call that began at `start`, and writes the report as the [`Record`] in the folder of labels, with the
    /// entries of an earlier record for labels that were kept. If all labels existed and a finished call recorded them, its record stays.
    pub(super) fn write(
        job: PredictionJob<'_>,
        cases: Cases,
        warnings: Vec<ImageWarning>,
        previews_failed: Vec<Failed>,
        finished: FinishedCases,
        share: Option<&Share>,
        start: Instant,
    ) -> Outcome<PredictionReport> {
        let PredictionJob { request, budget, context } = job;
        let Cases { predicted, mut kept, failed, processed } = cases;
        match kept.len() {
            0 => {}
            1 => context
                .warn(format_args!("1 prediction already existed and was kept; ‹overwrite› replaces it")),
            n => context.warn(format_args!(
                "{n} predictions already existed and were kept; ‹overwrite› replaces them"
            )),
        }
        let files = RecordFiles::for_call(&request.output, request.part);
        let (mut held, mut is_torn) = (Vec::new(), false);
        let own = if kept.is_empty() { None } else { Record::written(&files, budget)? };
        if let Some(record) = own {
            is_torn = !record.is_whole();
            held.push(complete(&mut kept, record)?);
        }
        // Labels that a call without parts predicted before.
        if share.is_some()
            && kept.iter().any(|kept| kept.earlier.is_none())
            && let Some(record) = Record::written(&RecordFiles::whole(&request.output), budget)?
        {
            held.push(complete(&mut kept, record)?);
        }
        // A part is finished when it has a record.
        let is_missing = share.is_some() && length(&files.record)?.is_none();
        let planned_bytes = predicted.iter().filter_map(|case| Some(case.plan.as_ref()?.total_bytes)).max();
        let (peak_rss_bytes, code) = (resident()?.peak, mapped_files()?);
        let is_new = !predicted.is_empty() || !failed.is_empty() || !processed.is_empty();
        let times = predicted.iter().filter_map(|case| case.times);
        let Call { folds, engine, threads } = finished.call().clone();
        let report = PredictionReport {
            folds,
            engine,
            threads,
            seconds: start.elapsed().as_secs_f64(),
            times: times.fold(CaseTimes::default(), CaseTimes::and),
            cases: predicted,
            kept,
            failed,
            warnings,
            previews_failed,
            part: share.map(Share::record),
            planned_bytes,
            peak_rss_bytes,
            code,
            _earlier: held,
        };
        if is_new || is_torn || is_missing {
            write_record(&files, &report)?;
            finished.remove()?;
        }
        Ok(report)
    }

    /// Checks that no case and no preview failed.
    pub fn check(&self) -> Outcome {
        let labelled = self.cases.len() + self.kept.len();
        let summary = |failed: &[Failed], of: usize, what: &str| {
            let first = failed.first()?;
            let which = if failed.len() == 1 { "" } else { ", the first" };
            let message = format!("{} of {of} {what}{which}: {}", failed.len(), first.error);
            Some((message, first.hint.clone()))
        };
        let cases = summary(&self.failed, self.failed.len() + labelled, "cases could not be predicted");
        let previews = summary(&self.previews_failed, labelled, "previews could not be drawn");
        match (cases, previews) {
            (None, None) => Ok(()),
            (Some((cases, hint)), Some((previews, _))) => {
                Err(Error::new(format!("{cases}; {previews}"), hint))
            }
            (Some((message, hint)), None) | (None, Some((message, hint))) => Err(Error::new(message, hint)),
        }
    }
}
