//! Classifying images, from folders and tables to scores.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_image::phantom::{self, PhantomImages};
use support::{dataset, plimsoll, run_error, run_json};

/// Three of the five grades, and settings of a run of seconds.
fn images(folder: &Path) -> (PathBuf, PathBuf) {
    let data = folder.join("images");
    phantom::write(&data, &PhantomImages { images: [6, 3, 2], side: 40, seed: 2 }).unwrap();
    for split in ["train", "val", "test"] {
        for grade in &phantom::GRADES[3..] {
            fs::remove_dir_all(data.join(split).join(grade)).unwrap();
        }
    }
    let settings = folder.join("settings.toml");
    let text =
        "batch_size = 4\nepochs = 2\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, text).unwrap();
    (data, settings)
}

fn train<'a>(data: &'a str, settings: &'a str, out: &'a str) -> Vec<&'a str> {
    vec!["train", data, "--config", settings, "--out", out, "--ram", "512MiB", "--threads", "1"]
}

#[test]
fn images_are_trained_on_predicted_and_scored_and_a_stopped_run_comes_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (whole, parts) = (place("whole"), place("parts"));
    let record = run_json(&train(data, settings, &whole));
    assert_eq!(record["steps"], 8, "18 images in batches of 4, twice");
    assert!(record["peak_rss_bytes"].as_u64() <= record["ram_budget_bytes"].as_u64());
    // The same run in two parts: one epoch, then one more.
    run_json(&[&train(data, settings, &parts)[..], &["--epochs", "1"]].concat());
    run_json(&[&train(data, settings, &parts)[..], &["--epochs", "2", "--resume"]].concat());
    let metrics = |run: &str| fs::read_to_string(Path::new(run).join("fold_0/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics(&whole).lines().last().unwrap()).unwrap();
    assert!(last["classification"]["accuracy"].is_number(), "{last}");
    assert_eq!(metrics(&parts).lines().count(), 2);
    let scores = place("predictions.csv");
    let test = format!("{data}/test");
    let classified =
        run_json(&["predict", &whole, "-i", &test, "-o", &scores, "--ram", "512MiB", "--mirror"]);
    assert_eq!(classified["images"], 6);
    assert!(classified["peak_rss_bytes"].as_u64() <= classified["planned_bytes"].as_u64(), "{classified}");
    let table = fs::read_to_string(&scores).unwrap();
    assert!(table.starts_with("case,label,0_none,1_mild,2_moderate,predicted\n"), "{table}");
    assert_eq!(run_json(&["evaluate", "--classification", &scores])["cases"], 6);
    // Twice the same bytes, and nothing is replaced unasked.
    let again = place("again.csv");
    run_json(&["predict", &whole, "-i", &test, "-o", &again, "--ram", "512MiB", "--mirror"]);
    assert_eq!(fs::read(&again).unwrap(), table.as_bytes());
    let error = run_error(&["predict", &whole, "-i", &test, "-o", &again]);
    assert!(error.contains("is there already") && error.contains("--overwrite"), "{error}");
}

#[test]
fn pairs_of_classes_are_trained_go_on_and_vote() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let run = dir.path().join("pairs");
    let run_path = run.to_str().unwrap();
    let args = [&train(data, settings, run_path)[..], &["--one-vs-one", "--epochs", "1"]].concat();
    let trained = run_json(&args);
    let planned: Vec<&serde_json::Value> =
        trained.as_array().unwrap().iter().map(|pair| &pair["folds"][0]["planned_bytes"]).collect();
    assert_eq!(planned.len(), 3);
    assert!(planned.iter().all(|bytes| *bytes == planned[0]), "each pair holds the same: {planned:?}");
    // One pair is lost: it is trained again, and the others are not.
    let bits = |pair: &str| fs::read(run.join(pair).join("fold_0/checkpoint_final.safetensors")).unwrap();
    let (kept, lost) = (bits("pair_0_1"), bits("pair_1_2"));
    fs::remove_dir_all(run.join("pair_1_2")).unwrap();
    let test = format!("{data}/test");
    let out = dir.path().join("predictions.csv");
    let out = out.to_str().unwrap();
    let error = run_error(&["predict", run_path, "-i", &test, "-o", out]);
    assert!(error.contains("2 of 3 pairs"), "{error}");
    run_json(&[&args[..], &["--resume"]].concat());
    assert_eq!((bits("pair_0_1"), bits("pair_1_2")), (kept, lost));
    for votes in ["sum", "majority", "coupling", "weighted"] {
        let args =
            ["predict", run_path, "-i", &test, "-o", out, "--overwrite", "--votes", votes, "--ram", "512MiB"];
        assert_eq!(run_json(&args)["classifiers"], 3, "{votes}");
        assert_eq!(run_json(&["evaluate", "--classification", out])["cases"], 6, "{votes}");
    }
}

