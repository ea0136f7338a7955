//! Folds that train at once: the same bits, below one limit, and safe each by itself.

use std::fs;

use super::Running;
use crate::support;
use crate::support::{Tiny, expect_same};

/// Three folds of a few steps.
const SETTINGS: [&str; 8] = ["--folds", "all", "--threads", "2", "--epochs", "3", "--iterations", "4"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SETTINGS.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn folds_that_train_at_once_come_to_the_bits_of_those_that_train_alone() {
    let tiny = Tiny::new();
    let (alone, at_once) = (tiny.path("alone"), tiny.path("at_once"));
    tiny.trained(&alone, &SETTINGS);
    let ended = tiny.trained(&at_once, &with(&["--parallel", "2"]));
    expect_same(&at_once, &alone, "when two folds train at once");
    let plan = ended.printed.find("2 folds at once, each with 1 thread(s): ").unwrap();
    assert!(plan < ended.printed.find("fold 0: ").unwrap(), "{}", ended.printed);
    assert!(
        ended.printed[plan..].contains("for all together, of the limit of 512.0 MiB"),
        "{}",
        ended.printed
    );
    for fold in ["fold 0: epoch 2: loss", "fold 1: epoch 2: loss", "fold 2: epoch 2: loss"] {
        assert!(ended.said.contains(fold), "{}", ended.said);
    }
}

#[test]
fn a_signal_stops_all_folds_with_checkpoints_and_what_is_left_comes_to_the_same_bits() {
    let tiny = Tiny::new();
    let (run, whole) = (tiny.path("run"), tiny.path("whole"));
    let long = ["--folds", "0-1", "--threads", "2", "--epochs", "40", "--iterations", "10"];
    tiny.trained(&whole, &long);
    let parallel = [&long[..], &["--parallel", "2"]].concat();
    let metrics = |fold: usize| {
        let text = fs::read_to_string(run.join(format!("fold_{fold}/metrics.jsonl"))).unwrap_or_default();
        text.lines().count()
    };
    let running = Running::start(&mut tiny.train(&run, &parallel));
    let ended = running.until(|| (0..2).all(|fold| metrics(fold) > 0)).signal("TERM").end();
    let error = ended.error(75);
    assert!(error.contains("error: SIGTERM: stopped after step"), "{error}");
    assert!(
        error.contains(" of fold 0, ") && error.contains(" of fold 1; checkpoints are written"),
        "{error}"
    );
    for fold in 0..2 {
        let latest = run.join(format!("fold_{fold}/checkpoint_latest.safetensors"));
        let steps = support::progress(&latest)["steps"].as_u64().unwrap();
        assert!(steps > 0 && steps < 400, "fold {fold}: {steps}");
    }
    tiny.trained(&run, &[&parallel[..], &["--resume"]].concat());
    // The previous checkpoint may be the one that was written when it was stopped.
    for folder in [&run, &whole] {
        for fold in 0..2 {
            fs::remove_file(folder.join(format!("fold_{fold}/checkpoint_previous.safetensors"))).unwrap();
        }
    }
    expect_same(&run, &whole, "after all folds were stopped at once");
}

#[test]
fn the_whole_process_stays_below_its_limit() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let settings =
        ["--parallel", "2", "--ram", "160MiB", "--features", "16,32", "--patch-size", "16", "--json"];
    let ended = tiny.trained(&run, &with(&settings));
    let printed: serde_json::Value = serde_json::from_str(&ended.printed).unwrap();
    let at_once = &printed["at_once"];
    let bytes = |key: &str| at_once[key].as_u64().unwrap();
    assert_eq!((at_once["folds"].as_u64(), bytes("ram_budget_bytes")), (Some(2), 160 << 20), "{at_once}");
    assert!(bytes("planned_bytes") > bytes("planned_bytes_each"), "{at_once}");
    assert!(bytes("peak_rss_bytes") <= bytes("planned_bytes"), "{at_once}");
    assert!(bytes("planned_bytes") <= bytes("ram_budget_bytes"), "{at_once}");
    for fold in printed["folds"].as_array().unwrap() {
        assert!(fold["peak_rss_bytes"].is_null() && fold["heap"].is_null(), "{fold}");
        assert_eq!(fold["heap_allocations_in_steps"], 0, "{fold}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_number_that_does() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let large = ["--features", "32,64", "--patch-size", "32", "--batch-size", "1"];
    let mut plan = support::plimsoll();
    plan.arg("plan").arg(&tiny.data).args(large).args([
        "--net",
        "dynunet",
        "--ram",
        "512MiB",
        "--threads",
        "3",
    ]);
    let plan = support::Ended::run(plan.args(["--config", "/dev/null", "--json"]));
    let numbers: serde_json::Value = serde_json::from_str(&plan.printed).unwrap();
    // The program's code is held once: two folds have room in it, and three have not.
    let limit = (numbers["minimum_ram_bytes"].as_u64().unwrap() / 5 * 8).to_string();
    let large = [&large[..], &["--threads", "3"]].concat();
    let settings = ["--folds", "all", "--parallel", "3", "--ram", &limit];
    let error = tiny.train(&run, &[&large[..], &settings].concat()).output().unwrap();
    let error = support::Ended::from(error).error(1);
    assert!(error.contains("3 folds at once do not fit the limit of "), "{error}");
    assert!(error.contains("hint: --parallel 2 fits, or raise --ram"), "{error}");
    assert!(!run.exists());
    let error = support::Ended::run(&mut tiny.train(&run, &with(&["--parallel", "3"]))).error(1);
    assert!(error.contains("--parallel 3 needs as many threads, but there are 2"), "{error}");
}
