//! Folds against nnU-Net's, and invalid lists of folds.

use std::fs;

use crate::support::{numbers, oracle};
use plimsoll_data::{Fold, Splits, SplitsError};
use plimsoll_memory::{Budget, Bytes};
use serde_json::{Value, json};

fn budget() -> Budget {
    Budget::new(Bytes::mib(1))
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("case_{number:04}")).collect()
}

#[test]
fn folds_match_nnu_net() {
    for (count, folds) in oracle("data_splits.json").as_object().unwrap() {
        let mut names = ids(count.parse().unwrap());
        // The order in which a folder lists its files does not matter.
        names.reverse();
        let splits = Splits::make(&names).unwrap();
        let folds = folds.as_array().unwrap();
        assert_eq!(splits.folds.len(), folds.len(), "{count} cases");
        for (ours, theirs) in splits.folds.iter().zip(folds) {
            let theirs: Vec<String> =
                numbers(theirs).iter().map(|number| format!("case_{:04}", *number as usize)).collect();
            assert_eq!(ours.val, theirs, "{count} cases");
            let mut both = [ours.train.clone(), ours.val.clone()].concat();
            both.sort();
            assert_eq!(both, ids(names.len()));
            assert!(ours.train.is_sorted());
        }
    }
}

#[test]
fn one_case_cannot_be_divided() {
    let error = Splits::make(&ids(1)).unwrap_err();
    assert!(matches!(error, SplitsError::TooFewCases { cases: 1 }));
    assert!(error.remedy().unwrap().contains("`all`"));
    let all = Fold::all(&ids(1));
    assert_eq!(all.train, all.val);
}

#[test]
fn folds_round_trip_through_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("splits_final.json");
    let splits = Splits::make(&ids(7)).unwrap();
    splits.write(&path).unwrap();
    splits.write(&path).unwrap();
    assert_eq!(Splits::read(&path, &ids(7), &budget()).unwrap(), splits);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    assert!(matches!(splits.fold(5), Err(SplitsError::NoSuchFold { fold: 5, folds: 5 })));
    assert_eq!(splits.fold(4).unwrap(), &splits.folds[4]);
}

fn error_of(folds: Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("splits_final.json");
    fs::write(&path, folds.to_string()).unwrap();
    let error = Splits::read(&path, &ids(3), &budget()).unwrap_err();
    assert!(error.remedy().is_some(), "{error}");
    error.to_string().replace(&path.display().to_string(), "FILE")
}

#[test]
fn invalid_lists_are_errors() {
    let (a, b) = ("case_0000", "case_0001");
    assert_eq!(error_of(json!([])), "FILE has no folds");
    assert_eq!(error_of(json!([{"train": [a], "val": []}])), "FILE: `val` of fold 0 is empty");
    assert_eq!(
        error_of(json!([{"train": [a], "val": [b]}, {"train": [b], "val": ["other"]}])),
        "FILE: `val` of fold 1 has the case other, which is not in the data set"
    );
    assert_eq!(
        error_of(json!([{"train": [a, a], "val": [b]}])),
        "FILE: `train` of fold 0 has the case case_0000 twice"
    );
    assert_eq!(
        error_of(json!([{"train": [a, b], "val": [b]}])),
        "FILE: case case_0001 is in `train` and in `val` of fold 0"
    );
    assert!(error_of(json!({"train": [a], "val": [b]})).starts_with("FILE is not a list of folds"));
    assert!(error_of(json!([{"train": [a], "validation": [b]}])).contains("unknown field `validation`"));
}

#[test]
fn a_case_may_be_in_no_fold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("splits_final.json");
    fs::write(&path, json!([{"train": ["case_0002"], "val": ["case_0000"]}]).to_string()).unwrap();
    assert_eq!(Splits::read(&path, &ids(3), &budget()).unwrap().folds.len(), 1);
    let error = Splits::read(folder.path().join("none"), &ids(3), &budget()).unwrap_err();
    assert!(matches!(error, SplitsError::Io { action: "read", .. }));
}

#[test]
fn folds_are_read_within_a_budget_and_held_as_long_as_they_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("splits_final.json");
    let names = ids(2);
    // A hundred thousand folds of two cases.
    let fold = format!("{{\"train\":[\"{}\"],\"val\":[\"{}\"]}}", names[0], names[1]);
    fs::write(&path, format!("[{}]", vec![fold; 100_000].join(","))).unwrap();
    let small = Budget::new(Bytes::mib(16));
    let error = Splits::read(&path, &names, &small).unwrap_err();
    assert!(matches!(error, SplitsError::Memory { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("‹ram›"));
    assert_eq!(small.used(), Bytes::ZERO);
    let large = Budget::new(Bytes::mib(256));
    let splits = Splits::read(&path, &names, &large).unwrap();
    assert_eq!(splits.folds.len(), 100_000);
    // Two lists and two names in each fold.
    assert!(large.used() > Bytes(100_000 * (4 * 24 + 20)), "{}", large.used());
    let copy = splits.clone();
    drop(splits);
    assert!(large.used() > Bytes::ZERO);
    drop(copy);
    assert_eq!(large.used(), Bytes::ZERO);
}
