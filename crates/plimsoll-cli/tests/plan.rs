//! A plan says what fitting costs, and a run holds to it.

use std::fs;

use crate::support::{dataset, final_bits, run_error, run_json};
use plimsoll_data::phantom::{self, PhantomConfig};
use serde_json::Value;

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

/// The planned memory beside the cache.
fn needed(plan: &Value) -> u64 {
    number(plan, "total_bytes") - number(plan, "cache_bytes")
}

#[test]
fn a_limit_between_the_floor_and_what_is_needed_to_hold_everything_costs_operations_but_no_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = |ram: &str, more: &[&str]| run_json(&[&["plan", data, "--ram", ram][..], &NET, more].concat());
    let high = plan("1GiB", &[]);
    // A little is recomputed for a smaller arena, which costs at most half a percent of the time.
    let share = high["recompute_flops_fraction"].as_f64().unwrap();
    assert!(share < 0.01, "{share}");
    // Nothing was said of epochs: 1000 of 250 steps, and 50 validations of less than a step each.
    let seconds = |key: &str| high[key].as_f64().unwrap();
    let (step, epoch) = (seconds("predicted_seconds_per_step"), seconds("predicted_seconds_per_epoch"));
    assert_eq!((number(&high, "steps"), number(&high, "epochs")), (250_000, 1000));
    assert!(250.0 * step < epoch && epoch < 300.0 * step, "{step} {epoch}");
    assert!((seconds("predicted_seconds") - 1000.0 * epoch).abs() < 1e-6 * epoch);
    assert!(number(&high, "minimum_ram_bytes") < needed(&high));
    let limit = (number(&high, "minimum_ram_bytes") + needed(&high)) / 2;
    let limit = limit.to_string();
    let low = plan(&limit, &[]);
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
    assert!(weights("high", "1GiB") == weights("low", &limit), "recomputation changes no bit");
}

#[test]
fn the_curve_falls_and_a_limit_below_it_is_refused_with_ways_out() {
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
fn the_default_patch_is_the_largest_that_fits_the_limit_and_a_run_that_goes_on_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("dataset");
    let config = PhantomConfig { cases: 2, test_cases: 0, size: [64, 64], ..PhantomConfig::default() };
    phantom::write(&data, &config).unwrap();
    let data = data.to_str().unwrap();
    let net = ["--net", "dynunet", "--features", "8,16,16", "--config", "/dev/null", "--threads", "1"];
    let plan = |ram: &str, more: &[&str]| run_json(&[&["plan", data, "--ram", ram][..], &net, more].concat());
    let voxels = |plan: &Value| -> u64 {
        plan["patch_size"].as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap()).product()
    };
    // All of the median image.
    let roomy = plan("2GiB", &[]);
    assert!(voxels(&roomy) > 32 * 32 * 32, "{roomy}");
    let costs = roomy["patches"].as_array().unwrap();
    assert!(costs.len() > 1, "{costs:?}");
    for pair in costs.windows(2) {
        assert!(
            voxels(&pair[0]) < voxels(&pair[1])
                && number(&pair[0], "ram_bytes") < number(&pair[1], "ram_bytes")
        );
    }
    let own = costs.iter().find(|cost| cost["patch_size"] == roomy["patch_size"]).unwrap();
    assert_eq!(own["fits"], true);
    // A limit that holds a smaller one just so.
    let limit = number(&costs[0], "ram_bytes").to_string();
    let tight = plan(&limit, &[]);
    assert_eq!(tight["feasible"], true);
    assert!(voxels(&tight) >= voxels(&costs[0]) && voxels(&tight) < voxels(&roomy), "{tight}");
    let share = tight["recompute_flops_fraction"].as_f64().unwrap();
    assert!(share < 0.02, "{share}");
    assert_eq!(plan(&limit, &["--patch-size", "32,32,32"])["patch_size"], serde_json::json!([32, 32, 32]));

    let out = dir.path().join("run");
    let train = |ram: &str, more: &[&str]| {
        let short = ["--iterations", "1", "--validation-iterations", "1", "--fold", "all"];
        let start = ["train", data, "--out", out.to_str().unwrap(), "--ram", ram];
        run_json(&[&start[..], &net, &short, more].concat());
        let text = fs::read(out.join("fold_all/specification.json")).unwrap();
        let specification: Value = serde_json::from_slice(&text).unwrap();
        specification["config"]["training"].clone()
    };
    let first = train(&limit, &["--epochs", "1"]);
    assert_eq!(first["patch"], tight["patch_size"]);
    assert_eq!(train("2GiB", &["--epochs", "2", "--resume"]), first);
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
    // The first convolution has one channel. Where a busy machine was measured as slow, recomputing it is within the half percent that a
    // smaller arena may cost.
    assert_eq!(fate("input_block.conv2.conv raw"), "kept");
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
    let limit = (number(&plan("1GiB", &[]), "minimum_ram_bytes") - (1 << 20)).to_string();
    let refused = run_error(&[&["plan", data, "--ram", &limit][..], &NET].concat());
    assert!(refused.contains("hint: it would fit with"), "{refused}");
    let narrow = plan(&limit, &["--allow", "features,patch"]);
    assert_eq!(narrow["feasible"], true);
    assert!(narrow["changes"][0].as_str().unwrap().starts_with("features"), "{narrow}");
    let small = plan(&limit, &["--allow", "patch"]);
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
    run_json(&[&start[..], &[&limit, "--allow", "patch"], &NET, &short].concat());
    let first = patch();
    assert_ne!(first, serde_json::json!([32, 32, 32]));
    // Under a higher limit the change would not be needed any more, but it is part of the run.
    run_json(&[&start[..], &["1GiB", "--allow", "patch", "--resume"], &NET, &short].concat());
    assert_eq!(patch(), first);
}

