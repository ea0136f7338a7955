//! `--precision bf16-dot` and `tf32`: they are said in plans and reports, and refused by name where nothing multiplies so; runs keep which convolutions do.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{dataset, expect_same, plimsoll, run_error, run_json, small_run};

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
    assert!((0.95..1.03).contains(&(products / stored)), "{products} against {stored}");
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
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dataset(dir.path()), dir.path().join("run"));
    let run = small_run(data.to_str().unwrap(), out.to_str().unwrap());
    let run = run_error(&[&run[..], &["--device", "reference", "--precision", "bf16-dot"]].concat());
    assert!(run.contains("products of bf16") && run.contains("--precision bf16"), "{run}");
    assert!(!out.exists(), "nothing is left of a run that cannot be");
}

#[test]
fn products_of_tf32_are_predicted_faster_on_cards_that_have_them_and_refused_by_name_elsewhere() {
    let step = ["bench", "step", "--size", "64", "--features", "32,64", "--predict", "--device"];
    let of = |device: &'static str, precision: &'static str| {
        [&step[..], &[device, "--precision", precision]].concat()
    };
    let [exact, rounded] = ["f32", "tf32"].map(|precision| run_json(&of("sm_80", precision)));
    assert_eq!(rounded["precision"], "tf32");
    assert_eq!([&exact["engine"], &rounded["engine"]], ["CUDA, sm_80", "CUDA, sm_80, tf32 products"]);
    let seconds = |step: &serde_json::Value| step["predicted_seconds"].as_f64().unwrap();
    assert!(seconds(&rounded) < seconds(&exact), "{rounded} against {exact}");
    for device in ["sm_70", "sm_75", "cpu", "reference"] {
        let error = run_error(&of(device, "tf32"));
        assert!(error.contains("products of tf32") && error.contains("--precision f32"), "{device}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dataset(dir.path()), dir.path().join("run"));
    let run = small_run(data.to_str().unwrap(), out.to_str().unwrap());
    let run = run_error(&[&run[..], &["--precision", "tf32"]].concat());
    assert!(run.contains("products of tf32") && run.contains("--device cuda:0"), "{run}");
    assert!(!out.exists(), "nothing is left of a run that cannot be");
}

/// The convolutions that multiply bf16 are chosen once, and stay so when a run is resumed.
#[test]
fn a_run_with_products_of_bf16_goes_on_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let path = |name: &str| dir.path().join(name);
    let begin = |name: &str| {
        let run = path(name);
        let mut command = plimsoll();
        command.env("XDG_CACHE_HOME", path("known"));
        command.args(small_run(data.to_str().unwrap(), run.to_str().unwrap()));
        command.args(["--precision", "bf16-dot"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let specification = |name: &str| -> serde_json::Value {
        let text = std::fs::read(path(name).join("fold_all/specification.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    assert!(begin("whole").wait().unwrap().success());
    let kept = specification("whole");
    assert_eq!(kept["settings"]["precision"], "bf16-dot");
    assert!(kept["config"]["products"]["bf16"]["in_f32"].is_array(), "{}", kept["config"]["products"]);
    // Rates that were doubted, since the machine has other work, would be measured again.
    for file in std::fs::read_dir(path("known/plimsoll")).unwrap() {
        let file = file.unwrap().path();
        // Other things are kept there as well.
        if !file.file_name().unwrap().to_string_lossy().starts_with("costs-") {
            continue;
        }
        let mut rates: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        rates["doubtful"] = serde_json::json!({ "machine": false, "kernels": [] });
        std::fs::write(&file, serde_json::to_vec(&rates).unwrap()).unwrap();
    }
    let mut child = begin("killed");
    let journal = path("killed").join("fold_all/metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(300);
    while std::fs::read_to_string(&journal).unwrap_or_default().is_empty() {
        assert!(Instant::now() < deadline, "no epoch was finished");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(specification("killed")["config"]["products"], kept["config"]["products"]);
    // Gone on with where nothing is known of the machine: what was chosen is not chosen again.
    let killed = path("killed");
    let mut command = plimsoll();
    command.env("XDG_CACHE_HOME", path("nothing known"));
    command.args(["train", data.to_str().unwrap(), "--out", killed.to_str().unwrap(), "--fold", "all"]);
    let output = command.args(["--ram", "512MiB", "--config", "/dev/null", "--resume"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(specification("killed")["config"]["products"], kept["config"]["products"]);
    expect_same(&killed, &path("whole"), "resumed with products of bf16");
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
