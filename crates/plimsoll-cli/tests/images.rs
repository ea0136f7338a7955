//! Classifying images, from folders and tables to scores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{dataset, expect_same, plimsoll, run_error, run_json};
use plimsoll_data::pictures::phantom::{self, PhantomImages};

mod changes;
mod pairs;

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
fn grey_images_of_16_bits_are_told_apart_by_the_range_of_the_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("images");
    for (class, low) in [("dark", 2000u32), ("bright", 40_000)] {
        // Images of one number differ between splits by where their darkest pixel lies.
        for (split, count, shift) in [("train", 4, 0), ("val", 2, 7), ("test", 2, 11)] {
            let folder = data.join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..count {
                let value = |x: u32, y: u32| {
                    image::Luma([(low + (x * 24 + y + shift) % 576 * 3000 / 575 - number) as u16])
                };
                let name = folder.join(format!("{split}_{number}.png"));
                image::ImageBuffer::<image::Luma<u16>, Vec<u16>>::from_fn(24, 24, value).save(name).unwrap();
            }
        }
    }
    let settings = dir.path().join("settings.toml");
    let text =
        "batch_size = 4\nepochs = 1\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, text).unwrap();
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let run = dir.path().join("run");
    let ended = plimsoll().args(train(data, settings, run.to_str().unwrap())).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{said}");
    // The lowest and the highest of training and validation: 2000 − 3 and 40 000 + 3000.
    assert!(said.contains("16-bit samples: 1997 to 43000 become 0 to 255"), "{said}");
    let specification = fs::read(run.join("fold_0/specification.json")).unwrap();
    let specification: serde_json::Value = serde_json::from_slice(&specification).unwrap();
    let decode = &specification["config"]["task"]["classification"]["pipeline"]["decode"];
    assert_eq!(decode["range_16_bit"], serde_json::json!([1997, 43000]));
    let table = dir.path().join("table.csv");
    let test = format!("{data}/test");
    run_json(&[
        "predict",
        run.to_str().unwrap(),
        "-i",
        &test,
        "-o",
        table.to_str().unwrap(),
        "--ram",
        "512MiB",
    ]);
    let table = fs::read_to_string(table).unwrap();
    let row = |class: &str| {
        table
            .lines()
            .find(|line| line.contains(class))
            .unwrap()
            .split(',')
            .skip(2)
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_ne!(row("dark/test_0"), row("bright/test_0"), "{table}");
    let found = run_json(&["inspect", data]);
    assert_eq!(found["range_16_bit"], serde_json::json!([1997, 43000]));
}

#[test]
fn a_killed_run_on_images_goes_on_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let (whole, killed) = (dir.path().join("whole"), dir.path().join("killed"));
    let of = |run: &Path| {
        let all = [&train(data, settings, run.to_str().unwrap())[..], &["--epochs", "6"]].concat();
        all.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let expected = plimsoll().args(of(&whole)).output().unwrap();
    assert!(expected.status.success());
    // Killed in the second epoch, and again in the fourth.
    for (attempt, epochs) in [1, 3].into_iter().enumerate() {
        let mut command = plimsoll();
        command.args(of(&killed)).stdout(Stdio::null()).stderr(Stdio::null());
        if attempt > 0 {
            command.arg("--resume");
        }
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(300);
        let journal = killed.join("fold_0/metrics.jsonl");
        while fs::read_to_string(&journal).unwrap_or_default().lines().count() < epochs {
            assert!(Instant::now() < deadline, "no epoch was finished");
            assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        // `kill` is SIGKILL.
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "it was killed before its end");
    }
    assert!(!killed.join("fold_0/checkpoint_final.safetensors").exists());
    let killed_path = killed.to_str().unwrap();
    let resume = [&train(data, settings, killed_path)[..], &["--epochs", "6", "--resume"]].concat();
    assert_eq!(run_json(&resume)["finished"], true);
    assert_eq!(fs::read_to_string(killed.join("fold_0/metrics.jsonl")).unwrap().lines().count(), 6);
    expect_same(&killed, &whole, "after two kills");
}

