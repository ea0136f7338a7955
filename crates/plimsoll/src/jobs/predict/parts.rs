//! The parts of a prediction into one folder: each has a lock and a record of its own, and the last one to finish merges all records into
//! the record of the folder.
//!
//! Part records stay, and merging is a function of them alone: of two parts that finish at the same time both write the same record, and a
//! part that is repeated replaces its own entries. A call without parts takes their entries over and removes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_data::Case;
use plimsoll_disk::Appender;
use plimsoll_memory::{Budget, Reservation};

use super::entry::EarlierCall;
use super::fields::Fault;
use super::merged::{FinishedPart, merged};
use super::record::{Record, write_record};
use super::record_files::{PARTS, RecordFiles};
use super::request::PredictRequest;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::part::{Part, Share};

/// The file that is locked while the record of the folder changes.
const LOCK: &str = "lock";

/// The longest time that another process may take to change the record of the folder.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lock of a part for as long as it is predicted.
pub(super) struct PartLock {
    lock: Appender,
}

impl PartLock {
    /// Locks a part of the predictions into a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if another process predicts this part, or the folder has parts of another division.
    pub(super) fn take(output: &Path, part: Part) -> Outcome<PartLock> {
        let folder = output.join(PARTS);
        plimsoll_disk::create_dir_all(&folder).map_err(|error| Error::at_path(&folder, &error))?;
        if let Some(other) = parts_in(&folder)?.into_iter().find(|other| other.count() != part.count()) {
            let message =
                format!("part {part}: {} has parts of another division, like {other}", output.display());
            let hint = format!(
                "divide into {} parts as before, or finish the folder with one process, without ‹part›",
                other.count()
            );
            return Err(Error::new(message, hint));
        }
        PartLock::try_take(&folder, part)?.ok_or_else(|| {
            let message =
                format!("part {part} is being predicted into {} by another process", output.display());
            Error::new(message, "wait until it ends, or choose another part with ‹part›")
        })
    }

    /// Locks a part; `None` if another process has the lock.
    fn try_take(folder: &Path, part: Part) -> Outcome<Option<PartLock>> {
        let path = folder.join(format!("{}.lock", part.file_stem()));
        let lock = Appender::open_locked(&path).map_err(|error| Error::at_path(&path, &error))?;
        Ok(lock.map(|lock| PartLock { lock }))
    }
}

impl Drop for PartLock {
    fn drop(&mut self) {
        // It is locked until then, so that nobody else can have made another file of the name. A file that stays is locked again later.
        let _ = plimsoll_disk::remove_file(self.lock.path());
    }
}

/// The parts of which a folder has files.
fn parts_in(folder: &Path) -> Outcome<Vec<Part>> {
    let files = plimsoll_disk::read_dir(folder).map_err(|error| Error::at_path(folder, &error))?;
    let part = |path: &PathBuf| Part::from_file_name(&path.file_name()?.to_string_lossy());
    let mut parts: Vec<Part> = files.iter().filter_map(part).collect();
    parts.sort_unstable_by_key(|part| (part.count(), part.number()));
    parts.dedup();
    Ok(parts)
}

