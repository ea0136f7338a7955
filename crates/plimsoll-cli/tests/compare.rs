//! Runs and arms of sweeps, compared by the scores of their validation cases.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Tiny, run, run_error, run_json};
use plimsoll_run::{Arm, FoldName, SweepFolder, Trials};
use serde_json::{Value, json};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs whose scores are written by hand, beside the specification of one that was trained.
struct Runs {
    tiny: Tiny,
    specification: String,
}

/// The score of a case of a class.
type Dice<'a> = &'a dyn Fn(usize, u8) -> f64;

impl Runs {
    fn new() -> Runs {
        let tiny = Tiny::new();
        tiny.trained(&tiny.path("trained"), &["--fold", "0", "--skip-validation"]);
        let specification = fs::read_to_string(tiny.path("trained/fold_0/specification.json")).unwrap();
        Runs { tiny, specification }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tiny.path(name)
    }

    /// A run of two folds, each with half of the cases.
    fn run(&self, name: &str, cases: usize, dice: Dice) -> PathBuf {
        let run = self.path(name);
        for fold in 0..2 {
            let cases: Vec<usize> = (0..cases).filter(|case| case % 2 == fold).collect();
            self.fold(&run.join(format!("fold_{fold}")), &cases, dice);
        }
        run
    }

    fn fold(&self, fold: &Path, cases: &[usize], dice: Dice) {
        fs::create_dir_all(fold.join("validation")).unwrap();
        fs::write(fold.join("specification.json"), &self.specification).unwrap();
        write_summary(&fold.join("validation"), cases, &[1], dice);
    }
}

fn write_summary(folder: &Path, cases: &[usize], classes: &[u8], dice: Dice) {
    fs::create_dir_all(folder).unwrap();
    let case = |case: &usize| {
        let scores = |class: &u8| {
            let dice = dice(*case, *class);
            let dice = if dice.is_nan() { Value::Null } else { json!(dice) };
            (class.to_string(), json!({"Dice": dice, "n_ref": 1000 + case, "n_pred": 900}))
        };
        let metrics: serde_json::Map<String, Value> = classes.iter().map(scores).collect();
        let file = folder.join(format!("case_{case:03}.nii.gz"));
        json!({"prediction_file": file, "reference_file": "labels.nii.gz", "metrics": metrics})
    };
    let summary = json!({
        "foreground_mean": {},
        "mean": {},
        "metric_per_case": cases.iter().map(case).collect::<Vec<_>>(),
        "settings": {"classes": classes, "groups": ["overlap"], "surface": "elements", "tolerance": 1.0, "lesion_overlap": 0.0},
    });
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
}

/// Numbers in [0, 1) that look drawn, by case and by what they are of.
fn noise(case: usize, of: usize) -> f64 {
    ((case * 7919 + of * 104_729 + 13) as f64 * 0.618_033_988_75).fract()
}

fn worse(case: usize, _: u8) -> f64 {
    0.6 + 0.3 * noise(case, 1)
}

fn better(case: usize, class: u8) -> f64 {
    worse(case, class) + 0.02 + 0.02 * noise(case, 2)
}

fn like_worse(case: usize, class: u8) -> f64 {
    worse(case, class) + 0.05 * (noise(case, 3) - 0.5)
}

