//! The record beside labels: the memory and the time of the call that predicted each of them.
//!
//! A later call keeps the records of labels that it keeps. Before labels are predicted again, their records are removed: if the call were
//! killed, the record would otherwise describe other labels than the existing ones.
//!
//! A call writes its record at its end. A killed call leaves the [cases that it had finished](super::finished_cases), which the next call
//! adds to the record before it predicts anything.
//!
//! A [part](super::parts) of a divided job has a record of its own.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_disk::Appender;
use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_run::{RunError, read_json, write_json};
use serde::Serialize;
use serde_json::{Value, json};

use super::earlier_call::EarlierCall;
use super::finished_cases::{left_lines, read_lines, remove_lines};
use super::record_files::{LONGEST, RecordFiles, length, no_record};
use crate::error::{Error, Outcome};

/// The most memory per byte of text while a record is read: short names and numbers become values of their own.
pub(super) const HELD_PER_BYTE: u64 = 8;

/// The lists of a record in which each case is named: predicted, kept and failed cases.
pub(super) const LISTS: [&str; 3] = ["cases", "kept", "failed"];

/// The entry of the whole call. A record without it was changed by a call that did not reach its end.
pub(super) const OF_CALL: &str = "seconds";

/// The record of existing labels.
pub(super) struct Record {
    files: RecordFiles,
    all: Value,
    /// `true` if some of it is only in the file of finished cases.
    has_lines: bool,
    memory: Reservation,
}

impl Record {
    /// Reads a record, with the finished cases of a killed call; `None` if there is none yet.
    ///
    /// # Errors
    /// Returns an error if a file of these names is no record of predictions, which a new record would replace.
    pub(super) fn read(files: &RecordFiles, budget: &Budget) -> Outcome<Option<Record>> {
        Record::open(files, length(&files.lines)?, budget)
    }

