//! The record of all parts of a prediction, a function of the records of the parts alone.

use plimsoll_infer::CaseTimes;
use plimsoll_memory::{Bytes, MappedFiles};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::entry::{Call, Entry};
use super::fields::{Fault, take, take_list};
use super::recorded::{KeptCase, OF_CALL, PredictedCase, Recorded};
use crate::part::{Part, PartRecord};

/// The record of a part that is finished.
pub(super) struct FinishedPart {
    pub(super) part: PartRecord,
    call: Call,
    cases: Vec<PredictedCase>,
    kept: Vec<KeptCase>,
    failed: Vec<Entry>,
    warnings: Vec<Entry>,
    previews_failed: Vec<Entry>,
    seconds: f64,
    times: CaseTimes,
    /// The planned memory of the case that needs most; `None` if no case was predicted.
    planned_bytes: Option<Bytes>,
    peak_rss_bytes: Bytes,
    code: MappedFiles,
}

impl FinishedPart {
    /// Reads the record that the call of a part wrote at its end.
    pub(super) fn read(recorded: Recorded) -> Result<FinishedPart, Fault> {
        let Recorded { call, cases, kept, failed, seconds, mut rest } = recorded;
        let part = FinishedPart {
            part: take(&mut rest, "part")?,
            call,
            cases,
            kept,
            failed,
            warnings: take_list(&mut rest, "warnings", Entry::named)?,
            previews_failed: take_list(&mut rest, "previews_failed", Entry::named)?,
            seconds: seconds.ok_or_else(|| Fault::missing(OF_CALL))?,
            times: take(&mut rest, "times")?,
            planned_bytes: take(&mut rest, "planned_bytes")?,
            peak_rss_bytes: take(&mut rest, "peak_rss_bytes")?,
            code: take(&mut rest, "code")?,
        };
        match rest.keys().next() {
            None => Ok(part),
            Some(unknown) => Err(Fault::new(unknown, "is no field of the record of a part")),
        }
    }

    /// Its entry in the list of parts.
    fn entry(&self) -> PartEntry {
        PartEntry {
            cases: self.cases.len(),
            engine: self.call.engine.clone(),
            failed: self.failed.len(),
            folds: self.call.folds,
            kept: self.kept.len(),
            part: self.part.part,
            peak_rss_bytes: self.peak_rss_bytes,
            seconds: self.seconds,
            threads: self.call.threads,
        }
    }
}

/// The record of all parts. Its fields are in the order of their names, as in every record that is written again.
#[derive(Serialize)]
pub(super) struct MergedRecord {
    cases: Vec<Entry>,
    code: MappedFiles,
    engine: String,
    failed: Vec<Entry>,
    folds: usize,
    kept: Vec<Entry>,
    parts: Vec<PartEntry>,
    peak_rss_bytes: Bytes,
    planned_bytes: Option<Bytes>,
    previews_failed: Vec<Entry>,
    seconds: f64,
    threads: usize,
    #[serde(serialize_with = "by_name")]
    times: CaseTimes,
    warnings: Vec<Entry>,
}

/// The record of one part in the list of parts.
#[derive(Serialize)]
struct PartEntry {
    cases: usize,
    engine: String,
    failed: usize,
    folds: usize,
    kept: usize,
    part: Part,
    peak_rss_bytes: Bytes,
    seconds: f64,
    threads: usize,
}

/// Writes times in the order of their names.
fn by_name<S: Serializer>(times: &CaseTimes, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::to_value(times).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

/// Merges the records of all parts. Times are sums, and bytes are the bytes of the part with most. A case that another kind of call
/// predicted than the first part's names its call.
pub(super) fn merged(first: FinishedPart, others: impl IntoIterator<Item = FinishedPart>) -> MergedRecord {
    let call = first.call.clone();
    let mut all = MergedRecord {
        cases: Vec::new(),
        code: first.code,
        engine: call.engine.clone(),
        failed: Vec::new(),
        folds: call.folds,
        kept: Vec::new(),
        parts: Vec::new(),
        peak_rss_bytes: first.peak_rss_bytes,
        planned_bytes: first.planned_bytes,
        previews_failed: Vec::new(),
        seconds: 0.0,
        threads: call.threads,
        times: CaseTimes::default(),
        warnings: Vec::new(),
    };
    for part in std::iter::once(first).chain(others) {
        all.add(part, &call);
    }
    let MergedRecord { cases, failed, kept, previews_failed, warnings, .. } = &mut all;
    for list in [cases, failed, kept, previews_failed, warnings] {
        list.sort_by(|one, other| one.case().cmp(other.case()));
    }
    all
}

impl MergedRecord {
    /// Adds a part; `call` is the first part's.
    fn add(&mut self, part: FinishedPart, call: &Call) {
        self.parts.push(part.entry());
        self.seconds += part.seconds;
        self.times = self.times.and(part.times);
        self.peak_rss_bytes = self.peak_rss_bytes.max(part.peak_rss_bytes);
        self.planned_bytes = self.planned_bytes.max(part.planned_bytes);
        let other = (part.call != *call).then(|| Value::Object(part.call.into_object()));
        self.cases.extend(part.cases.into_iter().map(|PredictedCase { mut entry, .. }| {
            if let Some(call) = &other {
                entry.set("call", call.clone());
            }
            entry
        }));
        self.kept.extend(part.kept.into_iter().map(KeptCase::into_entry));
        self.failed.extend(part.failed);
        self.warnings.extend(part.warnings);
        self.previews_failed.extend(part.previews_failed);
    }
}