#[test]
fn runs_are_told_apart_where_the_cases_can() {
    let runs = Runs::new();
    let [a, b, c] = [("a", &worse as Dice), ("b", &better), ("c", &like_worse)]
        .map(|(name, dice)| runs.run(name, 24, dice));
    let (csv, picture) = (runs.path("out.csv"), runs.path("out.png"));
    let files = ["--csv", text(&csv), "--picture", text(&picture), "--resamples", "1000"];
    let found = run_json(&[&["compare", text(&a), text(&b), text(&c)][..], &files].concat());
    assert_eq!(found["cases"].as_array().unwrap().len(), 24);
    let score = &found["scores"][0];
    let pairs = score["differences"].as_array().unwrap();
    let told: Vec<_> = pairs.iter().map(|pair| pair["verdict"]["outcome"].as_str().unwrap()).collect();
    assert_eq!(told, ["separated", "not_separated", "separated"]);
    let [low, high] = [0, 1].map(|bound| pairs[0]["mean_interval"][bound].as_f64().unwrap());
    assert!(-0.04 < low && low < -0.03 && -0.03 < high && high < -0.02, "{low} {high}");
    assert_eq!((&pairs[0]["class"]["name"], &pairs[0]["verdict"]["better"]), (&json!("vessel"), &json!("b")));
    assert_eq!(score["choice"]["candidate"], "b");
    assert_eq!(score["choice"]["not_separated_from"], json!([]));
    assert_eq!(score["ranking"]["order"][0]["first_share"], 1.0);

    let rows = fs::read_to_string(&csv).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    assert!(rows.len() == 4 && rows[0].starts_with("score,class,first,second,cases,"), "{rows:?}");
    assert!(rows[1].starts_with("Dice,vessel,a,b,24,0,0,0,-0.0"), "{rows:?}");
    assert!(rows.iter().all(|row| row.split(',').count() == 25), "{rows:?}");
    let decoded = image::open(&picture).unwrap().to_rgb8();
    assert_eq!(decoded.width(), 1200);
    // What is separated is drawn in blue.
    assert!(decoded.pixels().any(|pixel| pixel.0 == [31, 96, 176]));

    let said = run(&["compare", text(&a), text(&b), text(&c), "--class", "vessel"]);
    let said = String::from_utf8(said.stdout).unwrap();
    for part in [
        "b is better than a: a − b is −",
        "24 cases do not separate a and c: ",
        "cases would likely be needed",
        "by Dice: b is first: mean rank 1.",
        "--choose",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn arms_of_a_sweep_are_candidates_and_seeds_their_repeats() {
    let runs = Runs::new();
    let sweep = SweepFolder::new(runs.path("sweep"));
    fs::create_dir_all(sweep.path()).unwrap();
    let arm = |name: &str| Arm { name: name.into(), settings: Default::default() };
    let trials = Trials {
        arms: vec![arm("dice_ce"), arm("tversky")],
        seeds: vec![3, 4],
        folds: vec![FoldName::Number(0), FoldName::Number(1)],
    };
    sweep.write(&trials).unwrap();
    for (at, arm) in trials.arms.iter().enumerate() {
        for seed in &trials.seeds {
            let gain = 0.03 * at as f64 + 0.001 * *seed as f64;
            for fold in 0..2 {
                let cases: Vec<usize> = (0..16).filter(|case| case % 2 == fold).collect();
                let folder = sweep.trial(&arm.name, *seed, FoldName::Number(fold));
                runs.fold(folder.path(), &cases, &|case, class| like_worse(case, class) + gain);
            }
        }
    }
    let found = run_json(&["compare", text(sweep.path()), "--resamples", "200"]);
    assert_eq!(found["candidates"][1]["repeats"], json!(["tversky/seed_3", "tversky/seed_4"]));
    let score = &found["scores"][0];
    let difference = &score["differences"][0];
    assert_eq!(difference["cases"], 16);
    assert!((difference["mean"].as_f64().unwrap() + 0.03).abs() < 1e-12, "{difference}");
    let sd = score["candidates"][0]["over_repeats"]["sd"].as_f64().unwrap();
    assert!((sd - 0.001 / 2f64.sqrt()).abs() < 1e-12, "{sd}");
    assert_eq!(score["choice"]["candidate"], "tversky");

    // A trial that failed is named; without it a seed has the cases of one fold, which alone are common to all.
    let failed = sweep.trial("tversky", 4, FoldName::Number(1));
    fs::remove_dir_all(failed.path()).unwrap();
    let said = run_error(&["compare", text(sweep.path())]);
    assert!(
        said.contains("tversky/seed_4/fold_1 is not validated") && said.contains("sweep --resume"),
        "{said}"
    );
    let found = run_json(&["compare", text(sweep.path()), "--common-cases", "--resamples", "200"]);
    assert_eq!(found["not_validated"], json!([failed.path()]));
    assert_eq!(
        (found["cases"].as_array().unwrap().len(), found["left_out"].as_array().unwrap().len()),
        (8, 8)
    );
}

/// The mean over several classes comes first, and p values of classes are corrected together.
#[test]
fn predictions_that_evaluate_scored_are_compared_class_by_class() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    let cases: Vec<usize> = (0..20).collect();
    let dice = |case: usize, class: u8| if case == 7 && class == 2 { f64::NAN } else { worse(case, class) };
    write_summary(&one, &cases, &[1, 2], &dice);
    let gain = |case: usize, class: u8| f64::from(class - 1) * 0.02 * (0.5 + noise(case, 5));
    write_summary(&other, &cases, &[1, 2], &|case, class| worse(case, class) + gain(case, class));
    let found = run_json(&["compare", text(&one), text(&other), "--metric", "all", "--resamples", "200"]);
    let differences = found["scores"][0]["differences"].as_array().unwrap();
    let names: Vec<_> = differences.iter().map(|found| found["class"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mean of classes", "class 1", "class 2"]);
    let told: Vec<_> =
        differences.iter().map(|found| found["verdict"]["outcome"].as_str().unwrap()).collect();
    assert_eq!(told, ["separated", "same", "separated"]);
    let p = |at: usize, which: &str| match which {
        "p" => differences[at]["test"]["p"].as_f64().unwrap(),
        _ => differences[at]["p_holm"].as_f64().unwrap(),
    };
    assert_eq!(p(0, "Holm"), p(0, "p"), "the mean is a family of its own");
    assert_eq!(p(2, "Holm"), 2.0 * p(2, "p"));
    assert_eq!(differences[2]["undefined"], json!({"first": 1, "second": 0, "both": 0}));
    let said = run(&["compare", text(&one), text(&other), "--class", "2"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("warning: Dice is undefined in 1 scores of one alone"), "{said}");
}

#[test]
fn what_cannot_be_compared_ends_in_one_error_with_a_way_out() {
    let runs = Runs::new();
    let a = runs.run("a", 8, &worse);
    let error = |more: &[&str], parts: &[&str]| {
        let said = run_error(&[&["compare", text(&a)], more].concat());
        parts.iter().for_each(|part| assert!(said.contains(part), "{part}: {said}"));
    };
    error(&[], &["1 candidate to compare, but at least two are needed", "name another run"]);
    error(&[text(&a)], &["two candidates are called", "name each candidate once"]);
    let none = runs.path("none");
    error(&[text(&none)], &["none is not a folder", "name folders of runs"]);
    error(&[text(&runs.tiny.data)], &["is not a run or a sweep, and has no summary.json"]);
    let trained = runs.path("trained");
    error(&[text(&trained)], &["trained/fold_0 is not validated", "train --resume"]);
    let fewer = runs.run("fewer", 6, &worse);
    error(
        &[text(&fewer)],
        &["2 of 8 cases are missing for some candidates: case_006 (fewer lacks it)", "--common-cases"],
    );
    let common = run_json(&["compare", text(&a), text(&fewer), "--common-cases", "--resamples", "10"]);
    assert_eq!(common["left_out"], json!(["case_006", "case_007"]));
    assert_eq!(common["scores"][0]["differences"][0]["verdict"]["outcome"], "same");

    let classes = runs.path("classes");
    write_summary(&classes, &(0..8).collect::<Vec<_>>(), &[1, 2], &worse);
    error(&[text(&classes)], &["a has scores of the classes 1, but classes of 1, 2", "same data set"]);
    let renamed = runs.run("renamed", 8, &worse);
    let file = renamed.join("fold_1/specification.json");
    fs::write(&file, runs.specification.replace("\"vessel\"", "\"airway\"")).unwrap();
    error(&[text(&renamed)], &["has the classes background, vessel", "background, airway"]);
    let others = runs.run("others", 8, &worse);
    let file = others.join("fold_0/validation/summary.json");
    let text_of = fs::read_to_string(&file).unwrap();
    fs::write(&file, text_of.replace("\"n_ref\":1004", "\"n_ref\":77")).unwrap();
    error(
        &[text(&others)],
        &[
            "the references of case_004 differ: class 1 has 1004 voxels for a, and 77 for others",
            "same references",
        ],
    );
    fs::write(&file, "{}").unwrap();
    error(&[text(&others)], &["others/fold_0/validation/summary.json"]);

    let b = runs.run("b", 8, &better);
    error(
        &[text(&b), "--metric", "nsd"],
        &["a does not have NSD of all cases; it has Dice", "plimsoll evaluate", "--metrics overlap,surface"],
    );
    error(
        &[text(&b), "--metric", "tp"],
        &["tp is not a score for comparing label maps", "choose from Dice, IoU"],
    );
    error(&[text(&b), "--several-labels"], &["--several-labels applies to tables of images"]);
    error(&[text(&b), "--class", "liver"], &["class liver is not scored", "these are: vessel"]);
    error(&[text(&b), "--resamples", "0"], &["error: "]);
    let nowhere = runs.path("nowhere/out.csv");
    error(&[text(&b), "--csv", text(&nowhere)], &["nowhere/out.csv"]);
}

/// The mean of two models that have not seen a case, as `predict` makes it of the same two.
#[test]
fn ensembles_of_two_are_predicted_over_validation_cases_and_ranked() {
    let tiny = Tiny::new();
    let [a, b] = [("a", "1"), ("b", "2")].map(|(name, seed)| {
        let run = tiny.path(name);
        for fold in ["0", "1"] {
            tiny.trained(&run, &["--fold", fold, "--seed", seed]);
        }
        run
    });
    let (out, data) = (tiny.path("ensembles"), tiny.data.clone());
    let mut args = vec!["compare", text(&a), text(&b), "--resamples", "100", "--ensembles", text(&out)];
    args.extend(["--data", text(&data), "--threads", "1", "--ram", "512MiB"]);
    let found = run_json(&args);
    assert_eq!(found["candidates"].as_array().unwrap().len(), 2);
    let names: Vec<_> =
        found["with_ensembles"]["candidates"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["a", "b", "a + b"]);
    assert_eq!(found["with_ensembles"]["scores"][0]["ranking"]["order"].as_array().unwrap().len(), 3);
    assert_eq!(found["folders"]["a + b"], json!([a, b]));
    assert!(!out.join("members").exists(), "probabilities are removed");

    let entries: Vec<PathBuf> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [pair] = &entries[..] else { panic!("{entries:?}") };
    assert!(text(pair).contains("a + b."), "{pair:?}");
    for fold in ["fold_0", "fold_1"] {
        let specification = fs::read_to_string(a.join(fold).join("specification.json")).unwrap();
        let specification: Value = serde_json::from_str(&specification).unwrap();
        let case = specification["cases"]["val"][0].as_str().unwrap();
        let (image, labels) = (data.join(format!("imagesTr/{case}_0000.nii.gz")), tiny.path(fold));
        let models = [a.join(fold), b.join(fold)];
        let mut args = vec!["predict", "-m", text(&models[0]), "-m", text(&models[1]), "-i", text(&image)];
        args.extend(["-o", text(&labels), "--threads", "1", "--ram", "512MiB"]);
        run_json(&args);
        let file = format!("{case}.nii.gz");
        assert_eq!(fs::read(pair.join(&file)).unwrap(), fs::read(labels.join(&file)).unwrap(), "{case}");
    }

    // Called again it predicts nothing: nothing is written.
    let summary = pair.join("summary.json");
    let before = fs::metadata(&summary).unwrap().modified().unwrap();
    assert_eq!(run_json(&args)["with_ensembles"], found["with_ensembles"]);
    assert_eq!(fs::metadata(&summary).unwrap().modified().unwrap(), before);

    // What is missing is made again.
    fs::remove_file(&summary).unwrap();
    assert_eq!(run_json(&args)["with_ensembles"], found["with_ensembles"]);

    let said = String::from_utf8(run(&args).stdout).unwrap();
    assert!(said.contains("Dice with ensembles of two") && said.contains("  a + b  "), "{said}");

    let compare = ["compare", text(&a), text(&b)];
    // Validation scores overlap alone; `evaluate` adds others, fold by fold.
    let said = run_error(&[&compare[..], &["--metric", "nsd"]].concat());
    assert!(
        said.contains("evaluate RUN/fold_0/validation LABELS --partial --metrics overlap,surface"),
        "{said}"
    );
    for fold in [a.join("fold_0"), a.join("fold_1"), b.join("fold_0"), b.join("fold_1")] {
        let (predictions, labels) = (fold.join("validation"), data.join("labelsTr"));
        run_json(&[
            "evaluate",
            text(&predictions),
            text(&labels),
            "--partial",
            "--metrics",
            "overlap,surface",
        ]);
    }
    let found = run_json(&[&compare[..], &["--metric", "nsd,hd95"]].concat());
    let metrics: Vec<_> = found["scores"].as_array().unwrap().iter().map(|score| &score["metric"]).collect();
    assert_eq!(metrics, ["NSD", "HD95"]);

    let said = run_error(&[&compare[..], &["--threads", "1"]].concat());
    assert!(said.contains("--threads has no effect without --ensembles"), "{said}");
    let said = run_error(&[&compare[..], &["--ensembles", text(&out)]].concat());
    assert!(said.contains("--data"), "{said}");
    // The scores of a fold alone, as of any folder of predictions.
    let (scored, fold) = (tiny.path("scored"), b.join("fold_1"));
    fs::create_dir(&scored).unwrap();
    fs::copy(a.join("fold_1/validation/summary.json"), scored.join("summary.json")).unwrap();
    let alone = ["compare", text(&scored), text(&fold), "--ensembles", text(&out), "--data", text(&data)];
    let said = run_error(&alone);
    assert!(said.contains("scored has no models to average"), "{said}");

    // Of the common cases alone, where a fold is not validated.
    fs::remove_dir_all(b.join("fold_1/validation")).unwrap();
    let common = run_json(&[&args[..], &["--common-cases"]].concat());
    assert_eq!(common["with_ensembles"]["candidates"][2]["name"], "a + b");
    assert_eq!(common["with_ensembles"]["cases"].as_array().unwrap().len(), 1);
    // Trained on without a new validation: its scores do not belong to the weights that would be averaged.
    tiny.trained(&a, &["--fold", "0", "--seed", "1", "--resume", "--epochs", "3", "--skip-validation"]);
    let said = run_error(&[&args[..], &["--common-cases"]].concat());
    assert!(said.contains("was validated after step 4, but its weights are from step 6"), "{said}");
}

/// A summary as nnU-Net writes it: without settings, and with NaN where a score is undefined.
fn write_of_nnunet(file: &Path, cases: &[usize], dice: Dice) {
    let case = |case: &usize| {
        let dice = dice(*case, 1);
        let dice = if dice.is_nan() { "NaN".to_string() } else { dice.to_string() };
        format!(
            r#"{{"metrics": {{"1": {{"Dice": {dice}, "FN": 1, "FP": 2, "IoU": {dice}, "TN": 5, "TP": 3, "n_pred": 900, "n_ref": {}}}}},
            "prediction_file": "/nnUNet_results/out/case_{case:03}.nii.gz", "reference_file": "/nnUNet_raw/labelsTr/case_{case:03}.nii.gz"}}"#,
            1000 + case
        )
    };
    let cases: Vec<String> = cases.iter().map(case).collect();
    let text = format!(
        r#"{{"foreground_mean": {{"Dice": NaN}}, "mean": {{"1": {{"Dice": 0.5}}}}, "metric_per_case": [{}]}}"#,
        cases.join(", ")
    );
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[test]
fn summaries_of_nnunet_are_compared_with_runs_by_the_names_of_cases() {
    let runs = Runs::new();
    let ours = runs.run("ours", 24, &better);
    let scored = |case: usize, class: u8| if case == 3 { f64::NAN } else { worse(case, class) };
    // A model folder with folds, the file of one evaluation, and the folder of such a file.
    let (model, file, folder) =
        (runs.path("nnUNetTrainer__plans__3d"), runs.path("scores.json"), runs.path("predicted"));
    for fold in 0..2 {
        let cases: Vec<usize> = (0..24).filter(|case| case % 2 == fold).collect();
        write_of_nnunet(&model.join(format!("fold_{fold}/validation/summary.json")), &cases, &scored);
    }
    let all: Vec<usize> = (0..24).collect();
    write_of_nnunet(&file, &all, &scored);
    write_of_nnunet(&folder.join("summary.json"), &all, &scored);
    for theirs in [&model, &file, &folder] {
        let found = run_json(&["compare", text(&ours), text(theirs), "--resamples", "200"]);
        assert_eq!(found["cases"].as_array().unwrap().len(), 24);
        let difference = &found["scores"][0]["differences"][0];
        assert_eq!(difference["cases"], 23, "{theirs:?}");
        assert_eq!(difference["undefined"], json!({"first": 0, "second": 1, "both": 0}));
        assert_eq!(difference["class"]["name"], "vessel", "the run knows the names of classes");
        assert_eq!(difference["verdict"]["better"], "ours");
    }
    write_of_nnunet(&file, &all[..22], &scored);
    let said = run_error(&["compare", text(&ours), text(&file)]);
    assert!(
        said.contains("2 of 24 cases are missing for some candidates: case_022 (scores.json lacks it)"),
        "{said}"
    );
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\"1\"", "\"(1, 2)\"")).unwrap();
    let said = run_error(&["compare", text(&ours), text(&file)]);
    assert!(
        said.contains("scores.json has scores of `(1, 2)`") && said.contains("regions have several labels"),
        "{said}"
    );
}

/// A table of images, of which `wrong` ones are given the other class.
fn write_table(file: &Path, images: usize, wrong: fn(usize) -> bool) {
    let mut table = String::from("case,label,healthy,ill,predicted\n");
    for image in 0..images {
        let label = image % 2;
        let ill = if (label == 1) != wrong(image) {
            0.5 + 0.4 * noise(image, 4)
        } else {
            0.1 + 0.4 * noise(image, 5)
        };
        let name = |ill: bool| if ill { "ill" } else { "healthy" };
        let line =
            format!("eye_{image:03},{},{:.6},{ill:.6},{}\n", name(label == 1), 1.0 - ill, name(ill > 0.5));
        table.push_str(&line);
    }
    fs::write(file, table).unwrap();
}

#[test]
fn classifiers_are_told_apart_by_the_images_that_they_are_right_about() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let [a, b, c] = ["a.csv", "b.csv", "c.csv"].map(path);
    write_table(&a, 300, |image| image % 4 == 0);
    write_table(&b, 300, |image| image % 16 == 0);
    write_table(&c, 300, |image| image % 4 == 1);
    let (csv, picture) = (path("out.csv"), path("out.png"));
    let three = ["compare", text(&a), text(&b), text(&c), "--resamples", "300"];
    let found = run_json(&[&three[..], &["--csv", text(&csv), "--picture", text(&picture)]].concat());
    let [accuracy, auroc] = &found["scores"].as_array().unwrap()[..] else { panic!("{found}") };
    let told = |score: &Value| -> Vec<String> {
        let pairs = score["differences"].as_array().unwrap().iter();
        pairs
            .filter(|pair| pair["class"].is_null())
            .map(|pair| pair["verdict"]["outcome"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(told(accuracy), ["separated", "same", "separated"]);
    // Wrong about every fourth and every sixteenth image: 56 only of the second's, and none only of the first's.
    assert_eq!(accuracy["differences"][0]["test"]["right_in_one_alone"], json!([0, 56]));
    assert_eq!(accuracy["differences"][1]["test"]["right_in_one_alone"], json!([75, 75]));
    assert_eq!(auroc["differences"][0]["test"]["test"], "delong");
    assert_eq!(accuracy["choice"]["candidate"], "b.csv");
    let rows = fs::read_to_string(&csv).unwrap();
    assert!(rows.lines().all(|row| row.split(',').count() == 19) && rows.lines().count() == 7, "{rows}");
    assert_eq!(image::open(&picture).unwrap().width(), 1200);
    let said = String::from_utf8(run(&three).stdout).unwrap();
    for part in [
        "accuracy of 300 images, higher is better",
        "b.csv has a better accuracy than a.csv: a.csv − b.csv, 0.7500 − 0.9367 is −18.67 points",
        "only one of both gets 0 and 56 images right",
        "a.csv and c.csv have the same accuracy of 300 images",
        "by accuracy: b.csv is first",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let by_class = run_json(&[
        "compare",
        text(&a),
        text(&b),
        "--metric",
        "sensitivity",
        "--class",
        "ill",
        "--resamples",
        "10",
    ]);
    let sensitivity = &by_class["scores"][0]["differences"];
    assert_eq!((sensitivity.as_array().unwrap().len(), &sensitivity[0]["class"]), (1, &json!("ill")));
    assert_eq!(sensitivity[0]["verdict"]["outcome"], "same", "every image that is wrong is healthy");
    let error = |args: &[&str], part: &str| {
        let said = run_error(&[&["compare"][..], args].concat());
        assert!(said.contains(part), "{part}: {said}");
    };
    error(&[text(&a), text(&b), "--metric", "dice"], "dice is not a score for comparing classifiers");
    error(&[text(&a), text(&b), "--class", "dead"], "there is no class dead; these are: healthy, ill");
    let out = path("ensembles");
    error(
        &[text(&a), text(&b), "--ensembles", text(&out), "--data", "d"],
        "--data has no effect: predictions of validation images exist",
    );
    let ensembles = run_json(&[&three[..], &["--ensembles", text(&out)]].concat());
    let all = &ensembles["with_ensembles"];
    let candidates: Vec<&Value> =
        all["candidates"].as_array().unwrap().iter().map(|own| &own["name"]).collect();
    assert_eq!(candidates, ["a.csv", "b.csv", "c.csv", "a.csv + b.csv", "a.csv + c.csv", "b.csv + c.csv"]);
    // What is written of an ensemble is a candidate like any other.
    let table = ensembles["tables"]["a.csv + b.csv"][0].as_str().unwrap();
    assert!(table.starts_with(text(&out)) && table.ends_with(".csv"), "{table}");
    let by_hand = run_json(&["compare", text(&a), table, "--resamples", "300"]);
    let value = |of: &Value, score: usize, name: &str| {
        let candidates = of["scores"][score]["candidates"].as_array().unwrap();
        let own = candidates.iter().find(|own| own["candidate"] == name && own["class"].is_null()).unwrap();
        own["value"].as_f64().unwrap()
    };
    let name = Path::new(table).file_name().unwrap().to_str().unwrap();
    for score in [0, 1] {
        assert_eq!(value(all, score, "a.csv + b.csv"), value(&by_hand, score, name));
        assert_eq!(value(all, score, "a.csv"), value(&ensembles, score, "a.csv"));
    }
    // They are wrong about other images, so that their means order the images better than either does.
    let alone = value(all, 1, "a.csv").max(value(all, 1, "c.csv"));
    assert!(value(all, 1, "a.csv + c.csv") > alone + 0.05, "{}", value(all, 1, "a.csv + c.csv"));
    let said = run(&[&three[..], &["--ensembles", text(&out)]].concat()).stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("accuracy with ensembles of two") && said.contains("  b.csv + c.csv  "), "{said}");
    write_table(&c, 290, |_| false);
    error(&[text(&a), text(&c)], "10 of 300 cases are missing for some candidates: eye_290 (c.csv lacks it)");
    let common = run_json(&["compare", text(&a), text(&c), "--common-cases", "--resamples", "10"]);
    assert_eq!(
        (common["images"].as_array().unwrap().len(), common["left_out"].as_array().unwrap().len()),
        (290, 10)
    );
    write_summary(&path("maps"), &[0, 1, 2], &[1], &worse);
    error(&[text(&a), text(&path("maps"))], "a.csv classifies images, but ");
}
