//! Classifying images by the votes of classifiers of two classes each.

use std::fs;
use std::path::Path;

use super::{images, train};
use crate::support::{dataset, plimsoll, run_error, run_json};

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
        let scores = run_json(&["evaluate", "--classification", out, "--overwrite"]);
        assert_eq!(scores["cases"], 6, "{votes}");
    }
    let without = fs::read_to_string(out).unwrap();
    let args = ["predict", run_path, "-i", &test, "-o", out, "--overwrite", "--votes", "weighted"];
    run_json(&[&args[..], &["--ram", "512MiB", "--pair-columns"]].concat());
    let with = fs::read_to_string(out).unwrap();
    assert!(with.starts_with(
        "case,label,0_none,1_mild,2_moderate,predicted,1_mild vs 0_none,2_moderate vs 0_none,2_moderate vs 1_mild\n"
    ));
    for (with, without) in with.lines().zip(without.lines()) {
        let said = with.strip_prefix(without).unwrap();
        assert_eq!(said.split(',').count(), 4, "{with}");
        assert!(said.starts_with(',') && said.contains("vs") != said.contains("0."), "{with}");
    }
    assert_eq!(run_json(&["evaluate", "--classification", out, "--overwrite"])["cases"], 6);
    let page = dir.path().join("page.html");
    run_json(&["report", run_path, "-o", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    for part in ["0_none and 1_mild", "0_none and 2_moderate", "1_mild and 2_moderate", "3 of 3"] {
        assert!(page.contains(part), "{part}");
    }
    for flag in [["--overlap", "0.5"], ["--mistakes", "3"]] {
        let error = run_error(&[&args[..], &flag].concat());
        assert!(error.contains(&format!("{} has no effect", flag[0])), "{error}");
    }
    // A run of all classes beside the pairs would be used in their place.
    for resume in [&[][..], &["--resume"]] {
        let error = run_error(&[&train(data, settings, run_path)[..], &["--epochs", "1"], resume].concat());
        assert!(error.contains("holds classifiers of pairs of classes (one-vs-one)"), "{error}");
        assert!(error.contains("hint: add --one-vs-one --resume"), "{error}");
        let pair = run.join("pair_0_1");
        let error = run_error(
            &[&train(data, settings, pair.to_str().unwrap())[..], &["--fold", "1"], resume].concat(),
        );
        assert!(error.contains("holds classifiers of pairs of classes"), "{error}");
    }
    assert!(!run.join("fold_0").exists());
    // Where both are there, neither is chosen silently.
    fs::create_dir(run.join("fold_0")).unwrap();
    fs::copy(run.join("pair_0_1/fold_0/specification.json"), run.join("fold_0/specification.json")).unwrap();
    let error = run_error(&["predict", run_path, "-i", &test, "-o", out, "--overwrite"]);
    assert!(
        error.contains("classifies images and classifiers of pairs") && error.contains("is ambiguous"),
        "{error}"
    );
    fs::remove_dir_all(run.join("fold_0")).unwrap();
    // Votes that are weighted by accuracies need them; others do not.
    fs::remove_file(run.join("pair_0_2/fold_0/metrics.jsonl")).unwrap();
    let error = run_error(&args);
    assert!(error.contains("pair_0_2") && error.contains("no epoch with an accuracy"), "{error}");
    run_json(&[&args[..args.len() - 1], &["coupling", "--ram", "512MiB"]].concat());
}

#[test]
fn pairs_of_some_classes_go_on_as_pairs_of_these() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, plain) = (data.to_str().unwrap(), fs::read_to_string(&settings).unwrap());
    let with = |name: &str, classes: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("{plain}classes = {classes}\n")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let two = with("two.toml", "[\"2_moderate\", \"0_none\"]");
    let run = dir.path().join("pairs");
    let run_path = run.to_str().unwrap();
    let of = |config: &str| {
        let all = [&train(data, config, run_path)[..], &["--one-vs-one", "--epochs", "1"]].concat();
        all.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let resumed = |config: &str| [of(config), vec!["--resume".into()]].concat();
    fn strs(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }
    run_json(&strs(&of(&two)));
    assert_eq!(fs::read_to_string(run.join("classes.json")).unwrap().matches('_').count(), 2);
    // Settings that do not name the classes leave them as they were.
    let trained = run_json(&strs(&resumed(settings.to_str().unwrap())));
    assert_eq!(trained.as_array().unwrap().len(), 1);
    assert!(!run.join("pair_0_1").exists() && run.join("pair_0_2").exists());
    let other = with("other.toml", "[\"0_none\", \"1_mild\"]");
    let error = run_error(&strs(&resumed(&other)));
    assert!(error.contains("of 0_none, 2_moderate, not of 0_none, 1_mild"), "{error}");
    let unknown = with("unknown.toml", "[\"0_none\", \"9_none\"]");
    let args = [&train(data, &unknown, "/nowhere")[..], &["--one-vs-one"]].concat();
    let error = run_error(&args);
    assert!(error.contains("the data set has no class 9_none"), "{error}");
    fs::write(run.join("classes.json"), "{").unwrap();
    let error = run_error(&strs(&resumed(settings.to_str().unwrap())));
    assert!(error.contains("classes.json is not a list of classes"), "{error}");
}

