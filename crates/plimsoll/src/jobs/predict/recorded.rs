//! The content of a record of predictions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::entry::{Call, EarlierCall, Entry};
use super::fields::{Fault, Object, take_if_there, take_list};

/// The lists of a record in which each case is named: predicted, kept and failed cases.
pub(super) const LISTS: [&str; 3] = ["cases", "kept", "failed"];

/// The entry of the whole call. A record without it was changed by a call that did not reach its end.
pub(super) const OF_CALL: &str = "seconds";

/// A case that the call predicted.
pub(super) struct PredictedCase {
    pub(super) entry: Entry,
    /// The call that predicted it, if another part did than the first one.
    pub(super) call: Option<Call>,
}

impl PredictedCase {
    fn read(fields: Object) -> Result<PredictedCase, Fault> {
        let entry = Entry::predicted(fields)?;
        let call = entry.field("call").cloned().map(|call| match call {
            Value::Object(mut call) => Call::take(&mut call).map_err(|fault| fault.within("call")),
            _ => Err(Fault::new("call", "is no object")),
        });
        Ok(PredictedCase { entry, call: call.transpose()? })
    }
}

/// A case whose labels existed before the call.
pub(super) struct KeptCase {
    /// The entry without the record of the earlier call.
    entry: Entry,
    /// The record of the call that predicted it, if that is known.
    earlier: Option<EarlierCall>,
}

impl KeptCase {
    fn read(mut fields: Object) -> Result<KeptCase, Fault> {
        let earlier = take_if_there(&mut fields, "earlier")?.map(EarlierCall::read);
        let earlier = earlier.transpose().map_err(|fault| fault.within("earlier"))?;
        Ok(KeptCase { entry: Entry::named(fields)?, earlier })
    }

    /// The entry of labels that an earlier call wrote.
    fn from_earlier(earlier: EarlierCall) -> KeptCase {
        KeptCase { entry: earlier.predicted.case_and_file(), earlier: Some(earlier) }
    }

    /// The entry as it is written.
    pub(super) fn into_entry(self) -> Entry {
        let KeptCase { mut entry, earlier } = self;
        if let Some(earlier) = earlier {
            entry.set("earlier", earlier.into());
        }
        entry
    }
}

/// The content of a record.
pub(super) struct Recorded {
    pub(super) call: Call,
    pub(super) cases: Vec<PredictedCase>,
    pub(super) kept: Vec<KeptCase>,
    pub(super) failed: Vec<Entry>,
    /// The duration of the call; `None` if a call changed the record that did not reach its end.
    pub(super) seconds: Option<f64>,
    /// All other fields as they were written.
    pub(super) rest: Object,
}

impl Recorded {
    /// Reads the content of a record.
    pub(super) fn read(mut fields: Object) -> Result<Recorded, Fault> {
        Ok(Recorded {
            call: Call::take(&mut fields)?,
            cases: take_list(&mut fields, "cases", PredictedCase::read)?,
            kept: take_list(&mut fields, "kept", KeptCase::read)?,
            failed: take_list(&mut fields, "failed", Entry::named)?,
            seconds: take_if_there(&mut fields, OF_CALL)?,
            rest: fields,
        })
    }

    /// A record of a call that has finished no case.
    fn empty(call: Call) -> Recorded {
        let (cases, kept, failed) = (Vec::new(), Vec::new(), Vec::new());
        Recorded { call, cases, kept, failed, seconds: None, rest: Object::new() }
    }

    /// Adds cases that a call finished which did not write its record. Without any there may still be no record.
    pub(super) fn with(recorded: Option<Recorded>, finished: Vec<EarlierCall>) -> Option<Recorded> {
        let last = || Some(Recorded::empty(finished.last()?.call()));
        let mut all = recorded.or_else(last)?;
        all.drop_cases(&finished.iter().map(EarlierCall::case).collect());
        all.kept.extend(finished.into_iter().map(KeptCase::from_earlier));
        Some(all)
    }

    /// Removes cases from all lists. Returns the number of entries that these were.
    pub(super) fn drop_cases(&mut self, cases: &BTreeSet<&str>) -> usize {
        let before = self.entries();
        self.cases.retain(|case| !cases.contains(case.entry.case()));
        self.kept.retain(|case| !cases.contains(case.entry.case()));
        self.failed.retain(|case| !cases.contains(case.case()));
        before - self.entries()
    }

    /// The number of entries of all lists.
    pub(super) fn entries(&self) -> usize {
        self.cases.len() + self.kept.len() + self.failed.len()
    }

    /// The fields of the record of a call that did not reach its end.
    pub(super) fn into_unfinished(self) -> Value {
        let Recorded { call, cases, kept, failed, seconds: _, mut rest } = self;
        rest.extend(call.into_object());
        let cases = cases.into_iter().map(|case| case.entry).collect();
        let kept = kept.into_iter().map(KeptCase::into_entry).collect();
        for (name, list) in LISTS.into_iter().zip([cases, kept, failed]) {
            let list: Vec<Entry> = list;
            rest.insert(name.into(), list.into_iter().map(Value::from).collect());
        }
        Value::Object(rest)
    }

    /// The predicted cases, each with the call that predicted it.
    pub(super) fn into_calls(self) -> impl Iterator<Item = EarlierCall> {
        let Recorded { call: of_all, cases, kept, .. } = self;
        let predicted = move |PredictedCase { entry, call }: PredictedCase| {
            EarlierCall::new(call.unwrap_or_else(|| of_all.clone()), entry)
        };
        cases.into_iter().map(predicted).chain(kept.into_iter().filter_map(|case| case.earlier))
    }
}
