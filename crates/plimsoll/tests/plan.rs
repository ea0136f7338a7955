//! A plan says what fitting costs, and a run holds to it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use serde_json::Value;
use support::{dataset, final_bits, run_error, run_json};

const NET: [&str; 12] = [
    "--net",
    "dynunet",
    "--features",
    "16,24,32,32",
    "--patch-size",
    "32,32,32",
    "--batch-size",
    "1",
    "--config",
    "/dev/null",
    "--threads",
    "1",
];

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

/// What a plan holds beside the cache.
fn needed(plan: &Value) -> u64 {
    number(plan, "total_bytes") - number(plan, "cache_bytes")
}

#[test]
fn a_line_between_the_floor_and_what_is_needed_to_hold_everything_costs_operations_but_no_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = |ram: &str, more: &[&str]| run_json(&[&["plan", data, "--ram", ram][..], &NET, more].concat());
    let high = plan("1GiB", &[]);
    assert_eq!(high["recompute_flops_fraction"], 0.0);
    // Nothing was said of epochs: 1000 of 250 steps, and 50 validations of less than a step each.
    let seconds = |key: &str| high[key].as_f64().unwrap();
    let (step, epoch) = (seconds("predicted_seconds_per_step"), seconds("predicted_seconds_per_epoch"));
    assert_eq!((number(&high, "steps"), number(&high, "epochs")), (250_000, 1000));
    assert!(250.0 * step < epoch && epoch < 300.0 * step, "{step} {epoch}");
    assert!((seconds("predicted_seconds") - 1000.0 * epoch).abs() < 1e-6 * epoch);
    assert!(number(&high, "minimum_ram_bytes") < needed(&high));
    let line = (number(&high, "minimum_ram_bytes") + needed(&high)) / 2;
    let line = line.to_string();
    let low = plan(&line, &[]);
    assert_eq!(low["feasible"], true, "{low}");
    assert!(low["recompute_flops_fraction"].as_f64().unwrap() > 0.0);
    assert!(!low["recomputed"].as_array().unwrap().is_empty());
    assert!(number(&low, "total_bytes") <= number(&low, "ram_budget_bytes"));

    let weights = |name: &str, ram: &str| {
        let out = dir.path().join(name);
        let short = ["--epochs", "1", "--iterations", "2", "--validation-iterations", "1", "--fold", "all"];
        let start = ["train", data, "--out", out.to_str().unwrap(), "--ram", ram];
        let record = run_json(&[&start[..], &NET, &short].concat());
        assert!(number(&record, "peak_rss_bytes") <= number(&record, "ram_budget_bytes"), "{record}");
        assert_eq!(record["arena_used_bytes"], record["arena_bytes"]);
        final_bits(&out)
    };
    assert!(weights("high", "1GiB") == weights("low", &line), "recomputation changes no bit");
}

#[test]
fn the_curve_falls_and_a_line_below_it_is_refused_with_ways_out() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let start = ["plan", data, "--ram", "1GiB"];
    let curve = run_json(&[&start[..], &NET, &["--pareto"]].concat());
    let curve = curve.as_array().unwrap();
    assert!(curve.len() > 3);
    for pair in curve.windows(2) {
        assert!(number(&pair[1], "ram_bytes") < number(&pair[0], "ram_bytes"));
        assert!(number(&pair[1], "arena_bytes") >= number(&pair[1], "arena_lower_bound_bytes"));
        let seconds = |point: &Value| point["predicted_seconds_per_step"].as_f64().unwrap();
        assert!(seconds(&pair[1]) >= seconds(&pair[0]));
    }
    let floor = number(&curve[curve.len() - 1], "ram_bytes");
    let below = (floor - (4 << 20)).to_string();
    let error = run_error(&[&["plan", data, "--ram", &below][..], &NET].concat());
    for said in ["the run needs", "--ram", "--precision bf16", "--patch-size"] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn an_arena_is_drawn_and_values_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let drawing = dir.path().join("arena.svg");
    let start = ["plan", data, "--ram", "1GiB"];
    run_json(&[&start[..], &NET, &["--draw", drawing.to_str().unwrap()]].concat());
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("peak"));
    let fate = |name: &str| {
        let explained = run_json(&[&start[..], &NET, &["--explain", name]].concat());
        explained[0]["fate"].as_str().unwrap().to_string()
    };
    assert_eq!(fate("input_block.conv1.conv raw"), "kept");
    assert_eq!(fate("input_block.norm1"), "fused");
    assert_eq!(fate("input_block.conv1.conv.weight"), "persistent");
    let error = run_error(&[&start[..], &NET, &["--explain", "conv9"]].concat());
    assert!(error.contains("conv9"), "{error}");
}

