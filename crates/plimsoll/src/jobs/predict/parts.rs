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
use plimsoll_memory::Budget;
use serde_json::{Map, Value, json};

use super::earlier_call::EarlierCall;
use super::record::{OF_CALL, Record, entries, write_record};
use super::record_files::{PARTS, RecordFiles};
use super::request::PredictRequest;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::part::{Part, PartRecord, Share};

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
        if let Some(other) = parts_in(&folder)?.into_iter().find(|other| other.of() != part.of()) {
            let message =
                format!("part {part}: {} has parts of another division, like {other}", output.display());
            let hint = format!(
                "divide into {} parts as before, or finish the folder with one process, without ‹part›",
                other.of()
            );
            return Err(Error::new(message, hint));
        }
        PartLock::of(&folder, part)?.ok_or_else(|| {
            let message =
                format!("part {part} is being predicted into {} by another process", output.display());
            Error::new(message, "wait until it ends, or choose another part with ‹part›")
        })
    }

    /// Locks a part; `None` if another process has the lock.
    fn of(folder: &Path, part: Part) -> Outcome<Option<PartLock>> {
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
    let part = |path: &PathBuf| Part::of_file_name(&path.file_name()?.to_string_lossy());
    let mut parts: Vec<Part> = files.iter().filter_map(part).collect();
    parts.sort_unstable_by_key(|part| (part.of(), part.number()));
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
            Record::forget(&RecordFiles::of_part(&request.output, part), &cases, budget)?;
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
        locks.push(PartLock::of(&folder, *part)?.ok_or_else(|| {
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
        if let Some(record) = Record::read(&RecordFiles::of_part(output, *part), budget)? {
            let (calls, held) = record.by_case();
            memory.push(held);
            more.extend(calls.into_values());
        }
    }
    // Entries in the record of the folder are of the existing labels: a part removes them before it predicts these again.
    let is_known = |call: &EarlierCall| {
        known.as_ref().zip(call.case()).is_some_and(|((known, _), case)| known.contains_key(case))
    };
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
        let RecordFiles { record, lines } = RecordFiles::of_part(output, *part);
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
pub(super) fn merge(request: &PredictRequest, share: &Share, budget: &Budget, context: &Context) -> Outcome {
    let output = &request.output;
    let _lock = lock_record(output)?;
    let (mut records, mut missing, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = Vec::new();
    for part in share.part.all() {
        let record = Record::written(&RecordFiles::of_part(output, part), budget)?;
        let Some(record) = record.filter(Record::is_whole) else {
            missing.push(part);
            continue;
        };
        let (all, held) = record.into_value();
        let of: Option<PartRecord> = serde_json::from_value(all["part"].clone()).ok();
        if of.is_none_or(|of| of.list != share.list) {
            others.push(part);
        }
        memory.push(held);
        records.push((part, all));
    }
    let listed = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    let of = share.part.of();
    if !others.is_empty() {
        context.warn(format_args!(
            "{}: part {} divided another list of images or windows: repeat it, or predict once without ‹part›",
            output.display(),
            listed(&others)
        ));
        return Ok(());
    }
    if !missing.is_empty() {
        context.note(format_args!(
            "{} of {of} parts are finished; missing: {}",
            records.len(),
            listed(&missing)
        ));
        return Ok(());
    }
    let files = RecordFiles::whole(output);
    write_record(&files, &merged(records))?;
    context
        .note(format_args!("all {of} parts are finished: {} has the record of all", files.record.display()));
    Ok(())
}

/// The entries of a call that apply to all cases that it predicted.
const OF_CASES: [&str; 3] = ["folds", "engine", "threads"];

/// The lists of a record whose entries name cases.
const CASE_LISTS: [&str; 5] = ["cases", "kept", "failed", "warnings", "previews_failed"];

/// The record of all parts. Times are sums, and bytes are the bytes of the part with most.
fn merged(records: Vec<(Part, Value)>) -> Value {
    let mut all = Map::new();
    let (mut parts, mut seconds, mut times) = (Vec::new(), 0.0, Map::new());
    let mut lists = CASE_LISTS.map(|list| (list, Vec::new()));
    let mut most = [("planned_bytes", None), ("peak_rss_bytes", None)];
    for (part, mut record) in records {
        let call: Map<String, Value> =
            OF_CASES.into_iter().map(|what| (what.to_string(), record[what].clone())).collect();
        if all.is_empty() {
            all.extend(call.clone());
            all.insert("code".into(), record["code"].take());
        }
        let is_other = call.iter().any(|(what, value)| all.get(what) != Some(value));
        let counted = ["cases", "kept", "failed"].map(|list| record[list].as_array().map_or(0, Vec::len));
        let mut of_part = call.clone();
        of_part.insert("part".into(), json!(part));
        for (what, count) in ["cases", "kept", "failed"].into_iter().zip(counted) {
            of_part.insert(what.into(), json!(count));
        }
        for what in ["seconds", "peak_rss_bytes"] {
            of_part.insert(what.into(), record[what].clone());
        }
        parts.push(Value::Object(of_part));
        seconds += record[OF_CALL].as_f64().unwrap_or_default();
        for (what, own) in record["times"].as_object().into_iter().flatten() {
            let sum = times.get(what).and_then(Value::as_f64).unwrap_or_default();
            times.insert(what.clone(), json!(sum + own.as_f64().unwrap_or_default()));
        }
        for (what, most) in &mut most {
            *most = record[*what].as_u64().max(*most);
        }
        for (list, of_all) in &mut lists {
            for mut entry in entries(record[*list].take()) {
                if is_other && *list == "cases" {
                    entry["call"] = Value::Object(call.clone());
                }
                of_all.push(entry);
            }
        }
    }
    for (list, mut entries) in lists {
        entries.sort_by(|one, other| one["case"].as_str().cmp(&other["case"].as_str()));
        all.insert(list.into(), Value::Array(entries));
    }
    all.extend(most.into_iter().map(|(what, bytes)| (what.to_string(), json!(bytes))));
    all.insert(OF_CALL.into(), json!(seconds));
    all.insert("times".into(), Value::Object(times));
    all.insert("parts".into(), Value::Array(parts));
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;

    use super::*;

    fn record(engine: &str, cases: &[&str]) -> Value {
        let cases: Vec<Value> = cases.iter().map(|case| json!({"case": case, "windows": 7})).collect();
        json!({
            "folds": 1, "engine": engine, "threads": 2, "seconds": 1.5, "times": {"network_seconds": 1.0},
            "cases": cases, "kept": [], "failed": [], "warnings": [], "previews_failed": [],
            "planned_bytes": 5, "peak_rss_bytes": cases.len(), "code": {},
        })
    }

    #[test]
    fn parts_of_machines_of_two_kinds_merge_and_each_case_keeps_its_engine() {
        let parts: Vec<Part> = Part::new(1, 2).unwrap().all().collect();
        let all = merged(vec![(parts[0], record("avx2", &["b", "d"])), (parts[1], record("avx512", &["a"]))]);
        let names: Vec<&str> =
            all["cases"].as_array().unwrap().iter().filter_map(|case| case["case"].as_str()).collect();
        assert_eq!(names, ["a", "b", "d"]);
        assert_eq!((&all["seconds"], &all["times"]["network_seconds"]), (&json!(3.0), &json!(2.0)));
        assert_eq!((&all["planned_bytes"], &all["peak_rss_bytes"]), (&json!(5), &json!(2)));
        assert_eq!((&all["parts"][1]["part"], &all["parts"][1]["cases"]), (&json!("2/2"), &json!(1)));
        let folder = tempfile::tempdir().unwrap();
        let files = RecordFiles::whole(folder.path());
        write_record(&files, &all).unwrap();
        let (calls, _memory) = Record::read(&files, &Budget::new(Bytes::mib(1))).unwrap().unwrap().by_case();
        let engines: Vec<&str> = calls.values().filter_map(|call| call.engine.as_str()).collect();
        assert_eq!(engines, ["avx512", "avx2", "avx2"]);
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
        write_record(&RecordFiles::of_part(folder.path(), part("2/2")), &record("cpu", &["a"])).unwrap();
        absorb(folder.path(), &budget).unwrap();
        assert!(!folder.path().join(PARTS).exists());
        let (calls, _memory) =
            Record::read(&RecordFiles::whole(folder.path()), &budget).unwrap().unwrap().by_case();
        assert_eq!(calls.keys().collect::<Vec<_>>(), ["a"]);
    }
}