#[test]
fn a_run_on_images_is_extended_predicted_with_and_scored() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let (data, settings) = (data.to_str().unwrap(), settings.to_str().unwrap());
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (whole, parts) = (place("whole"), place("parts"));
    let record = run_json(&train(data, settings, &whole));
    assert_eq!(record["steps"], 8, "18 images in batches of 4, twice");
    assert!(record["peak_rss_bytes"].as_u64() <= record["ram_budget_bytes"].as_u64());
    // A run of one epoch is given one more. Its schedule was another, and so are its bits.
    run_json(&[&train(data, settings, &parts)[..], &["--epochs", "1"]].concat());
    run_json(&[&train(data, settings, &parts)[..], &["--epochs", "2", "--resume"]].concat());
    let metrics = |run: &str| fs::read_to_string(Path::new(run).join("fold_0/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics(&whole).lines().last().unwrap()).unwrap();
    assert!(last["classification"]["accuracy"].is_number(), "{last}");
    assert_eq!(metrics(&parts).lines().count(), 2);
    let scores = "accuracy,auroc,quadratic_kappa,sensitivity";
    let compared = run_json(&["compare", &whole, &parts, "--metric", scores, "--resamples", "50"]);
    let own = fs::read_to_string(Path::new(&whole).join("fold_0/validation/predictions.csv")).unwrap();
    let mut images: Vec<&str> = own.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    images.sort_unstable();
    assert_eq!(compared["images"], serde_json::json!(images));
    let tests: Vec<_> = compared["scores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|score| &score["differences"][0]["test"]["test"])
        .collect();
    assert_eq!(tests, ["mcnemar", "bootstrap", "bootstrap", "mcnemar"]);
    // The score of the page and of `evaluate` is the one that is compared.
    let accuracy = run_json(&[
        "evaluate",
        "--classification",
        &format!("{whole}/fold_0/validation/predictions.csv"),
        "-o",
        &place("own.json"),
    ]);
    assert_eq!(compared["scores"][0]["candidates"][0]["value"], accuracy["overall"]["accuracy"]["value"]);
    let table = place("table.csv");
    fs::copy(Path::new(&parts).join("fold_0/validation/predictions.csv"), &table).unwrap();
    let of_table = run_json(&["compare", &whole, &table, "--metric", scores, "--resamples", "50"]);
    assert_eq!(
        of_table["scores"][0]["differences"][0]["difference"],
        compared["scores"][0]["differences"][0]["difference"]
    );
    let said = run_error(&["compare", &whole, &table, "--several-labels"]);
    assert!(said.contains("already states how many labels"), "{said}");
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
    assert!(error.contains("already exists") && error.contains("--overwrite"), "{error}");
    expect_mean([&whole, &parts], &test, dir.path());
    for flag in [&["--overlap", "0.25"][..], &["--votes", "sum"], &["--pair-columns"]] {
        let args = [&["predict", &whole, "-i", &test, "-o", &again, "--overwrite"][..], flag].concat();
        let error = run_error(&args);
        assert!(error.contains(&format!("{} has no effect", flag[0])), "{error}");
    }
    expect_mistakes(&whole, Path::new(data), dir.path());
}

/// Two runs give images the mean of their probabilities, also of validation images that a comparison averages.
fn expect_mean(runs: [&str; 2], images: &str, dir: &Path) {
    let file = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let numbers = |table: &str| -> Vec<f64> {
        let table = fs::read_to_string(table).unwrap();
        let rows =
            table.lines().skip(1).map(|row| row.split(',').skip(2).take(3).map(str::to_string).collect());
        rows.flat_map(|row: Vec<String>| row.into_iter().map(|number| number.parse().unwrap())).collect()
    };
    let tables = [file("of_one.csv"), file("of_other.csv"), file("of_both.csv")];
    for (run, table) in runs.iter().zip(&tables) {
        run_json(&["predict", run, "-i", images, "-o", table, "--ram", "512MiB"]);
    }
    let both = ["predict", "-m", runs[0], "-m", runs[1], "-i", images, "-o", &tables[2], "--ram", "512MiB"];
    let found = run_json(&both);
    assert!(found["models"] == 2 && found["classifiers"] == 1, "{found}");
    let [one, other, mean] = [&tables[0], &tables[1], &tables[2]].map(|table| numbers(table));
    assert!(one != other && mean.len() == 18);
    for ((one, other), mean) in one.iter().zip(&other).zip(&mean) {
        // Each has six decimals.
        assert!(((one + other) / 2.0 - mean).abs() <= 1.1e-6, "{one}, {other}, {mean}");
    }
    let error = run_error(&[&both[..], &["--overwrite", "--mistakes", "2"]].concat());
    assert!(error.contains("--mistakes has no effect"), "{error}");
    let compared =
        run_json(&["compare", runs[0], runs[1], "--resamples", "20", "--ensembles", &file("pairs")]);
    let name = "whole + parts";
    assert_eq!(compared["with_ensembles"]["candidates"][2]["name"], name);
    assert_eq!(compared["folders"][name], serde_json::json!(runs));
    let [one, other] = runs.map(|run| numbers(&format!("{run}/fold_0/validation/predictions.csv")));
    let written = fs::read_to_string(compared["tables"][name][0].as_str().unwrap()).unwrap();
    assert!(written.starts_with("case,label,0_none,1_mild,2_moderate\n"), "{written}");
    let sum = |of: &[f64]| of.iter().sum::<f64>();
    let mean = numbers(compared["tables"][name][0].as_str().unwrap());
    assert!((sum(&one) + sum(&other) - 2.0 * sum(&mean)).abs() < 1e-5 && mean.len() == one.len());
}

/// Predicts images in folders of other classes than their own, and looks at the pictures of those that are most wrong.
fn expect_mistakes(run: &str, data: &Path, dir: &Path) {
    let swapped = dir.join("swapped");
    for (place, class) in phantom::GRADES[..3].iter().enumerate() {
        let to = swapped.join(phantom::GRADES[(place + 1) % 3]);
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(data.join("test").join(class)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    let (swapped, table) = (swapped.to_str().unwrap(), dir.join("swapped.csv"));
    let of = |input: &str| {
        let table = table.to_str().unwrap().to_string();
        ["predict", run, "-i", input, "-o", &table, "--ram", "512MiB", "--mistakes", "3"].map(String::from)
    };
    let args = of(swapped);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let classified = run_json(&args);
    let is_wrong = |line: &&str| {
        let fields: Vec<&str> = line.split(',').collect();
        fields[1] != fields[5]
    };
    let wrong = fs::read_to_string(&table).unwrap().lines().skip(1).filter(is_wrong).count();
    assert!(wrong >= 2, "one class is given at least, of which two images are");
    assert_eq!(classified["mistakes"]["found"], wrong);
    assert!(classified["peak_rss_bytes"].as_u64() <= classified["planned_bytes"].as_u64(), "{classified}");
    let sheet = fs::read_to_string(dir.join("swapped.mistakes.svg")).unwrap();
    let pictures: Vec<&str> =
        sheet.split("base64,").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(pictures.len(), 3 * wrong.min(3), "an image, what it was given, what it is");
    // Where nothing speaks for a class, its picture is the image, and says so.
    let is_plain = |row: &[&str]| row[1..].iter().filter(|picture| **picture == row[0]).count();
    let plain: usize = pictures.chunks(3).map(is_plain).sum();
    assert_eq!(sheet.matches("no evidence").count(), plain);
    assert!(plain < 2 * pictures.len() / 3, "maps lie over images");
    assert!(
        sheet.contains(&format!("{wrong} of 6 images are wrong")) && sheet.contains(">given "),
        "{sheet}"
    );
    let alone = data.join("test").join(phantom::GRADES[0]);
    let error = run_error(&of(alone.to_str().unwrap()).each_ref().map(String::as_str));
    assert!(error.contains("already exists"), "{error}");
    fs::remove_file(&table).unwrap();
    let error = run_error(&of(alone.to_str().unwrap()).each_ref().map(String::as_str));
    assert!(error.contains("labels of the images") && error.contains("are unknown"), "{error}");
    assert!(!table.exists());
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
        (format!("batch_size = 1\n{network}[images.augmentation]\nmixup = 0.2\n"), "mixup"),
        (
            format!("{network}[images.augmentation]\nmixup = 0.2\n[[loss.components]]\nname = \"focal\"\n"),
            "[focal]",
        ),
        (format!("{network}[images]\ntarget = \"any_of\"\n"), "one_of or ordinal"),
        (format!("{network}single_logit = true\n[images]\ntarget = \"ordinal\"\n"), "single_logit"),
        (
            format!("{network}[images]\ntarget = \"ordinal\"\nclass_weights = \"balanced\"\n"),
            "`images.class_weights`",
        ),
        (
            format!("{network}[images]\ntarget = \"ordinal\"\nclasses = [\"0_none\", \"1_mild\"]\n"),
            "three classes or more",
        ),
        (
            format!(
                "{network}[images]\ntarget = \"ordinal\"\n[[loss.components]]\nname = \"cross_entropy\"\n"
            ),
            "weighted_bce",
        ),
        (
            format!(
                "{network}[images]\nclass_weights = \"balanced\"\n[[loss.components]]\nname = \"focal\"\n"
            ),
            "no cross_entropy",
        ),
        (format!("{network}[images]\nclasses = [\"0_none\", \"9_all\"]\n"), "9_all"),
        (
            format!("{network}[early_stopping]\npatience = 2\nscore = \"ema_pseudo_dice\"\n"),
            "`early_stopping.score` is ema_pseudo_dice, but runs of this data set have accuracy",
        ),
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

/// Trains with more settings, goes on after a kill of what an epoch left, and predicts; returns the specification, the last epoch and
/// the table of predictions.
fn trained_with(
    more: &str,
    data: &str,
    dir: &Path,
) -> (serde_json::Value, serde_json::Value, Vec<Vec<String>>) {
    let settings = dir.join("more.toml");
    let text =
        "batch_size = 4\nepochs = 2\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, format!("{text}{more}")).unwrap();
    let settings = settings.to_str().unwrap();
    let number = fs::read_dir(dir).unwrap().count();
    let (run, out) = (dir.join(format!("run {number}")), dir.join(format!("out {number}.csv")));
    let (run_path, out) = (run.to_str().unwrap(), out.to_str().unwrap());
    let record = run_json(&train(data, settings, run_path));
    assert!(record["peak_rss_bytes"].as_u64() <= record["planned_bytes"].as_u64(), "{record}");
    let read = |name: &str| fs::read_to_string(run.join("fold_0").join(name)).unwrap();
    let last = serde_json::from_str(read("metrics.jsonl").lines().last().unwrap()).unwrap();
    // The same on two threads, killed in between.
    let again = dir.join(format!("again {number}"));
    let again_path = again.to_str().unwrap();
    let mut child = plimsoll()
        .args(train(data, settings, again_path))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    while !again.join("fold_0/checkpoint_latest.safetensors").exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "no epoch was finished");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut resume = train(data, settings, again_path);
    let threads = resume.iter().position(|arg| *arg == "--threads").unwrap();
    resume[threads + 1] = "2";
    run_json(&[&resume[..], &["--resume"]].concat());
    expect_same(&again, &run, more);
    run_json(&["predict", run_path, "-i", data, "-o", out, "--ram", "512MiB"]);
    let table = fs::read_to_string(out).unwrap();
    let rows = table.lines().map(|line| line.split(',').map(String::from).collect()).collect();
    (serde_json::from_str(&read("specification.json")).unwrap(), last, rows)
}

#[test]
fn classes_weigh_as_their_images_are_many_and_images_are_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, _) = images(dir.path());
    // Of 6, 6 and 6 images to train on, three and four are left out.
    for (grade, last) in [("0_none", 3..6), ("1_mild", 2..6)] {
        last.for_each(|number| fs::remove_file(data.join(format!("train/{grade}/{number:03}.png"))).unwrap());
    }
    let data = data.to_str().unwrap();
    let (specification, last, _) = trained_with("class_weights = \"balanced\"\n", data, dir.path());
    let component = &specification["config"]["training"]["loss"]["components"][0];
    let weights: Vec<f64> = component["class_weights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|weight| weight.as_f64().unwrap())
        .collect();
    // n / (K nₖ) of 3, 2 and 6 images.
    for (found, expected) in weights.iter().zip([11.0 / 9.0, 11.0 / 6.0, 11.0 / 18.0]) {
        assert!((found - expected).abs() < 1e-6, "{weights:?}");
    }
    assert!(last["train_loss"].is_number(), "{last}");
    let (_, mixed, _) = trained_with("[images.augmentation]\nmixup = 0.4\n", data, dir.path());
    let (_, plain, _) = trained_with("[images.augmentation]\nmixup = 0.0\n", data, dir.path());
    assert!(mixed["train_loss"].is_number() && mixed["train_loss"] != plain["train_loss"], "{mixed}");
    assert_eq!(
        mixed["train_loss_parts"][0]["value"], mixed["train_loss"],
        "the part is of mixed classes, too"
    );
}

#[test]
fn grades_in_their_order_are_trained_and_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let (data, _) = images(dir.path());
    let data = data.to_str().unwrap();
    let (specification, last, rows) = trained_with("target = \"ordinal\"\n", data, dir.path());
    assert_eq!(specification["config"]["training"]["loss"]["components"][0]["name"], "weighted_bce");
    assert_eq!(last["classification"]["labels"], serde_json::Value::Null);
    assert!(last["classification"]["accuracy"].is_number());
    assert_eq!(rows[0], ["case", "label", "0_none", "1_mild", "2_moderate", "predicted"]);
    for row in &rows[1..] {
        let probabilities: Vec<f64> = row[2..5].iter().map(|text| text.parse().unwrap()).collect();
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
        assert!(rows[0][2..5].contains(&row[5]), "{row:?}");
    }
    let refused = run_error(&[
        "train",
        data,
        "--config",
        dir.path().join("more.toml").to_str().unwrap(),
        "--out",
        "/nowhere",
        "--one-vs-one",
    ]);
    assert!(refused.contains("several or ordered"), "{refused}");
}

/// Names of classes and images that spreadsheets would run are texts in tables, and the same names for whoever scores them.
#[test]
fn names_that_begin_as_formulas_are_no_formulas_in_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (data, _) = images(dir.path());
    let names = ["=1+1", "-mild", "@two"];
    for split in ["train", "val", "test"] {
        for (grade, name) in phantom::GRADES[..3].iter().zip(names) {
            fs::rename(data.join(split).join(grade), data.join(split).join(name)).unwrap();
        }
    }
    let (_, _, rows) = trained_with("", data.to_str().unwrap(), dir.path());
    let is_formula = |cell: &String| cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    assert_eq!(rows[0], ["case", "label", "'-mild", "'=1+1", "'@two", "predicted"]);
    assert!(rows.iter().flatten().all(|cell| !is_formula(cell)), "{rows:?}");
    assert!(rows[1..].iter().all(|row| rows[0][2..5].contains(&row[1])), "{rows:?}");
    let is_table = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "csv");
    let written =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).find(is_table).unwrap();
    let scores = run_json(&["evaluate", "--classification", written.to_str().unwrap()]);
    let classes: Vec<&str> =
        scores["classes"].as_array().unwrap().iter().map(|class| class["name"].as_str().unwrap()).collect();
    assert_eq!(classes, ["-mild", "=1+1", "@two"]);
    let table = fs::read_to_string(dir.path().join("scores.csv")).unwrap();
    assert!(table.contains("\n'=1+1,auroc,") && !table.contains("\n=1+1"), "{table}");
}