#[test]
fn results_change_only_where_it_is_allowed_and_a_run_that_goes_on_keeps_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = |ram: &str, more: &[&str]| run_json(&[&["plan", data, "--ram", ram][..], &NET, more].concat());
    let line = (number(&plan("1GiB", &[]), "minimum_ram_bytes") - (1 << 20)).to_string();
    let refused = run_error(&[&["plan", data, "--ram", &line][..], &NET].concat());
    assert!(refused.contains("hint: it would fit with"), "{refused}");
    let narrow = plan(&line, &["--allow", "features,patch"]);
    assert_eq!(narrow["feasible"], true);
    assert!(narrow["changes"][0].as_str().unwrap().starts_with("features"), "{narrow}");
    let small = plan(&line, &["--allow", "patch"]);
    assert_eq!(small["feasible"], true);
    assert_ne!(small["patch_size"], serde_json::json!([32, 32, 32]));

    let out = dir.path().join("run");
    let short = ["--epochs", "2", "--iterations", "2", "--validation-iterations", "1", "--fold", "all"];
    let start = ["train", data, "--out", out.to_str().unwrap(), "--ram"];
    let patch = || {
        let config: Value =
            serde_json::from_slice(&fs::read(out.join("fold_all/specification.json")).unwrap()).unwrap();
        config["config"]["training"]["patch"].clone()
    };
    run_json(&[&start[..], &[&line, "--allow", "patch"], &NET, &short].concat());
    let first = patch();
    assert_ne!(first, serde_json::json!([32, 32, 32]));
    // Under a higher line the change would not be needed any more, but it is part of the run.
    run_json(&[&start[..], &["1GiB", "--allow", "patch", "--resume"], &NET, &short].concat());
    assert_eq!(patch(), first);
}

#[test]
fn a_run_can_be_planned_for_a_card_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let args = |vram: &'static str| {
        [&["plan", data, "--ram", "1GiB", "--device", "sm_80", "--vram", vram][..], &NET].concat()
    };
    let high = run_json(&args("12GiB"));
    assert_eq!((&high["device"], &high["feasible"]), (&"CUDA, sm_80".into(), &true.into()), "{high}");
    assert_eq!(high["recompute_flops_fraction"], 0.0);
    assert_eq!(number(&high, "total_bytes"), number(&high, "arena_bytes") + number(&high, "reserved_bytes"));
    assert!(number(&high, "minimum_bytes") < number(&high, "total_bytes"));
    // Between the least and what holding everything takes.
    let line = (number(&high, "minimum_bytes") + number(&high, "total_bytes")) / 2;
    let low = run_json(&args(line.to_string().leak()));
    assert!(low["recompute_flops_fraction"].as_f64().unwrap() > 0.0, "{low}");
    assert!(number(&low, "total_bytes") <= line);
    let below = (number(&high, "minimum_bytes") - 4096).to_string();
    assert!(run_error(&args(below.leak())).contains("--vram"));
    let transformer = ["plan", data, "--device", "sm_80", "--vram", "12GiB", "--net", "swinunetr"];
    let refused =
        run_error(&[&transformer[..], &["--patch-size", "64,64,64", "--config", "/dev/null"]].concat());
    assert!(refused.contains("CUDA cannot run"), "{refused}");
}
