//! `--precision bf16-dot`: it is said in plans and reports, and refused by name where nothing multiplies bf16.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{run_error, run_json};

/// Processors that have the instruction, and those that have not, name it in the engine.
#[test]
fn a_case_is_measured_with_products_of_bf16_and_takes_about_as_much_memory_as_bf16() {
    // Scratch and packed weights grow with threads and channels alone: beside features of this size they are little.
    let case = ["bench", "predict", "--size", "64", "--features", "8,16,16", "--threads", "2"];
    let of = |precision: &str| run_json(&[&case[..], &["--precision", precision]].concat());
    let [single, stored, dot] = ["f32", "bf16", "bf16-dot"].map(of);
    assert_eq!(single["precision"], "f32");
    assert_eq!(dot["precision"], "bf16-dot");
    let engine = |report: &serde_json::Value| report["engine"].to_string().contains("bf16 products");
    assert_eq!([&single, &stored, &dot].map(engine), [false, false, true]);
    let [single, stored, products] =
        [&single, &stored, &dot].map(|report| report["arena_bytes"].as_f64().unwrap());
    assert!(products < single, "{products} of {single}");
    assert!((products / stored - 1.0).abs() < 0.03, "{products} against {stored}");
    assert!(dot["seconds_per_window"].as_f64().is_some_and(|seconds| seconds > 0.0));
}

#[test]
fn devices_and_commands_without_products_of_bf16_refuse_them() {
    let device =
        run_error(&["bench", "predict", "--size", "16", "--device", "reference", "--precision", "bf16-dot"]);
    assert!(device.contains("products of bf16") && device.contains("--precision bf16"), "{device}");
    let kind = ["bench", "step", "--size", "32", "--forward", "--predict", "--device", "sm_90"];
    let kind = run_error(&[&kind[..], &["--precision", "bf16-dot"]].concat());
    assert!(kind.contains("products of bf16") && kind.contains("--precision bf16"), "{kind}");
    let training: [&[&str]; 4] =
        [&["train", "/nowhere"], &["bench", "step"], &["bench", "curve"], &["bench", "scaling"]];
    for command in training {
        let error = run_error(&[command, &["--precision", "bf16-dot"]].concat());
        assert!(error.contains("bf16-dot is for prediction"), "{command:?}: {error}");
    }
}

/// Before anything is written or held for it.
#[test]
fn cases_that_are_too_large_are_refused_with_the_most_voxels() {
    let most = u64::MAX.to_string();
    for shape in ["100000", "1,2305843009213693952,4", most.as_str()] {
        let error = run_error(&["bench", "predict", "--size", "16", "--shape", shape]);
        assert!(error.contains("8589934592 voxels") && error.contains("--shape"), "{error}");
    }
    let rounds = run_error(&["bench", "predict", "--size", "16", "--rounds", &most]);
    assert!(rounds.contains("--rounds"), "{rounds}");
}
