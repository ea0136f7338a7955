//! Steps whose numbers go wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plimsoll_nn::weights::{SafetensorsFile, safetensors};

use super::{Running, expect_finite};
use crate::support::{Ended, Tiny, expect_same, progress, warnings};

/// All checkpoints of a fold.
fn checkpoints(fold: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(fold).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors")).collect()
}

/// The first step makes weights so large that no step after it has numbers.
const DIVERGES: [&str; 2] = ["--learning-rate", "1e10"];

#[test]
fn numbers_that_go_wrong_end_a_run_with_cases_and_places_and_no_checkpoint_has_such_numbers() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let error = Ended::run(&mut tiny.train(&run, &DIVERGES)).error(1);
    assert!(error.contains(": the loss is ") && error.contains("the gradient norm "), "{error}");
    assert!(error.contains("; patches: vessel_00") && error.contains(" around voxel "), "{error}");
    assert!(error.contains("hint: the weights are from before this step; inspect these cases"), "{error}");
    let found = checkpoints(&run.join("fold_0"));
    assert!(!found.is_empty());
    found.iter().for_each(|path| expect_finite(path));
    let latest = progress(&run.join("fold_0/checkpoint_latest.safetensors"));
    let done = latest["steps"].as_u64().unwrap();
    assert!(done > 0 && error.contains(&format!("error: step {}: ", done + 1)), "{done}: {error}");
    let again = Ended::run(&mut tiny.train(&run, &[&DIVERGES[..], &["--resume"]].concat())).error(1);
    assert_eq!(again, error, "it goes on to the same numbers");
}

#[test]
fn weights_that_are_no_numbers_begin_no_run() {
    let tiny = Tiny::new();
    let (run, weights) = (tiny.path("run"), tiny.path("weights.safetensors"));
    tiny.trained(&run, &[]);
    let mut from = SafetensorsFile::open(&run.join("fold_0/checkpoint_final.safetensors")).unwrap();
    let tensors: Vec<_> = from
        .tensors()
        .map(|(name, shape)| (name.to_string(), shape))
        .filter(|(name, _)| !name.contains('/'))
        .collect();
    let largest = tensors.iter().map(|(_, shape)| shape.count()).max().unwrap();
    let mut to = fs::File::create(&weights).unwrap();
    let fill = |tensor: usize, values: &mut [f32]| {
        let (name, shape) = &tensors[tensor];
        from.read(name, shape, values).unwrap();
        if tensor == 0 {
            values[0] = f32::NAN;
        }
        Ok(())
    };
    safetensors::write(&mut to, &tensors, &BTreeMap::new(), &mut vec![0.0; largest], fill).unwrap();
    let next = tiny.path("next");
    let error = Ended::run(&mut tiny.train(&next, &["--start", weights.to_str().unwrap()])).error(1);
    assert!(error.contains("weights.safetensors") && error.contains(&tensors[0].0), "{error}");
    assert!(!next.exists(), "nothing is left");
}

