//! Rates of the machine that a run shows to be wrong are said to be, and measured again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{dataset, final_bits, plimsoll, small_run};
use serde_json::{Value, json};

/// Runs the command line with a cache folder of its own; returns what it printed as JSON.
fn with_cache(cache: &Path, args: &[&str]) -> Value {
    let output = plimsoll().env("XDG_CACHE_HOME", cache).args(args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The only file of costs.
fn costs(cache: &Path) -> PathBuf {
    let files = fs::read_dir(cache.join("plimsoll")).unwrap().map(|entry| entry.unwrap().path());
    let mut costs = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("costs-"));
    let found = costs.next().unwrap();
    assert_eq!(costs.next(), None);
    found
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Makes every rate a hundredth of what it is.
fn slow_down(stored: &mut Value) {
    let rates = &mut stored["rates"];
    let slower = |rate: &Value| json!(rate.as_f64().unwrap() / 100.0);
    (rates["flops"], rates["bytes"]) = (slower(&rates["flops"]), slower(&rates["bytes"]));
    rates["kernels"].as_object_mut().unwrap().values_mut().for_each(|rate| *rate = slower(rate));
}

#[test]
fn wrong_rates_are_told_of_and_measured_again_and_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let cache = dir.path().join("cache");
    let honest = dir.path().join("honest");
    with_cache(&cache, &small_run(data, honest.to_str().unwrap()));

    let file = costs(&cache);
    let mut stored = read(&file);
    stored["doubtful"] = json!({"machine": false, "kernels": []});
    slow_down(&mut stored);
    fs::write(&file, stored.to_string()).unwrap();
    let doctored = dir.path().join("doctored");
    let record = with_cache(&cache, &small_run(data, doctored.to_str().unwrap()));
    let predicted = record["predicted_seconds_per_step"].as_f64().unwrap();
    assert!(predicted > 2.0 * record["seconds_per_step"].as_f64().unwrap(), "{record}");
    let events = fs::read_to_string(doctored.join("fold_all/events.jsonl")).unwrap();
    let warned = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).any(|event| {
        event["event"] == "warning" && event["what"].as_str().unwrap().contains("was predicted to take")
    });
    assert!(warned, "{events}");
    assert_eq!(final_bits(&honest), final_bits(&doctored));

    let marked = read(&file);
    assert_eq!(marked["doubtful"]["machine"], true);
    assert_eq!(marked["rates"], stored["rates"], "what is known stays until it is measured again");
    // The flags from `--ram` on.
    let plan = with_cache(&cache, &[&["plan", data][..], &small_run(data, "")[6..]].concat());
    assert!(plan["predicted_seconds_per_step"].as_f64().unwrap() < predicted / 4.0, "{plan}");
    let measured = read(&file);
    assert_eq!(measured["doubtful"], json!({"machine": false, "kernels": []}));
    for key in ["flops", "bytes"] {
        let rate = |stored: &Value| stored["rates"][key].as_f64().unwrap();
        assert!(rate(&measured) > 4.0 * rate(&stored), "{key}");
    }
}