#[test]
fn images_with_several_labels_are_trained_and_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let (data, _) = images(dir.path());
    // Findings of the grades: none, one, two; of every second image also another.
    let mut text = "image,findings\n".to_string();
    for (grade, name) in phantom::GRADES[..3].iter().enumerate() {
        for number in 0..6 {
            let mut found = ["spots", "bleeding"][..grade].to_vec();
            if number % 2 == 0 {
                found.push("blur");
            }
            text += &format!("train/{name}/{number:03}.png,{}\n", found.join("|"));
        }
    }
    let table = data.join("labels.csv");
    fs::write(&table, text).unwrap();
    let table = table.to_str().unwrap();
    let more = "[images.table]\nimage = \"image\"\nlabel = { several = { column = \"findings\", separator = \"|\" } }\n";
    let (specification, last, rows) = trained_with(more, table, dir.path());
    assert_eq!(specification["config"]["task"]["classification"]["target"], "any_of");
    let labels = last["classification"]["labels"].as_array().unwrap();
    assert_eq!(labels.len(), 3);
    assert!(labels.iter().all(|label| label["label"].is_string()), "{last}");
    assert_eq!(rows[0], ["case", "label", "bleeding", "blur", "spots", "predicted"]);
    assert_eq!(rows.len(), 19);
    let sum = |row: &Vec<String>| row[2..5].iter().map(|text| text.parse::<f64>().unwrap()).sum::<f64>();
    assert!(
        rows[1..].iter().any(|row| (sum(row) - 1.0).abs() > 0.01),
        "probabilities are of each label by itself"
    );
    for row in &rows[1..] {
        let given = rows[0][2..5].iter().zip(&row[2..5]).filter(|(_, p)| p.parse::<f64>().unwrap() >= 0.5);
        let given: Vec<&str> = given.map(|(label, _)| label.as_str()).collect();
        assert_eq!(row[5], given.join("|"));
    }
    assert!(rows[1..].iter().any(|row| row[1] == "bleeding|blur|spots"), "{rows:?}");
    let is_table = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "csv");
    let written =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).find(is_table).unwrap();
    let predictions = written.to_str().unwrap();
    let error = run_error(&["evaluate", "--classification", predictions]);
    assert!(error.contains("--several-labels"), "{error}");
    let scores = run_json(&["evaluate", "--classification", predictions, "--several-labels"]);
    assert_eq!(scores["cases"], 18);
    let right = rows[1..].iter().filter(|row| row[1] == row[5]).count();
    assert_eq!(scores["overall"]["accuracy"]["value"], right as f64 / 18.0);
    let config = dir.path().join("more.toml");
    let config = config.to_str().unwrap();
    let refused = run_error(&["train", table, "--config", config, "--out", "/nowhere", "--one-vs-one"]);
    assert!(refused.contains("several or ordered"), "{refused}");
}