    /// Reads the record that a call wrote at its end, without cases that this call has finished.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub(super) fn written(files: &RecordFiles, budget: &Budget) -> Outcome<Option<Record>> {
        Record::open(files, None, budget)
    }

    /// Reads a record with `lines` bytes of finished cases.
    fn open(files: &RecordFiles, lines: Option<u64>, budget: &Budget) -> Outcome<Option<Record>> {
        let record = length(&files.record)?;
        if record.is_none() && lines.is_none() {
            return Ok(None);
        }
        let bytes = record.into_iter().chain(lines).fold(0, u64::saturating_add);
        let memory = budget.reserve("record of predictions", Bytes(bytes.saturating_mul(HELD_PER_BYTE)))?;
        let mut all = Value::Null;
        if record.is_some() {
            all = match read_json(&files.record, LONGEST) {
                Err(RunError::Json { .. }) => Value::Null,
                read => read?,
            };
            if LISTS.iter().any(|list| !all[*list].is_array()) || !all["engine"].is_string() {
                return Err(no_record(&files.record));
            }
        }
        if lines.is_some() {
            take_in(&mut all, read_lines(&files.lines, LONGEST)?);
        }
        Ok(Some(Record { files: files.clone(), all, has_lines: lines.is_some(), memory }))
    }

    /// The record as it is in files.
    pub(super) fn into_value(self) -> (Value, Reservation) {
        (self.all, self.memory)
    }

    /// Adds the entries of other calls, and writes the record as one of a call that did not reach its end.
    pub(super) fn write_with(files: &RecordFiles, more: Vec<EarlierCall>, budget: &Budget) -> Outcome {
        let read = Record::read(files, budget)?;
        let (mut all, _memory) = read.map_or((Value::Null, None), |record| {
            let (all, memory) = record.into_value();
            (all, Some(memory))
        });
        take_in(&mut all, more);
        if let Some(all) = all.as_object_mut() {
            all.remove(OF_CALL);
        }
        Ok(write_json(&files.record, &all)?)
    }

    /// Returns `true` if a call wrote the record at its end.
    pub(super) fn is_whole(&self) -> bool {
        self.all[OF_CALL].is_number()
    }

    /// Removes what is recorded of cases that are about to be predicted. From then on all else of it is in the record, which is not
    /// whole if that changed it. Lines of a call that still runs are left to it.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub(super) fn forget(files: &RecordFiles, cases: &BTreeSet<&str>, budget: &Budget) -> Outcome {
        let lines = left_lines(&files.lines)?;
        if let Some(record) = Record::open(files, lines.as_ref().map(Appender::length), budget)? {
            record.drop_cases(cases)?;
        }
        lines.map_or(Ok(()), remove_lines)
    }

    fn drop_cases(self, cases: &BTreeSet<&str>) -> Outcome {
        let Record { files: RecordFiles { record: path, .. }, mut all, has_lines, .. } = self;
        let (dropped, left) = drop_cases(&mut all, cases);
        match (dropped > 0 || has_lines, left) {
            (false, _) => {}
            (true, 0) if length(&path)?.is_some() => {
                plimsoll_disk::remove_file(&path).map_err(|error| Error::at_path(&path, &error))?;
            }
            (true, 0) => {}
            (true, _) => {
                if let Some(all) = all.as_object_mut() {
                    all.remove(OF_CALL);
                }
                write_json(&path, &all)?;
            }
        }
        Ok(())
    }

    /// The entries of predicted cases, and the reservation of their memory.
    pub(super) fn by_case(mut self) -> (BTreeMap<String, EarlierCall>, Reservation) {
        let [cases, kept, _] = LISTS.map(|list| self.all[list].take());
        let [folds, engine, threads] = ["folds", "engine", "threads"].map(|what| self.all[what].take());
        let mut found = BTreeMap::new();
        for predicted in entries(cases) {
            if let Some(case) = predicted["case"].as_str().map(str::to_string) {
                // A case of a part that another machine predicted names the call itself.
                let own = |what: &str, of_all: &Value| match predicted["call"].get(what) {
                    Some(own) => own.clone(),
                    None => of_all.clone(),
                };
                let [folds, engine, threads] =
                    [("folds", &folds), ("engine", &engine), ("threads", &threads)]
                        .map(|(what, of_all)| own(what, of_all));
                found.insert(case, EarlierCall { folds, engine, threads, predicted });
            }
        }
        for mut kept in entries(kept) {
            let earlier = kept.get_mut("earlier").map(Value::take).filter(Value::is_object);
            if let (Some(case), Some(mut earlier)) = (kept["case"].as_str(), earlier) {
                let [folds, engine, threads, predicted] =
                    ["folds", "engine", "threads", "predicted"].map(|what| earlier[what].take());
                found.insert(case.into(), EarlierCall { folds, engine, threads, predicted });
            }
        }
        (found, self.memory)
    }
}

/// Writes what a call says at its end.
pub(super) fn write_record(files: &RecordFiles, report: &impl Serialize) -> Outcome {
    Ok(write_json(&files.record, report)?)
}

/// Takes cases into a record that a call finished which did not write it.
fn take_in(all: &mut Value, finished: Vec<EarlierCall>) {
    if all.is_null()
        && let Some(EarlierCall { folds, engine, threads, .. }) = finished.last()
    {
        *all = json!({"folds": folds, "engine": engine, "threads": threads, "cases": [], "kept": [], "failed": []});
    }
    drop_cases(all, &finished.iter().filter_map(EarlierCall::case).collect());
    if let Some(kept) = all["kept"].as_array_mut() {
        let entry = |earlier: EarlierCall| json!({"case": earlier.predicted["case"], "file": earlier.predicted["file"], "earlier": earlier});
        kept.extend(finished.into_iter().map(entry));
    }
}

/// Removes cases from all lists of a record. Returns how many entries these were, and how many are left.
fn drop_cases(all: &mut Value, cases: &BTreeSet<&str>) -> (usize, usize) {
    let (mut dropped, mut left) = (0, 0);
    for list in LISTS {
        if let Some(entries) = all[list].as_array_mut() {
            let before = entries.len();
            entries.retain(|entry| entry["case"].as_str().is_none_or(|case| !cases.contains(case)));
            dropped += before - entries.len();
            left += entries.len();
        }
    }
    (dropped, left)
}