#[test]
fn pairs_begin_from_the_weights_of_another_run_and_say_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (first, pairs) = (place("first"), place("pairs"));
    run_json(&[&train(data, settings, &first)[..], &["--epochs", "1"]].concat());
    let weights = format!("{first}/fold_0/checkpoint_final.safetensors");
    let args = [&train(data, settings, &pairs)[..], &["--one-vs-one", "--epochs", "1"]].concat();
    let error = run_error(&[&args[..], &["--start", &weights]].concat());
    assert!(error.contains("`fc.weight` has shape [3×128]"), "three classes are not two: {error}");
    let from = [&args[..], &["--start", &weights, "--new-head"]].concat();
    // What is said is what runs: a specification for each pair, of two classes.
    let described = run_json(&[&from[..], &["--print-settings"]].concat());
    let described = described.as_array().unwrap();
    assert_eq!(described.len(), 3);
    assert_eq!(described[1]["pair"], serde_json::json!([0, 2]));
    assert_eq!(
        described[1]["specification"]["config"]["task"]["classification"]["labels"],
        described[1]["pair"]
    );
    assert!(!Path::new(&pairs).exists(), "nothing is trained");
    run_json(&from);
    let initial = |pair: &str| {
        let text = fs::read(Path::new(&pairs).join(pair).join("fold_0/specification.json")).unwrap();
        let specification: serde_json::Value = serde_json::from_slice(&text).unwrap();
        specification["initial"].clone()
    };
    assert_eq!(initial("pair_0_1")["path"], weights.as_str());
    assert_eq!(initial("pair_0_1"), described[0]["specification"]["initial"]);
    // A pair that is begun later begins as the others did, without being told so again.
    fs::remove_dir_all(Path::new(&pairs).join("pair_1_2")).unwrap();
    run_json(
        &[
            &["train", data, "--out", &pairs, "--config", "/dev/null"][..],
            &["--ram", "512MiB", "--threads", "1", "--one-vs-one", "--resume"],
        ]
        .concat(),
    );
    assert_eq!(initial("pair_1_2"), initial("pair_0_1"));
}

#[test]
fn pairs_are_planned_as_they_are_trained() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let command = ["plan", data, "--config", settings, "--ram", "512MiB", "--threads", "1", "--epochs", "1"];
    let command = [&command[..], &["--one-vs-one"]].concat();
    let planned = run_json(&command);
    let out = dir.path().join("out");
    let trained = [&train(data, settings, out.to_str().unwrap())[..], &["--one-vs-one", "--epochs", "1"]];
    let trained = run_json(&[&trained.concat()[..], &["--skip-validation"]].concat());
    let (pairs, trained) = (planned["pairs"].as_array().unwrap(), trained.as_array().unwrap());
    assert_eq!((pairs.len(), trained.len()), (3, 3));
    let (mut steps, mut seconds) = (0, 0.0);
    for (planned, trained) in pairs.iter().zip(trained) {
        let (plan, record) = (&planned["plan"], &trained["folds"][0]);
        assert_eq!(planned["pair"], trained["pair"]);
        assert_eq!(plan["steps"], record["steps"]);
        assert_eq!(plan["arena_bytes"], record["arena_bytes"]);
        assert_eq!(plan["total_bytes"], record["planned_bytes"]);
        steps += plan["steps"].as_u64().unwrap();
        seconds += plan["predicted_seconds"].as_f64().unwrap();
    }
    assert_eq!(planned["steps"], steps);
    assert!((planned["predicted_seconds"].as_f64().unwrap() - seconds).abs() < 1e-9);
    assert_eq!(planned["planned_bytes"], pairs[0]["plan"]["total_bytes"], "all pairs are of one size");
    let printed = plimsoll().args(&command).output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    for row in ["0_none and 1_mild", "0_none and 2_moderate", "1_mild and 2_moderate", "all, one after"] {
        assert_eq!(printed.lines().filter(|line| line.trim_start().starts_with(row)).count(), 1, "{printed}");
    }
    // A limit below the least is refused with it.
    let low = command.iter().map(|arg| if *arg == "512MiB" { "24MiB" } else { arg }).collect::<Vec<_>>();
    let error = String::from_utf8_lossy(&plimsoll().args(low).output().unwrap().stderr).into_owned();
    assert!(error.contains("error: ") && error.contains("hint: "), "{error}");
    // Label maps have no pairs of classes.
    let volumes = dataset(dir.path());
    let of_volumes = ["plan", volumes.to_str().unwrap(), "--config", "/dev/null", "--one-vs-one"];
    let error = run_error(&of_volumes);
    assert!(error.contains("has a label for each voxel"), "{error}");
    assert!(plimsoll().args(&of_volumes[..4]).args(["--ram", "2GiB"]).output().unwrap().status.success());
}
