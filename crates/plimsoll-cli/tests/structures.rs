//! Losses that see shapes, on schedules, from the configuration to the checkpoint.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{dataset, expect_same, plimsoll, run_error, run_json, small_run};

/// Sums on every step, distances on some: steps differ in what they compute, before and after epoch 1 as well.
const SCHEDULED: &str = r#"
[loss]
components = [
  { name = "weighted_bce", weight = 0.35, pos_weight = 2.8 },
  { name = "soft_dice", weight = 0.5, include_background = false },
  { name = "surface_distance", weight = 0.07, tolerance_mm = 2.0, every = 2, phase = 1, otherwise = "boundary_l1" },
  { name = "boundary", weight = 0.01, from_epoch = 1, scale = 2 },
  { name = "hausdorff_dt", weight = 0.001, mode = "validation", unit = "voxels" },
]
"#;

const SUMS: &str = r#"
[loss]
components = [{ name = "weighted_bce", weight = 0.35, pos_weight = 2.8 }, { name = "soft_dice", weight = 0.5 }]
"#;

/// The parts of the loss that each epoch of a run tells, with their values.
fn parts(run: &Path, of: &str) -> Vec<Vec<(String, f64)>> {
    let text = fs::read_to_string(run.join("fold_all/metrics.jsonl")).unwrap();
    let parts = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = |part: &serde_json::Value| {
            (part["name"].as_str().unwrap().to_string(), part["value"].as_f64().unwrap())
        };
        line[of].as_array().unwrap().iter().map(part).collect()
    };
    text.lines().map(parts).collect()
}

#[test]
fn a_killed_run_with_scheduled_losses_goes_on_to_the_same_bits_within_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let config = dir.path().join("plimsoll.toml");
    fs::write(&config, SCHEDULED).unwrap();
    let (data, config) = (data.to_str().unwrap(), config.to_str().unwrap());
    for micro_batch in ["2", "1"] {
        let path = |name: &str| dir.path().join(format!("{name} {micro_batch}"));
        let args = |run: &str, threads: &'static str| -> Vec<String> {
            let mut args: Vec<String> = small_run(data, run).into_iter().map(String::from).collect();
            let place = args.iter().position(|arg| arg == "/dev/null").unwrap();
            args[place] = config.to_string();
            args.extend(["--micro-batch", micro_batch, "--threads", threads].map(String::from));
            args
        };
        let whole = path("whole");
        let whole_args = args(whole.to_str().unwrap(), "2");
        let record = run_json(&whole_args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((&record["steps"], &record["finished"]), (&24.into(), &true.into()));
        assert_eq!(record["heap_allocations_in_steps"], 0);
        assert_eq!(record["arena_used_bytes"], record["arena_bytes"]);
        assert!(record["peak_rss_bytes"].as_u64() <= record["planned_bytes"].as_u64(), "{record}");
        let killed = path("killed");
        let killed_args = args(killed.to_str().unwrap(), "1");
        let mut child =
            plimsoll().args(&killed_args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let journal = killed.join("fold_all/metrics.jsonl");
        let deadline = Instant::now() + Duration::from_secs(300);
        while fs::read_to_string(&journal).unwrap_or_default().lines().count() < 1 {
            assert!(Instant::now() < deadline, "no epoch was finished");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut resumed: Vec<&str> = killed_args.iter().map(String::as_str).collect();
        resumed.push("--resume");
        assert_eq!(run_json(&resumed)["finished"], true);
        expect_same(&killed, &whole, &format!("{micro_batch} at a time"));
        let training = parts(&whole, "train_loss_parts");
        assert_eq!(training, parts(&killed, "train_loss_parts"));
        let names = |epoch: &[(String, f64)]| epoch.iter().map(|part| part.0.clone()).collect::<Vec<_>>();
        let early = ["weighted_bce", "soft_dice", "surface_distance", "boundary_l1 for surface_distance"];
        assert_eq!(names(&training[0]), early);
        assert_eq!(names(&training[1]), [&early[..], &["boundary"]].concat());
        let validation = parts(&whole, "validation_loss_parts");
        assert_eq!(validation, parts(&killed, "validation_loss_parts"));
        assert_eq!(names(&validation[0]), [&early[..3], &["boundary", "hausdorff_dt"]].concat());
        // Bounded distances of at most 1, times probabilities.
        assert!(training.iter().flatten().all(|part| part.1.is_finite()), "{training:?}");
        assert!((0.0..=1.0).contains(&training[0][2].1) && training[0][2].1 > 0.0, "{training:?}");
    }
}

#[test]
fn maps_and_the_largest_program_are_in_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let plan = |loss: &str| {
        let config = dir.path().join("plimsoll.toml");
        fs::write(&config, loss).unwrap();
        let mut args = vec!["plan", data.to_str().unwrap(), "--ram", "512MiB", "--net", "dynunet"];
        args.extend(["--features", "8,16,24", "--patch-size", "16,16,16", "--threads", "2"]);
        args.extend(["--epochs", "3", "--config", config.to_str().unwrap()]);
        run_json(&args)
    };
    let (sums, scheduled) = (plan(SUMS), plan(SCHEDULED));
    let bytes = |plan: &serde_json::Value, key: &str| plan[key].as_u64().unwrap();
    let map = |extent: u64| 2 * extent.pow(3) * 4;
    // Training has the surface's map of each of two heads, and the boundary's at half their extents, the first of which is
    // the second head's. Validation has one head: surface, boundary, and the Hausdorff distance's in voxels.
    let pages = |bytes: u64| bytes.next_multiple_of(4096);
    let training = pages(map(16)) + pages(map(8)) + pages(map(4));
    let validation = 2 * pages(map(16)) + pages(map(8));
    let more = bytes(&scheduled, "loader_bytes") - bytes(&sums, "loader_bytes");
    assert!(more >= 2 * training + validation, "{more} bytes more");
    assert!(more < 8 * (training + validation), "{more} bytes more");
    assert!(bytes(&scheduled, "arena_bytes") >= bytes(&sums, "arena_bytes"));
    assert!(bytes(&scheduled, "arena_bytes") < 3 * bytes(&sums, "arena_bytes"), "one arena for all");
    let seconds = |plan: &serde_json::Value| plan["predicted_seconds_per_step"].as_f64().unwrap();
    assert!(seconds(&scheduled) > seconds(&sums));
}

#[test]
fn options_that_cannot_be_are_refused_with_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let config = dir.path().join("plimsoll.toml");
    let error = |component: &str, epochs: &str| {
        let dice = "{ name = \"soft_dice\" }";
        fs::write(&config, format!("loss = {{ components = [{dice}, {{ {component} }}] }}\n")).unwrap();
        let config = config.to_str().unwrap();
        run_error(&["plan", data.to_str().unwrap(), "--config", config, "--epochs", epochs])
    };
    let said = error("name = \"surface_distance\", tolerance_mm = -1.0", "3");
    assert!(said.contains("tolerance_mm of surface_distance is -1, but it must be"), "{said}");
    let said = error("name = \"surface_distance\", every = 2, phase = 5", "3");
    assert!(said.contains("phase of surface_distance is 5"), "{said}");
    let said = error("name = \"boundary\", from_epoch = 3", "3");
    assert!(said.contains("from_epoch of boundary is 3, but the run has 3 epochs"), "{said}");
    let said = error("name = \"boundary\", form = \"symmetric\"", "3");
    assert!(said.contains("unknown field `form`"), "{said}");
}