pub(super) fn entries(list: Value) -> Vec<Value> {
    match list {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_recorded_of_labels_goes_before_they_are_predicted_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, budget) = (folder.path().join("run.json"), Budget::new(Bytes::mib(1)));
        let files = RecordFiles::whole(folder.path());
        let read = || Record::read(&files, &budget).unwrap();
        let forget = |cases: &BTreeSet<&str>| Record::forget(&files, cases, &budget).unwrap();
        assert!(read().is_none());
        let earlier = json!({"folds": 5, "engine": "another", "threads": 2, "predicted": {"case": "b"}});
        let written = json!({
            "folds": 1, "engine": "cpu", "threads": 3,
            "cases": [{"case": "a", "windows": 7}],
            "kept": [{"case": "b", "earlier": earlier}, {"case": "c"}],
            "failed": [{"case": "d"}],
        });
        fs::write(&path, written.to_string()).unwrap();
        let (found, _memory) = read().unwrap().by_case();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"], "of c nothing is known");
        assert_eq!((&found["a"].threads, &found["a"].predicted["windows"]), (&json!(3), &json!(7)));
        assert_eq!(serde_json::to_value(&found["b"]).unwrap(), earlier);
        forget(&BTreeSet::from(["e"]));
        assert_eq!(fs::read_to_string(&path).unwrap(), written.to_string(), "nothing of it was about it");
        forget(&BTreeSet::from(["a", "d"]));
        let (found, _memory) = read().unwrap().by_case();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["b"]);
        forget(&BTreeSet::from(["b", "c"]));
        assert!(!path.exists());
    }

    #[test]
    fn cases_of_a_call_that_was_killed_are_taken_into_the_record_that_another_call_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let (path, budget) = (folder.path().join("run.json"), Budget::new(Bytes::mib(1)));
        let files = RecordFiles::whole(folder.path());
        let lines = files.lines.clone();
        let read = || Record::read(&files, &budget).unwrap().unwrap();
        let forget = |cases: &BTreeSet<&str>| Record::forget(&files, cases, &budget).unwrap();
        let call = |case: &str, threads: usize| json!({"folds": 1, "engine": "cpu", "threads": threads, "predicted": {"case": case, "file": case, "windows": 7}});
        // Killed before its first line was written, and while its third one was.
        fs::write(&lines, "").unwrap();
        assert!(read().by_case().0.is_empty());
        fs::write(&lines, format!("{}\n{}\n{{\"folds\": 1, \"eng", call("a", 2), call("b", 2))).unwrap();
        let found = read().by_case().0;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(serde_json::to_value(&found["b"]).unwrap(), call("b", 2));
        assert!(Record::written(&files, &budget).unwrap().is_none(), "no call has come to its end");
        // From here on they are in the record, but for what is predicted again.
        forget(&BTreeSet::from(["b"]));
        assert!(!lines.exists());
        let record = Record::written(&files, &budget).unwrap().unwrap();
        assert_eq!(record.by_case().0.keys().collect::<Vec<_>>(), ["a"]);
        // A call that predicted it again was killed before the old line was removed: the newer line counts.
        fs::write(&lines, format!("{}\n{}\n", call("a", 3), call("c", 3))).unwrap();
        let found = read().by_case().0;
        assert_eq!((&found["a"].threads, &found["c"].threads), (&json!(3), &json!(3)));
        forget(&BTreeSet::new());
        let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((record["kept"].as_array().unwrap().len(), lines.exists()), (2, false));
        // Nothing is left of either where all is predicted again.
        fs::write(&lines, format!("{}\n", call("d", 3))).unwrap();
        forget(&BTreeSet::from(["a", "c", "d"]));
        assert!(!lines.exists() && !path.exists());
        for text in [
            "{\"steps\": 3}\n",
            "no JSON\n",
            "{\"folds\": 1, \"engine\": \"\", \"threads\": 1, \"predicted\": {}}\n",
        ] {
            fs::write(&lines, text).unwrap();
            let refused = Record::read(&files, &budget).err().unwrap();
            assert!(refused.line().contains("run.cases.jsonl is not a record of predictions"), "{text}");
        }
    }
}