#[test]
fn a_run_can_be_planned_for_a_card_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    // Fewer layers than elsewhere: refusals plan every way out.
    let net = NET.map(|arg| if arg == "16,24,32,32" { "8,16" } else { arg });
    let args = |vram: &'static str| {
        [&["plan", data, "--ram", "1GiB", "--device", "sm_80", "--vram", vram][..], &net].concat()
    };
    let high = run_json(&args("12GiB"));
    let device = |plan: &Value, key: &str| plan["device"][key].as_u64().unwrap();
    assert_eq!((&high["device"]["name"], &high["feasible"]), (&"CUDA, sm_80".into(), &true.into()), "{high}");
    // Without a precision, features are stored in the one that tensor cores of that kind multiply; the exact one needs more memory.
    let stored = |device: &str, more: &[&str]| {
        let plan = ["plan", data, "--ram", "1GiB", "--vram", "12GiB", "--device", device];
        run_json(&[&plan[..], &net, more].concat())
    };
    assert_eq!((&high["precision"], &stored("sm_75", &[])["precision"]), (&"bf16".into(), &"f16".into()));
    let exact = stored("sm_80", &["--precision", "f32"]);
    assert_eq!(exact["precision"], "f32");
    assert!(number(&exact, "arena_bytes") > number(&high, "arena_bytes"));
    // A little is recomputed for a smaller arena, which costs at most half a percent of the time.
    let share = high["recompute_flops_fraction"].as_f64().unwrap();
    assert!(share < 0.01, "{share}");
    let driver = |part: &str| high["device"]["driver"][part].as_u64().unwrap();
    // The inputs of the next step wait beside the arena.
    assert!(device(&high, "ahead_bytes") > 0, "{high}");
    let beside = driver("context") + driver("recordings") + device(&high, "ahead_bytes");
    assert_eq!(device(&high, "total_bytes"), number(&high, "arena_bytes") + beside);
    assert!(device(&high, "minimum_vram_bytes") < device(&high, "total_bytes"));
    // The arena is no part of this process's limit; what is copied through, and the driver, are.
    let parts = number(&high, "total_bytes") - number(&high, "cache_bytes");
    assert_eq!(parts, number(&high, "minimum_ram_bytes"));
    assert!(parts > device(&high, "staging_bytes") + high["device"]["driver"]["host"].as_u64().unwrap());
    // Between the least and what holding everything of a step takes.
    let whole = device(&high, "total_bytes") - device(&high, "ahead_bytes");
    let limit = (device(&high, "minimum_vram_bytes") + whole) / 2;
    let low = run_json(&args(limit.to_string().leak()));
    assert!(low["recompute_flops_fraction"].as_f64().unwrap() > 0.0, "{low}");
    assert!(device(&low, "total_bytes") <= limit);
    let below: &str = (device(&high, "minimum_vram_bytes") - 4096).to_string().leak();
    let refused = run_error(&args(below));
    assert!(refused.contains("of the memory of CUDA, sm_80") && refused.contains("--vram"), "{refused}");
    // What is allowed to change is changed for the device's limit as for the other.
    let conceded = run_json(&[&args(below)[..], &["--allow", "patch"]].concat());
    assert!(conceded["changes"][0].as_str().unwrap().starts_with("patch"), "{conceded}");
    // A run in tf32 that is brought to bf16 is the run that is asked for with bf16, in what it multiplies as well.
    let tf32 = |vram: &'static str, more: &[&str]| {
        run_json(&[&args(vram)[..], &["--precision", "tf32"], more].concat())
    };
    let in_tf32 = tf32("12GiB", &[]);
    let below: &str = (device(&in_tf32, "minimum_vram_bytes") - 4096).to_string().leak();
    let in_bf16 = run_json(&[&args(below)[..], &["--precision", "bf16"]].concat());
    let brought = tf32(below, &["--allow", "precision"]);
    assert_eq!(brought["changes"], serde_json::json!(["precision tf32 → bf16"]), "{brought}");
    for key in ["precision", "products", "total_bytes", "predicted_seconds_per_step"] {
        assert_eq!(brought[key], in_bf16[key], "{key}");
    }
    assert_eq!((&in_bf16["products"], &in_tf32["products"]), (&"f32".into(), &"tf32".into()));
    let curve = run_json(&[&args("12GiB")[..], &["--pareto"]].concat());
    let curve = curve.as_array().unwrap();
    assert!(curve.len() > 1 && number(&curve[0], "vram_bytes") > number(&curve[1], "vram_bytes"));
    let of_host = ["plan", data, "--ram", "64MiB", "--device", "sm_80", "--vram", "12GiB"];
    let refused = run_error(&[&of_host[..], &NET].concat());
    assert!(refused.contains("the limit is 64.0 MiB") && refused.contains("driver"), "{refused}");
    let transformer =
        ["plan", data, "--ram", "1GiB", "--device", "sm_80", "--vram", "12GiB", "--net", "swinunetr"];
    let small = ["--patch-size", "64,64,64", "--feature-size", "12", "--config", "/dev/null"];
    let transformer = run_json(&[&transformer[..], &small].concat());
    assert_eq!(transformer["feasible"], true, "{transformer}");
}