#[test]
fn images_are_decoded_once_and_again_only_if_one_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, _) = images(dir.path());
    let inspect = || {
        let mut command = plimsoll();
        command.env("XDG_CACHE_HOME", dir.path().join("cache"));
        let output = command.args(["inspect", data.to_str().unwrap(), "--json"]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let image = data.join("train/0_none/002.png");
    let before = fs::metadata(&image).unwrap();
    let pixels = fs::read(&image).unwrap();
    let first = inspect();
    assert!(first.0, "{first:?}");
    // What is no image any more, but looks unchanged from outside, is found by whoever decodes it.
    let change = |contents: &[u8], time| {
        fs::write(&image, contents).unwrap();
        fs::File::options().write(true).open(&image).unwrap().set_modified(time).unwrap();
    };
    let broken = [&pixels[..40], &vec![0; pixels.len() - 40]].concat();
    change(&broken, before.modified().unwrap());
    assert_eq!(inspect(), first, "nothing is decoded again");
    let later = before.modified().unwrap() + Duration::from_secs(1);
    change(&broken, later);
    let found = inspect();
    assert!(!found.0 && found.1.contains("002.png"), "{found:?}");
    assert_eq!(inspect(), found, "what is wrong is kept as well");
    change(&pixels, later + Duration::from_secs(1));
    assert_eq!(inspect(), first);
    // Another label of the same images is another data set.
    fs::rename(data.join("train/1_mild/005.png"), data.join("train/0_none/005b.png")).unwrap();
    let moved = inspect();
    assert!(moved.0 && moved != first, "{moved:?}");
}
