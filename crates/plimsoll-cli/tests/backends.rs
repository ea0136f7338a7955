//! The same job on both backends: the definitions in f64 are a second opinion on a whole run.

use std::fs;
use std::path::Path;

use crate::support::{dataset, run_error, run_json};

/// The numbers of a key in each line of a run's journal.
fn journal(run: &Path, key: &str) -> Vec<f64> {
    let text = fs::read_to_string(run.join("fold_all/metrics.jsonl")).unwrap();
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[key].as_f64().unwrap();
    text.lines().map(number).collect()
}

#[test]
fn a_run_on_the_definitions_of_ops_comes_to_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut dice = Vec::new();
    for backend in ["cpu", "reference"] {
        let (run, predictions) = (path(&format!("{backend} run")), path(&format!("{backend} predictions")));
        let mut train = vec!["train", data.to_str().unwrap(), "--out", &run, "--device", backend];
        train.extend(["--fold", "all", "--ram", "512MiB", "--net", "dynunet", "--features", "4,6"]);
        train.extend([
            "--patch-size",
            "8,8,8",
            "--epochs",
            "2",
            "--iterations",
            "3",
            "--learning-rate",
            "1e-2",
        ]);
        train.extend(["--validation-iterations", "2", "--config", "/dev/null"]);
        let record = run_json(&train);
        assert_eq!(record["finished"], true);
        assert!(record["engine"].as_str().unwrap().to_lowercase().starts_with(backend), "{record}");
        let images = data.join("imagesTs");
        let predict =
            ["predict", &run, "-i", images.to_str().unwrap(), "-o", &predictions, "--ram", "512MiB"];
        let report = run_json(&[&predict[..], &["--overlap", "0", "--device", backend]].concat());
        assert!(report["engine"].as_str().unwrap().to_lowercase().starts_with(backend), "{report}");
        let references = data.join("labelsTs");
        let scores = run_json(&["evaluate", &predictions, references.to_str().unwrap(), "--ram", "512MiB"]);
        dice.push(scores["foreground_mean"]["Dice"].as_f64().unwrap());
    }
    for key in ["train_loss", "validation_loss"] {
        let [ours, exact] = ["cpu run", "reference run"].map(|run| journal(&dir.path().join(run), key));
        assert_eq!(ours.len(), 2);
        for (ours, exact) in ours.iter().zip(exact) {
            assert!((ours / exact - 1.0).abs() < 1e-4, "{key} is {ours}, by the definitions {exact}");
        }
    }
    assert!((dice[0] - dice[1]).abs() < 1e-2, "{dice:?}");
}

#[test]
fn a_backend_that_does_not_exist_is_refused() {
    let error = run_error(&["predict", "run", "-i", "in", "-o", "out", "--device", "abacus"]);
    assert!(error.contains("abacus"), "{error}");
}
