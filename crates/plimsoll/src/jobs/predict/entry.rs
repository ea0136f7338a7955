//! Entries of records about cases, and the calls that predicted them, as they are read again.
//!
//! An entry keeps all its fields as they were written, so that a record that is written again has the same text. Numbers are checked when an
//! entry is read: a missing one would otherwise count as none.

use std::path::{Path, PathBuf};

use plimsoll_infer::CaseTimes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{Fault, Object, expect, take};

/// A call that predicts cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    /// The folds of weights that it averages.
    pub(super) folds: usize,
    /// The backend and its instruction set.
    pub(super) engine: String,
    /// Threads that compute.
    pub(super) threads: usize,
}

impl Call {
    /// Takes the fields of a call out of an object.
    pub(super) fn take(object: &mut Object) -> Result<Call, Fault> {
        Ok(Call {
            folds: take(object, "folds")?,
            engine: take(object, "engine")?,
            threads: take(object, "threads")?,
        })
    }

    /// The fields as an object.
    pub(super) fn into_object(self) -> Object {
        let Call { folds, engine, threads } = self;
        let fields = [("folds", folds.into()), ("engine", engine.into()), ("threads", threads.into())];
        fields.into_iter().map(|(name, value): (&str, Value)| (name.to_string(), value)).collect()
    }
}

/// An entry of a record that names a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    case: String,
    /// All its fields as they were written, the name of the case among them.
    fields: Object,
}

impl Entry {
    /// Reads an entry of which the name of the case is needed alone.
    pub(super) fn named(fields: Object) -> Result<Entry, Fault> {
        Ok(Entry { case: expect(&fields, "case")?, fields })
    }

    /// Reads the entry of a case that was predicted, with all numbers.
    pub(super) fn predicted(fields: Object) -> Result<Entry, Fault> {
        expect::<PathBuf>(&fields, "file")?;
        expect::<u64>(&fields, "windows")?;
        expect::<f64>(&fields, "seconds")?;
        expect::<Option<CaseTimes>>(&fields, "times")?;
        expect::<Option<IgnoredAny>>(&fields, "plan")?;
        expect::<Vec<IgnoredAny>>(&fields, "other_spacings")?;
        Entry::named(fields)
    }

    /// The name of the case.
    pub fn case(&self) -> &str {
        &self.case
    }

    /// A field as it was written; `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// An entry with the name of the case and the file of its labels alone.
    pub(super) fn case_and_file(&self) -> Entry {
        let is_kept = |(name, _): &(&String, &Value)| ["case", "file"].contains(&name.as_str());
        let fields = self.fields.iter().filter(is_kept);
        Entry {
            case: self.case.clone(),
            fields: fields.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }

    /// Replaces a field.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.into(), value);
    }

    /// Replaces the file of the labels.
    pub(super) fn set_file(&mut self, file: &Path) -> serde_json::Result<()> {
        self.set("file", serde_json::to_value(file)?);
        Ok(())
    }
}

impl From<Entry> for Value {
    fn from(entry: Entry) -> Value {
        Value::Object(entry.fields)
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

/// The record of an earlier call about a case that it predicted, and about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlierCall {
    /// The folds of weights that it averaged.
    pub folds: usize,
    /// The backend and its instruction set.
    pub engine: String,
    /// Threads that computed.
    pub threads: usize,
    /// The case's entry in the `cases` of that call.
    pub predicted: Entry,
}

impl EarlierCall {
    /// A case that a call predicted.
    pub(super) fn new(call: Call, predicted: Entry) -> EarlierCall {
        let Call { folds, engine, threads } = call;
        EarlierCall { folds, engine, threads, predicted }
    }

    /// Reads the record of a case that a call finished.
    pub(super) fn read(mut fields: Object) -> Result<EarlierCall, Fault> {
        let call = Call::take(&mut fields)?;
        let predicted = Entry::predicted(take(&mut fields, "predicted")?);
        Ok(EarlierCall::new(call, predicted.map_err(|fault| fault.within("predicted"))?))
    }

    /// The name of the case.
    pub(super) fn case(&self) -> &str {
        self.predicted.case()
    }

    /// The call.
    pub(super) fn call(&self) -> Call {
        Call { folds: self.folds, engine: self.engine.clone(), threads: self.threads }
    }
}

impl From<EarlierCall> for Value {
    fn from(earlier: EarlierCall) -> Value {
        let mut fields = earlier.call().into_object();
        fields.insert("predicted".into(), earlier.predicted.into());
        Value::Object(fields)
    }
}

#[cfg(test)]
pub(super) mod examples {
    use serde_json::{Value, json};

    /// The times of a case.
    pub(in crate::jobs::predict) fn times() -> Value {
        json!({
            "read_seconds": 0.1, "prepare_seconds": 0.0, "pull_seconds": 0.2, "forward_seconds": 1.0, "sum_seconds": 0.3,
            "export_seconds": 0.7, "write_seconds": 1e-7,
        })
    }

    /// The entry of a case that was predicted.
    pub(in crate::jobs::predict) fn predicted(case: &str) -> Value {
        json!({
            "case": case, "file": format!("labels/{case}.nii.gz"), "windows": 7, "seconds": 2.5, "times": times(),
            "plan": {"arena_bytes": 9}, "other_spacings": [],
        })
    }
}