#[test]
fn a_device_that_cannot_be_had_is_one_error_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let refused = |args: &[&str]| run_error(&[&["plan", data, "--ram", "1GiB"][..], &NET, args].concat());
    for (args, said, hint) in [
        (&["--device", "abacus"][..], "abacus", "cuda:0"),
        (&["--device", "sm_61"], "sm_61 is too old", "sm_70"),
        (&["--device", "sm_80"], "amount of memory", "--vram 12GiB"),
        (&["--vram", "12GiB"], "--vram has no effect", "--device cuda:0"),
        (&["--device", "sm_80", "--vram", "12"], "did you mean 12GiB", ""),
        (&["--device", "sm_80", "--vram", "64MiB"], "its limit is 64.0 MiB", "--vram"),
    ] {
        let error = refused(args);
        assert!(error.contains(said) && error.contains(hint), "{args:?}: {error}");
    }
    let run = dir.path().join("run");
    let train = ["train", data, "--out", run.to_str().unwrap(), "--device", "sm_80", "--vram", "12GiB"];
    let error = run_error(&train);
    assert!(error.contains("sm_80 is an architecture, not a device"), "{error}");
    assert!(!run.exists());
    // On machines without a GPU: there is no driver, or it finds no card.
    let no_card = run_json(&["doctor"])["gpu"].is_null();
    if no_card {
        let error = refused(&["--device", "cuda"]);
        assert!(error.contains("NVIDIA driver") || error.contains("there is no GPU 0"), "{error}");
    }
}

#[test]
fn steps_can_be_predicted_for_a_card_that_is_not_there() {
    let of = |device: &str, more: &[&str]| {
        let net = ["--net", "dynunet", "--features", "8,16,32", "--size", "32", "--predict"];
        run_json(&[&["bench", "step", "--device", device][..], &net, more].concat())
    };
    let found = of("sm_90", &[]);
    let seconds = |plan: &Value| plan["predicted_seconds"].as_f64().unwrap();
    let kinds: f64 =
        found["kinds"].as_array().unwrap().iter().map(|kind| kind["seconds"].as_f64().unwrap()).sum();
    assert!((kinds / seconds(&found) - 1.0).abs() < 1e-9, "{found}");
    assert!(
        found["kinds"].as_array().unwrap().iter().any(|kind| kind["op"] == "conv_weight_grad"),
        "{found}"
    );
    assert!(number(&found, "vram_bytes") > number(&found, "arena_bytes"));
    assert!(seconds(&of("sm_70", &[])) > seconds(&found), "an older card is slower");
    let arena = number(&found, "arena_bytes") * 4 / 5;
    let lower = of("sm_90", &["--arena", &arena.to_string()]);
    assert!(number(&lower, "arena_bytes") <= arena && seconds(&lower) > seconds(&found), "{lower}");
    let too_low = ["bench", "step", "--device", "sm_90", "--vram", "514MiB", "--size", "32", "--predict"];
    let refused = run_error(&too_low);
    assert!(refused.contains("its limit is 514.0 MiB") && refused.contains("hint: --vram"), "{refused}");
    assert!(seconds(&of("sm_90", &["--forward"])) < seconds(&found) / 2.0);
}