fn config(tiny: &Tiny, name: &str, text: &str) -> String {
    let path = tiny.path(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

/// A weight of the loss with which the squares of some steps' gradients sum up to more than the largest f32, and the squares of others do
/// not: of the steps of a run with weight 1, which changes nothing, a quarter has larger gradients.
fn weight_at_the_edge(tiny: &Tiny) -> f64 {
    let config = config(tiny, "one.toml", &cross_entropy(1.0));
    let run = tiny.path("one");
    tiny.trained(&run, &["--config", &config, "--epochs", "1", "--iterations", "40", "--log-steps"]);
    let steps = fs::read_to_string(run.join("fold_0/steps.jsonl")).unwrap();
    let norm =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["grad_norm"].as_f64().unwrap();
    let mut norms: Vec<f64> = steps.lines().map(norm).collect();
    norms.sort_by(f64::total_cmp);
    f64::from(f32::MAX).sqrt() / norms[30]
}

fn cross_entropy(weight: f64) -> String {
    let component = format!("{{ name = 'cross_entropy', weight = {weight:e} }}");
    format!("learning_rate = 1e-30\n[loss]\ncomponents = [{component}]\n")
}

#[test]
fn steps_that_are_left_out_are_counted_and_a_killed_run_leaves_out_the_same() {
    let tiny = Tiny::new();
    let config = config(&tiny, "skip.toml", "bad_numbers = { name = 'skip', limit = 100 }\n");
    // A network that has diverged predicts nothing that is finite.
    let settings = ["--config", &config, "--epochs", "30", DIVERGES[0], DIVERGES[1], "--skip-validation"];
    let (whole, run) = (tiny.path("whole"), tiny.path("run"));
    tiny.trained(&whole, &settings);
    let last = progress(&whole.join("fold_0/checkpoint_final.safetensors"));
    assert_eq!(last["steps"], 60);
    let skipped = last["skipped"][0].as_u64().unwrap();
    assert!((40..60).contains(&skipped), "all but the first ones: {last}");
    assert_eq!(warnings(&whole.join("fold_0")).len() as u64, skipped);
    assert!(warnings(&whole.join("fold_0"))[0].ends_with("; the step is skipped"));
    let metrics = fs::read_to_string(whole.join("fold_0/metrics.jsonl")).unwrap();
    assert!(metrics.lines().last().unwrap().contains(&format!("\"skipped_steps\":{skipped}")), "{metrics}");
    checkpoints(&whole.join("fold_0")).iter().for_each(|path| expect_finite(path));
    let journal = run.join("fold_0/metrics.jsonl");
    let epochs = || fs::read_to_string(&journal).unwrap_or_default().lines().count();
    let killed = Running::start(&mut tiny.train(&run, &settings)).until(|| epochs() > 3).signal("KILL").end();
    assert_eq!(killed.status, None);
    tiny.trained(&run, &[&settings[..], &["--resume"]].concat());
    expect_same(&run, &whole, "with steps that are left out");
    let few = self::config(&tiny, "few.toml", "bad_numbers = { name = 'skip', limit = 3 }\n");
    let settings = ["--config", &few, "--epochs", "30", DIVERGES[0], DIVERGES[1]];
    let error = Ended::run(&mut tiny.train(&tiny.path("few"), &settings)).error(1);
    assert!(error.contains(&format!("error: step {}: the loss is ", 60 - skipped + 4)), "{error}");
}

#[test]
fn a_run_that_goes_back_takes_other_patches_and_a_killed_one_goes_back_to_the_same_bits() {
    let tiny = Tiny::new();
    let loss = cross_entropy(weight_at_the_edge(&tiny));
    let text = format!("bad_numbers = {{ name = 'rollback', limit = 100 }}\n{loss}");
    let config = config(&tiny, "rollback.toml", &text);
    let settings = ["--config", &config, "--epochs", "10", "--iterations", "2"];
    let (whole, run) = (tiny.path("whole"), tiny.path("run"));
    tiny.trained(&whole, &settings);
    let last = progress(&whole.join("fold_0/checkpoint_final.safetensors"));
    let rollbacks = last["rollbacks"].as_u64().unwrap();
    assert!(rollbacks > 0 && last["steps"] == 20 && last["skipped"] == serde_json::json!([0, 0]), "{last}");
    let warned = warnings(&whole.join("fold_0"));
    assert_eq!(warned.len() as u64, rollbacks);
    assert!(
        warned[0].contains("; rolled back to step ")
            && warned[0].ends_with("; training continues with other patches"),
        "{warned:?}"
    );
    let journal = run.join("fold_0/metrics.jsonl");
    let epochs = || fs::read_to_string(&journal).unwrap_or_default().lines().count();
    Running::start(&mut tiny.train(&run, &settings)).until(|| epochs() > 3).signal("KILL").end();
    tiny.trained(&run, &[&settings[..], &["--resume"]].concat());
    expect_same(&run, &whole, "after going back");
    let none = format!("bad_numbers = {{ name = 'rollback', limit = 0 }}\n{loss}");
    let none = self::config(&tiny, "none.toml", &none);
    let settings = ["--config", &none, "--epochs", "10", "--iterations", "2"];
    let error = Ended::run(&mut tiny.train(&tiny.path("none"), &settings)).error(1);
    assert!(error.contains("the gradient norm inf"), "{error}");
}