#[test]
fn a_table_of_images_and_what_does_not_fit_them() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let table = dir.path().join("labels.csv");
    let mut text = "image,label\n".to_string();
    for (label, grade) in phantom::GRADES[..3].iter().enumerate() {
        for number in 0..6 {
            text += &format!("images/train/{grade}/{number:03}.png,{label}\n");
        }
    }
    fs::write(&table, &text).unwrap();
    let (table_path, settings_path) = (table.to_str().unwrap(), settings.to_str().unwrap());
    let report = run_json(&["inspect", table_path, "--config", settings_path]);
    assert_eq!((&report["cases"], &report["classes"][2][1]), (&18.into(), &6.into()));
    let plan = run_json(&["plan", table_path, "--config", settings_path, "--ram", "1GiB"]);
    assert!(plan["parameters"].as_u64() > Some(100_000), "{plan}");
    let out = dir.path().join("never");
    let out = out.to_str().unwrap();
    // The same image twice, with two labels.
    fs::copy(data.join("train/0_none/000.png"), data.join("train/1_mild/000.png")).unwrap();
    let error = run_error(&train(table_path, settings_path, out));
    assert!(error.contains("the same pixels, but the labels 0 and 1"), "{error}");
    fs::remove_file(data.join("train/1_mild/000.png")).unwrap();
    let error = run_error(&train(table_path, settings_path, out));
    assert!(error.contains("1_mild/000.png"), "{error}");
    let data = data.to_str().unwrap();
    let volumes = dataset(dir.path());
    let refused = |data: &str, toml: &str, more: &[&str]| {
        fs::write(&settings, toml).unwrap();
        run_error(&[&train(data, settings_path, out)[..], more].concat())
    };
    let network = "[network]\nfeatures = [128, 128, 128, 128]\n";
    for (toml, says) in [
        ("patch_size = [1, 32, 32]\n".to_string() + network, "`patch_size`"),
        (format!("{network}[images.augmentation]\nmixup = 0.2\n"), "mixup"),
        (format!("{network}[images]\nclasses = [\"0_none\", \"9_all\"]\n"), "9_all"),
        (format!("{network}[early_stopping]\npatience = 2\n"), "`early_stopping.score`"),
        ("[network]\nnet = \"plain\"\n".into(), "`net` is plain"),
    ] {
        let error = refused(data, &toml, &[]);
        assert!(error.contains(says), "{toml}: {error}");
    }
    let volumes = volumes.to_str().unwrap();
    assert!(refused(volumes, "", &["--one-vs-one"]).contains("--one-vs-one"));
    assert!(refused(volumes, "[images]\nsize = [32, 32]\n", &[]).contains("`images`"));
    assert!(refused(volumes, "", &["--net", "seresnext50"]).contains("`net` is seresnext50"));
    assert!(!Path::new(out).exists(), "nothing is left of what was refused");
    let help = plimsoll().args(["train", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("--one-vs-one"));
}