/// Locks the record of a folder of labels, and waits for a process that is changing it.
fn lock_record(output: &Path) -> Outcome<Appender> {
    let path = output.join(PARTS).join(LOCK);
    let start = Instant::now();
    loop {
        if let Some(lock) = Appender::open_locked(&path).map_err(|error| Error::at_path(&path, &error))? {
            return Ok(lock);
        }
        if start.elapsed() > PATIENCE {
            let message = format!("{} has been locked by another process for a minute", path.display());
            return Err(Error::new(message, "end the other process, and repeat this part"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Removes the records of labels that are about to be predicted: of a part from its own record and from the record of the folder. Cases that
/// a killed call had finished are then in the record.
pub(super) fn forget<'a>(
    request: &PredictRequest,
    cases: impl Iterator<Item = &'a Case>,
    budget: &Budget,
) -> Outcome {
    let cases: BTreeSet<&str> = cases.map(|case| case.id.as_str()).collect();
    let whole = RecordFiles::whole(&request.output);
    match request.part {
        None => {
            absorb(&request.output, budget)?;
            Record::forget(&whole, &cases, budget)
        }
        Some(part) => {
            Record::forget(&RecordFiles::for_part(&request.output, part), &cases, budget)?;
            if cases.is_empty() {
                return Ok(());
            }
            let _lock = lock_record(&request.output)?;
            Record::forget(&whole, &cases, budget)
        }
    }
}

/// Takes what parts have recorded into the record of the folder, and removes their files.
///
/// # Errors
/// Returns an error if a part is being predicted.
fn absorb(output: &Path, budget: &Budget) -> Outcome {
    let folder = output.join(PARTS);
    if !folder.is_dir() {
        return Ok(());
    }
    let lock = lock_record(output)?;
    let parts = parts_in(&folder)?;
    let mut locks = Vec::with_capacity(parts.len());
    for part in &parts {
        locks.push(PartLock::try_take(&folder, *part)?.ok_or_else(|| {
            let message =
                format!("{} is being predicted into by another process, part {part}", output.display());
            Error::new(message, "wait until it ends, or predict another part with ‹part›")
        })?);
    }
    let whole = RecordFiles::whole(output);
    let known = Record::read(&whole, budget)?.map(Record::by_case);
    let mut more: Vec<EarlierCall> = Vec::new();
    let mut memory = Vec::new();
    for part in &parts {
        if let Some(record) = Record::read(&RecordFiles::for_part(output, *part), budget)? {
            let (calls, held) = record.by_case();
            memory.push(held);
            more.extend(calls.into_values());
        }
    }
    // Entries in the record of the folder are of the existing labels: a part removes them before it predicts these again.
    let is_known =
        |call: &EarlierCall| known.as_ref().is_some_and(|(known, _)| known.contains_key(call.case()));
    more.retain(|call| !is_known(call));
    drop(known);
    if !more.is_empty() {
        Record::write_with(&whole, more, budget)?;
    }
    let remove = |path: &Path| match plimsoll_disk::exists(path) {
        Ok(true) => plimsoll_disk::remove_file(path).map_err(|error| Error::at_path(path, &error)),
        Ok(false) => Ok(()),
        Err(error) => Err(Error::at_path(path, &error)),
    };
    for part in &parts {
        let RecordFiles { record, lines, .. } = RecordFiles::for_part(output, *part);
        remove(&record)?;
        remove(&lines)?;
    }
    drop(locks);
    remove(lock.path())?;
    drop(lock);
    // A folder with files of others stays.
    let _ = plimsoll_disk::remove_folder(&folder);
    Ok(())
}

/// Merges the records of all parts into the record of the folder, if all are finished, and reports which are not.
///
/// # Errors
/// Returns an error if the record of a part was changed or damaged.
pub(super) fn merge(output: &Path, share: &Share, budget: &Budget, context: &Context) -> Outcome {
    let _lock = lock_record(output)?;
    let (mut finished, mut missing, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = Vec::new();
    for part in share.part.all() {
        let Some((record, held)) = finished_part(output, part, budget)? else {
            missing.push(part);
            continue;
        };
        if record.part.list != share.list {
            others.push(part);
        }
        memory.push(held);
        finished.push(record);
    }
    let listed = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    let of = share.part.count();
    if !others.is_empty() {
        context.warn(format_args!(
            "{}: part {} divided another list of images or windows: repeat it, or predict once without ‹part›",
            output.display(),
            listed(&others)
        ));
        return Ok(());
    }
    let count = finished.len();
    let mut finished = finished.into_iter();
    match finished.next() {
        Some(first) if missing.is_empty() => {
            let files = RecordFiles::whole(output);
            write_record(&files, &merged(first, finished))?;
            let record = files.record.display();
            context.note(format_args!("all {of} parts are finished: {record} has the record of all"));
        }
        _ => context.note(format_args!("{count} of {of} parts are finished; missing: {}", listed(&missing))),
    }
    Ok(())
}

/// The record of a part, and the reservation of its memory; `None` if the part is not finished.
fn finished_part(output: &Path, part: Part, budget: &Budget) -> Outcome<Option<(FinishedPart, Reservation)>> {
    let files = RecordFiles::for_part(output, part);
    let record = Record::written(&files, budget)?.filter(Record::is_whole);
    let Some((Some(recorded), held)) = record.map(Record::into_recorded) else { return Ok(None) };
    let record = FinishedPart::read(recorded).map_err(|fault| files.faulty(&files.record, fault))?;
    if record.part.part != part {
        let fault = Fault::new("part", format!("is {}", record.part.part));
        return Err(files.faulty(&files.record, fault));
    }
    Ok(Some((record, held)))
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Bytes, Digest};
    use serde_json::{Value, json};

    use super::super::entry::examples::{predicted, times};
    use super::super::recorded::Recorded;
    use super::*;

    /// The record of a part that was predicted on a kind of machine.
    fn record(part: &str, engine: &str, cases: &[&str]) -> Value {
        let earlier = json!({"folds": 5, "engine": "another", "threads": 1, "predicted": predicted("k")});
        json!({
            "folds": 1, "engine": engine, "threads": 2, "seconds": 1.1, "times": times(),
            "cases": cases.iter().map(|case| predicted(case)).collect::<Vec<_>>(),
            "kept": [{"case": format!("k{}", cases.len()), "file": "k.nii.gz", "earlier": earlier}],
            "failed": [{"case": "f", "error": "f: too large", "hint": ""}], "warnings": [], "previews_failed": [],
            "part": {"part": part, "list": Digest::compute(b"list")},
            "planned_bytes": 5, "peak_rss_bytes": cases.len(), "code": {"mapped": 8, "resident": 3},
        })
    }

    fn finished(record: &Value) -> FinishedPart {
        let Value::Object(fields) = record.clone() else { panic!("{record} is no object") };
        FinishedPart::read(Recorded::read(fields).unwrap()).unwrap()
    }

    #[test]
    fn parts_of_machines_of_two_kinds_merge_and_each_case_keeps_its_engine() {
        let parts = [record("1/2", "avx2", &["b", "d"]), record("2/2", "avx512", &["a"])];
        let merged = merged(finished(&parts[0]), [finished(&parts[1])]);
        let text = serde_json::to_string(&merged).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(all.to_string(), text, "fields are in the order of their names");
        let names: Vec<&str> =
            all["cases"].as_array().unwrap().iter().filter_map(|case| case["case"].as_str()).collect();
        assert_eq!(names, ["a", "b", "d"]);
        assert_eq!((&all["seconds"], &all["times"]["forward_seconds"]), (&json!(2.2), &json!(2.0)));
        assert_eq!((&all["planned_bytes"], &all["peak_rss_bytes"]), (&json!(5), &json!(2)));
        assert_eq!((&all["parts"][1]["part"], &all["parts"][1]["cases"]), (&json!("2/2"), &json!(1)));
        assert_eq!(all["code"], parts[0]["code"]);
        let call = json!({"folds": 1, "engine": "avx512", "threads": 2});
        let mut of_other = predicted("a");
        of_other["call"] = call;
        assert_eq!(all["cases"], json!([of_other, predicted("b"), predicted("d")]));
        assert_eq!(all["kept"], json!([parts[1]["kept"][0], parts[0]["kept"][0]]));
        let folder = tempfile::tempdir().unwrap();
        let files = RecordFiles::whole(folder.path());
        write_record(&files, &all).unwrap();
        let (calls, _memory) = Record::read(&files, &Budget::new(Bytes::mib(1))).unwrap().unwrap().by_case();
        let engines: Vec<&str> = calls.values().map(|call| call.engine.as_str()).collect();
        assert_eq!(engines, ["avx512", "avx2", "avx2", "another"]);
    }

    /// A change of a record, and the field that it spoils.
    struct Change {
        field: &'static str,
        change: fn(&mut Value),
    }

    fn remove(value: &mut Value, field: &str) {
        value.as_object_mut().unwrap().remove(field);
    }

    #[test]
    fn a_record_of_a_part_that_was_changed_is_refused_and_the_part_is_to_be_predicted_again() {
        let changes = [
            Change { field: "times", change: |all| remove(&mut all["times"], "read_seconds") },
            Change { field: "planned_bytes", change: |all| remove(all, "planned_bytes") },
            Change { field: "peak_rss_bytes", change: |all| all["peak_rss_bytes"] = json!(-1) },
            Change { field: "code", change: |all| all["code"] = json!({}) },
            Change { field: "folds", change: |all| remove(all, "folds") },
            Change { field: "seconds", change: |all| all["seconds"] = json!("long") },
            Change { field: "warnings", change: |all| remove(all, "warnings") },
            Change { field: "part", change: |all| remove(all, "part") },
            Change { field: "part", change: |all| all["part"]["part"] = json!("2/2") },
            Change { field: "cases[0].windows", change: |all| remove(&mut all["cases"][0], "windows") },
            Change { field: "cases[0].case", change: |all| all["cases"][0]["case"] = Value::Null },
            Change {
                field: "kept[0].earlier.predicted.seconds",
                change: |all| remove(&mut all["kept"][0]["earlier"]["predicted"], "seconds"),
            },
            Change { field: "remark", change: |all| all["remark"] = json!("edited") },
        ];
        let [first, second] = ["1/2", "2/2"].map(|part| part.parse::<Part>().unwrap());
        let share = Share::new(second, &[]);
        let budget = Budget::new(Bytes::mib(1));
        let merge = |change: &dyn Fn(&mut Value)| {
            let folder = tempfile::tempdir().unwrap();
            plimsoll_disk::create_dir_all(folder.path().join(PARTS)).unwrap();
            for (part, text) in [(first, "1/2"), (second, "2/2")] {
                let mut record = record(text, "cpu", &[text]);
                record["part"]["list"] = json!(share.list);
                if part == first {
                    change(&mut record);
                }
                write_record(&RecordFiles::for_part(folder.path(), part), &record).unwrap();
            }
            let merged = merge(folder.path(), &share, &budget, &Context::default());
            (merged, RecordFiles::whole(folder.path()).record.exists())
        };
        let (merged, is_written) = merge(&|_| {});
        assert!(merged.is_ok() && is_written, "{merged:?}");
        for Change { field, change } in changes {
            let (refused, is_written) = merge(&change);
            let refused = refused.unwrap_err();
            let said = format!("1-of-2.json is a damaged record of predictions: `{field}` ");
            assert!(refused.line().contains(&said), "{field}: {refused}");
            let remedy = refused.remedy().to_string();
            assert!(remedy.starts_with("remove this file, and predict the part again"), "{remedy}");
            assert!(!is_written, "{field}");
        }
    }

    #[test]
    fn a_part_has_one_process_and_a_folder_one_division() {
        let folder = tempfile::tempdir().unwrap();
        let part = |text: &str| text.parse::<Part>().unwrap();
        let first = PartLock::take(folder.path(), part("1/2")).unwrap();
        let second = PartLock::take(folder.path(), part("2/2")).unwrap();
        let refused = PartLock::take(folder.path(), part("1/2")).err().unwrap();
        assert!(refused.line().contains("part 1/2 is being predicted into"), "{refused}");
        let refused = PartLock::take(folder.path(), part("1/3")).err().unwrap();
        assert!(refused.line().contains("parts of another division, like 1/2"), "{refused}");
        let budget = Budget::new(Bytes::mib(1));
        let refused = absorb(folder.path(), &budget).err().unwrap();
        assert!(refused.line().contains("by another process, part 1/2"), "{refused}");
        drop((first, second));
        write_record(&RecordFiles::for_part(folder.path(), part("2/2")), &record("2/2", "cpu", &["a"]))
            .unwrap();
        absorb(folder.path(), &budget).unwrap();
        assert!(!folder.path().join(PARTS).exists());
        let (calls, _memory) =
            Record::read(&RecordFiles::whole(folder.path()), &budget).unwrap().unwrap().by_case();
        assert_eq!(calls.keys().collect::<Vec<_>>(), ["a", "k"]);
    }
}
