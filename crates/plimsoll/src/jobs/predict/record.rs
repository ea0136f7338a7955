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
use serde_json::Value;

use super::entry::EarlierCall;
use super::fields::Object;
use super::finished_cases::{left_lines, read_lines, remove_lines};
use super::record_files::{LONGEST, RecordFiles, length, no_record};
use super::recorded::{LISTS, Recorded};
use crate::error::{Error, Outcome};

/// The most memory per byte of text while a record is read: short names and numbers become values of their own.
pub(super) const HELD_PER_BYTE: u64 = 8;

/// The record of existing labels.
pub(super) struct Record {
    files: RecordFiles,
    /// Its content; `None` if a call that finished no case left nothing but an empty file.
    recorded: Option<Recorded>,
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
        let mut recorded = None;
        if record.is_some() {
            let fields = record_in(files)?;
            recorded = Some(Recorded::read(fields).map_err(|fault| files.faulty(&files.record, fault))?);
        }
        if lines.is_some() {
            recorded = Recorded::with(recorded, read_lines(files, LONGEST)?);
        }
        Ok(Some(Record { files: files.clone(), recorded, has_lines: lines.is_some(), memory }))
    }

    /// The content of the record; `None` if a call that finished no case left nothing but an empty file.
    pub(super) fn into_recorded(self) -> (Option<Recorded>, Reservation) {
        (self.recorded, self.memory)
    }

    /// Adds the entries of other calls, and writes the record as one of a call that did not reach its end.
    pub(super) fn write_with(files: &RecordFiles, more: Vec<EarlierCall>, budget: &Budget) -> Outcome {
        let (recorded, _memory) = Record::read(files, budget)?.map(Record::into_recorded).unzip();
        match Recorded::with(recorded.flatten(), more) {
            None => Ok(()),
            Some(all) => Ok(write_json(&files.record, &all.into_unfinished())?),
        }
    }

    /// Returns `true` if a call wrote the record at its end.
    pub(super) fn is_whole(&self) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| recorded.seconds.is_some())
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
        let Record { files: RecordFiles { record: path, .. }, recorded, has_lines, .. } = self;
        let Some(mut recorded) = recorded else { return Ok(()) };
        let is_changed = recorded.drop_cases(cases) > 0 || has_lines;
        match (is_changed, recorded.entries()) {
            (false, _) => {}
            (true, 0) if length(&path)?.is_some() => {
                plimsoll_disk::remove_file(&path).map_err(|error| Error::at_path(&path, &error))?;
            }
            (true, 0) => {}
            (true, _) => write_json(&path, &recorded.into_unfinished())?,
        }
        Ok(())
    }

    /// The entries of predicted cases, and the reservation of their memory.
    pub(super) fn by_case(self) -> (BTreeMap<String, EarlierCall>, Reservation) {
        let calls = self.recorded.into_iter().flat_map(Recorded::into_calls);
        (calls.map(|call| (call.case().to_string(), call)).collect(), self.memory)
    }
}

/// Reads the fields of a record.
///
/// # Errors
/// Returns an error if the file is no record of predictions.
fn record_in(files: &RecordFiles) -> Outcome<Object> {
    match read_json(&files.record, LONGEST) {
        Ok(Value::Object(fields))
            if LISTS.iter().all(|list| fields.get(*list).is_some_and(Value::is_array))
                && fields.get("engine").is_some_and(Value::is_string) =>
        {
            Ok(fields)
        }
        Ok(_) | Err(RunError::Json { .. }) => Err(no_record(&files.record)),
        Err(error) => Err(error.into()),
    }
}

/// Writes what a call says at its end.
pub(super) fn write_record(files: &RecordFiles, report: &impl Serialize) -> Outcome {
    Ok(write_json(&files.record, report)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::entry::examples::predicted;
    use super::*;

    #[test]
    fn what_is_recorded_of_labels_goes_before_they_are_predicted_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, budget) = (folder.path().join("run.json"), Budget::new(Bytes::mib(1)));
        let files = RecordFiles::whole(folder.path());
        let read = || Record::read(&files, &budget).unwrap();
        let forget = |cases: &BTreeSet<&str>| Record::forget(&files, cases, &budget).unwrap();
        assert!(read().is_none());
        let earlier = json!({"folds": 5, "engine": "another", "threads": 2, "predicted": predicted("b")});
        let written = json!({
            "folds": 1, "engine": "cpu", "threads": 3,
            "cases": [predicted("a")],
            "kept": [{"case": "b", "earlier": earlier}, {"case": "c"}],
            "failed": [{"case": "d"}],
        });
        fs::write(&path, written.to_string()).unwrap();
        let (found, _memory) = read().unwrap().by_case();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"], "of c nothing is known");
        assert_eq!((found["a"].threads, found["a"].predicted.field("windows")), (3, Some(&json!(7))));
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
        let call = |case: &str, threads: usize| json!({"folds": 1, "engine": "cpu", "threads": threads, "predicted": predicted(case)});
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
        assert_eq!((found["a"].threads, found["c"].threads), (3, 3));
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

    #[test]
    fn a_record_or_a_line_that_was_changed_is_refused_with_the_file_and_the_field() {
        let folder = tempfile::tempdir().unwrap();
        let (files, budget) = (RecordFiles::whole(folder.path()), Budget::new(Bytes::mib(1)));
        let refused = |field: &str| {
            let refused = Record::read(&files, &budget).err().unwrap();
            let said = refused.line();
            assert!(said.contains(&format!("is a damaged record of predictions: `{field}` ")), "{said}");
            assert!(
                refused.remedy().to_string().contains("remove this file: labels are kept"),
                "{refused:?}"
            );
            said
        };
        let (mut without_seconds, mut with_text) = (predicted("b"), predicted("b"));
        without_seconds.as_object_mut().unwrap().remove("seconds");
        with_text["windows"] = json!("seven");
        let record = |entry: &Value| json!({"folds": 1, "engine": "cpu", "threads": 3, "cases": [predicted("a"), entry], "kept": [], "failed": []});
        fs::write(&files.record, record(&without_seconds).to_string()).unwrap();
        let said = refused("cases[1].seconds");
        assert!(said.contains("run.json") && said.ends_with("is missing"), "{said}");
        fs::write(&files.record, record(&with_text).to_string()).unwrap();
        assert!(refused("cases[1].windows").contains("expected u64"));
        fs::remove_file(&files.record).unwrap();
        let call = json!({"folds": 1, "engine": "cpu", "threads": 3, "predicted": without_seconds});
        fs::write(&files.lines, format!("{call}\n")).unwrap();
        assert!(refused("line 1.predicted.seconds").contains("run.cases.jsonl"));
        let call = json!({"folds": 1, "engine": "cpu", "predicted": predicted("b")});
        fs::write(&files.lines, format!("{call}\n")).unwrap();
        refused("line 1.threads");
    }
}
