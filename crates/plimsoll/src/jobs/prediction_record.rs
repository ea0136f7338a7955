//! The record beside labels: what the call that predicted each of them held and took.
//!
//! A later call keeps what earlier ones recorded of labels that it keeps. Before labels are predicted anew, what is recorded of them goes: were this
//! call killed, the record would else tell of others than those that lie there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_run::{RunError, read_json, write_json};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// The file, beside labels, of what came of them.
pub(super) const RECORD: &str = "run.json";

/// The longest record that is read: that of a hundred thousand cases fits.
const LONGEST: u64 = 512 << 20;

/// What a record takes at most while it is read, for each byte of its text: names and numbers of a few letters are values of their own.
const HELD_PER_BYTE: u64 = 8;

/// The lists of a record in which each case has its name. What was predicted is in the first, and what was there already in the second.
const LISTS: [&str; 3] = ["cases", "kept", "failed"];

/// What an earlier call recorded of a case that it predicted, and of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlierCall {
    pub folds: Value,
    pub engine: Value,
    pub threads: Value,
    /// As it is in the `cases` of that call.
    pub predicted: Value,
}

/// What was recorded of labels that are there.
pub(super) struct Record {
    path: PathBuf,
    all: Value,
    memory: Reservation,
}

impl Record {
    /// That of a folder of labels; none if there is none yet.
    ///
    /// # Errors
    /// If the file of this name is no record of predictions, which would be replaced by one.
    pub(super) fn read(output: &Path, budget: &Budget) -> Outcome<Option<Record>> {
        let path = output.join(RECORD);
        let io = |error| Failure::of_path(&path, &error);
        // What is wrong with a folder that is none is said where it is made.
        if !output.is_dir() || !plimsoll_disk::exists(&path).map_err(io)? {
            return Ok(None);
        }
        let length = plimsoll_disk::metadata(&path).map_err(io)?.len();
        let memory = budget.reserve("record of predictions", Bytes(length.saturating_mul(HELD_PER_BYTE)))?;
        let all: Value = match read_json(&path, LONGEST) {
            Err(RunError::Json { .. }) => Value::Null,
            read => read?,
        };
        if LISTS.iter().any(|list| !all[*list].is_array()) || !all["engine"].is_string() {
            let message = format!("{} is no record of predictions, and would be replaced", path.display());
            return Err(Failure::new(message, "write the labels to another folder with -o"));
        }
        Ok(Some(Record { path, all, memory }))
    }

    /// Removes what is recorded of cases that are about to be predicted.
    pub(super) fn forget(self, cases: &BTreeSet<&str>) -> Outcome {
        let Record { path, mut all, .. } = self;
        let (mut dropped, mut left) = (0, 0);
        for list in LISTS {
            if let Some(entries) = all[list].as_array_mut() {
                let before = entries.len();
                entries.retain(|entry| entry["case"].as_str().is_none_or(|case| !cases.contains(case)));
                dropped += before - entries.len();
                left += entries.len();
            }
        }
        match (dropped, left) {
            (0, _) => Ok(()),
            (_, 0) => plimsoll_disk::remove_file(&path).map_err(|error| Failure::of_path(&path, &error)),
            _ => Ok(write_json(&path, &all)?),
        }
    }

    /// What is known of each case that a call predicted, and the memory that it takes.
    pub(super) fn by_case(mut self) -> (BTreeMap<String, EarlierCall>, Reservation) {
        let [cases, kept, _] = LISTS.map(|list| self.all[list].take());
        let [folds, engine, threads] = ["folds", "engine", "threads"].map(|what| self.all[what].take());
        let mut found = BTreeMap::new();
        for predicted in entries(cases) {
            if let Some(case) = predicted["case"].as_str().map(str::to_string) {
                let [folds, engine, threads] = [&folds, &engine, &threads].map(Value::clone);
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

fn entries(list: Value) -> Vec<Value> {
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
        let (path, budget) = (folder.path().join(RECORD), Budget::new(Bytes::mib(1)));
        let read = || Record::read(folder.path(), &budget).unwrap();
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
        read().unwrap().forget(&BTreeSet::from(["e"])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), written.to_string(), "nothing of it was about it");
        read().unwrap().forget(&BTreeSet::from(["a", "d"])).unwrap();
        let (found, _memory) = read().unwrap().by_case();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["b"]);
        read().unwrap().forget(&BTreeSet::from(["b", "c"])).unwrap();
        assert!(!path.exists());
    }
}
