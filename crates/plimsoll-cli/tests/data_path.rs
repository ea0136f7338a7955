//! The way of patches from the disk: bad cases left out, warm caches, what `bench` says of it.

use std::fs;

use crate::support::{dataset, plimsoll, run_error, run_json, small_run};

#[test]
fn bad_cases_are_left_out_when_asked_for_and_the_run_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dataset(dir.path());
    let bad = folder.join("imagesTr/vessel_001_0000.nii.gz");
    let bytes = fs::read(&bad).unwrap();
    fs::write(&bad, &bytes[..bytes.len() / 2]).unwrap();
    let out = dir.path().join("run");
    let mut args = small_run(folder.to_str().unwrap(), out.to_str().unwrap());
    assert!(run_error(&args).contains("vessel_001"));
    args.extend(["--skip-bad-cases", "--warm"]);
    let output = plimsoll().args(&args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("left out: case vessel_001") && said.contains("damaged"), "{said}");
    assert_eq!(said.matches("left out: case vessel_001").count(), 1, "{said}");
    assert!(said.contains("cache: 3 of 3 cases"), "{said}");
    let read = |name: &str| fs::read_to_string(out.join("fold_all").join(name)).unwrap();
    assert!(read("events.jsonl").contains("left out: case vessel_001"));
    let specification: serde_json::Value = serde_json::from_str(&read("specification.json")).unwrap();
    let cases = &specification["cases"]["train"];
    assert_eq!(*cases, serde_json::json!(["vessel_000", "vessel_002", "vessel_003"]));
    for case in 0..4 {
        fs::write(folder.join(format!("imagesTr/vessel_{case:03}_0000.nii.gz")), "no image").unwrap();
    }
    let other = dir.path().join("other");
    let mut args = small_run(folder.to_str().unwrap(), other.to_str().unwrap());
    args.push("--skip-bad-cases");
    let none = run_error(&args);
    assert!(
        none.contains("is usable; left out: case vessel_000") && none.contains("repair the files"),
        "{none}"
    );
}

#[test]
fn the_data_path_is_measured_within_the_limit_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dataset(dir.path());
    let folder = folder.to_str().unwrap();
    let picture = dir.path().join("bars.svg");
    let run = ["--config", "/dev/null", "--patch-size", "16", "--features", "8,16,24", "--ram", "512MiB"];
    let mut args = vec!["bench", "system", folder, "--draw", picture.to_str().unwrap(), "--batches", "3"];
    args.extend(run);
    let report = run_json(&args);
    assert_eq!((&report["load"]["files"], &report["patch"]["cached_cases"]), (&8.into(), &4.into()));
    assert_eq!(report["patch"]["hit_share"], 1.0);
    for (part, name) in [("load", "cold_seconds"), ("load", "warm_seconds"), ("patch", "seconds_per_patch")] {
        assert!(report[part][name].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["predicted_seconds_per_step"].as_f64().unwrap() > 0.0);
    assert!(fs::read_to_string(picture).unwrap().contains("its batch"));
    let load = run_json(&[&["bench", "load", folder, "--cases", "2"][..], &run].concat());
    assert!(load["load"]["files"] == 4 && load["patch"].is_null());
}

#[test]
fn a_plan_says_what_the_cache_has_no_room_for_and_which_features_fill_no_block() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dataset(dir.path());
    let mut args = vec!["plan", folder.to_str().unwrap(), "--config", "/dev/null", "--patch-size", "16"];
    args.extend(["--net", "dynunet", "--features", "8,16,24"]);
    let said = |args: &[&str]| {
        let output = plimsoll().args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = said(&[&args[..], &["--ram", "512MiB"]].concat());
    assert!(all.contains("8 cost as much as 16, 24 cost as much as 32"), "{all}");
    assert!(
        all.contains("decoded cases; all of them would be") && !all.contains("patches of the other cases"),
        "{all}"
    );
    let plan = run_json(&[&args[..], &["--ram", "512MiB"]].concat());
    let number = |name: &str| plan[name].as_u64().unwrap();
    let least = number("total_bytes") - number("cache_bytes");
    // Room for half of the largest case.
    let limit = format!("{}B", least.max(number("minimum_ram_bytes")) + number("largest_case_bytes") / 2);
    let tight = said(&[&args[..], &["--ram", &limit]].concat());
    assert!(tight.contains("patches of the other cases are read from their files"), "{tight}");
    assert!(tight.contains("of 1 thread(s)"), "{tight}");
}
