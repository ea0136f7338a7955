//! Classes that overlap, from a data set to scores: three nested regions, whose label maps have the values 1, 2 and 4.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Ended, expect_same, plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, StoredVolume, VolumeWriter};
use serde_json::{Value, json};

const SHAPE: [usize; 3] = [14, 16, 18];
const SETS: [&[u8]; 3] = [&[1, 2, 4], &[2, 4], &[4]];
const NAMES: [&str; 3] = ["whole", "core", "enhancing"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn write(path: &Path, element_type: ElementType, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, element_type, None).unwrap();
    writer.write_planes(bytes).unwrap();
    writer.finish().unwrap();
}

fn labels(path: &Path) -> Vec<u8> {
    StoredVolume::read(path, &Budget::new(Bytes::mib(16)), "test").unwrap().bytes().to_vec()
}

/// Shells of balls about a place that differs from case to case, brighter towards the middle.
struct Balls {
    dir: tempfile::TempDir,
}

impl Balls {
    fn new() -> Balls {
        let balls = Balls { dir: tempfile::tempdir().unwrap() };
        for case in 0..4 {
            let middle = [6 + case % 2, 7 + case % 3, 8 + case % 2].map(|at| at as f64);
            let mut found = (Vec::new(), Vec::new());
            for (d, h, w) in (0..SHAPE[0])
                .flat_map(|d| (0..SHAPE[1]).flat_map(move |h| (0..SHAPE[2]).map(move |w| (d, h, w))))
            {
                let at = [d, h, w].map(|at| at as f64);
                let distance = at.iter().zip(middle).map(|(a, m)| (a - m).powi(2)).sum::<f64>().sqrt();
                let label: u8 = match distance {
                    ..2.5 => 4,
                    ..4.0 => 2,
                    ..5.5 => 1,
                    _ => 0,
                };
                let noise = (d * 31 + h * 17 + w * 7 + case * 13) % 11;
                found.0.push(label);
                found.1.extend((100 * i16::from(label) + noise as i16).to_ne_bytes());
            }
            write(&balls.path(&format!("data/labelsTr/c{case}.nii.gz")), ElementType::U8, &found.0);
            write(&balls.path(&format!("data/imagesTr/c{case}_0000.nii.gz")), ElementType::I16, &found.1);
        }
        balls.describe(&json!({
            "channel_names": {"0": "MR"}, "file_ending": ".nii.gz", "numTraining": 4,
            "labels": {"background": 0}, "regions_class_order": null,
        }));
        balls
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a description whose regions stand in this order, which JSON made of a map would not keep.
    fn describe(&self, other: &Value) {
        let labels = r#"{"background": 0, "whole": [1, 2, 4], "core": [2, 4], "enhancing": 4}"#;
        let text = other.to_string().replace(r#"{"background":0}"#, labels);
        let text = text.replace(r#""regions_class_order":null"#, r#""regions_class_order":[1, 2, 4]"#);
        fs::write(self.path("data/dataset.json"), text).unwrap();
    }

    fn config(&self, toml: &str) -> String {
        let path = self.path("settings.toml");
        fs::write(&path, toml).unwrap();
        text(&path).to_string()
    }

    fn train<'a>(data: &'a str, run: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut args =
            vec!["train", data, "--out", run, "--ram", "512MiB", "--net", "plain", "--features", "4,8"];
        args.extend([
            "--patch-size",
            "8",
            "--iterations",
            "3",
            "--validation-iterations",
            "1",
            "--fold",
            "0",
        ]);
        args.extend(more);
        if !more.contains(&"--config") {
            args.extend(["--config", "/dev/null"]);
        }
        args
    }
}

/// The Dice of a set of labels, voxel by voxel; the prediction has numbers of labels, the reference values.
fn dice(prediction: &[u8], reference: &[u8], set: &[u8]) -> f64 {
    let value = |number: u8| [0, 1, 2, 4][usize::from(number)];
    let count = |is: &dyn Fn(bool, bool) -> bool| {
        let pairs = prediction.iter().zip(reference);
        pairs.filter(|(p, r)| is(set.contains(&value(**p)), set.contains(r))).count() as f64
    };
    2.0 * count(&|p, r| p && r) / (count(&|p, _| p) + count(&|_, r| r))
}

#[test]
fn regions_are_trained_validated_predicted_scored_and_exported() {
    let balls = Balls::new();
    let (data, run) = (balls.path("data"), balls.path("run"));
    let (data, folder) = (text(&data).to_string(), text(&run).to_string());

    let found = run_json(&["inspect", &data, "--ram", "512MiB"]);
    assert_eq!(found["problems"], json!([]));
    assert_eq!(found["regions"][1], json!({"name": "core", "labels": [2, 3], "written": 2}));
    let said = Ended::run(plimsoll().args(["inspect", &data, "--ram", "512MiB"])).printed;
    assert!(said.contains("whole = 1 + 2 + 4, written as 1; core = 2 + 4, written as 2"), "{said}");

    let page = text(&balls.path("inspected.html")).to_string();
    let inspected = Ended::run(plimsoll().args(["inspect", &data, "--ram", "512MiB", "--page", &page]));
    assert_eq!(inspected.status, Some(0), "{inspected:?}");
    assert!(fs::read_to_string(page).unwrap().contains("core = 2 + 4, written as 2"));

    run_json(&Balls::train(&data, &folder, &["--epochs", "2"]));
    let specification = fs::read_to_string(run.join("fold_0/specification.json")).unwrap();
    assert!(specification.contains("\"weighted_bce\"") && specification.contains("\"sigmoid\""));
    let journal = fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap();
    let epoch: Value = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
    assert_eq!(epoch["pseudo_dice"].as_array().unwrap().len(), 3, "{epoch}");
    assert_eq!(run_json(&["status", &folder])[0]["regions"], json!(NAMES));
    let whole = match epoch["pseudo_dice"][0].as_f64() {
        Some(dice) => format!("pseudo-Dice of regions: whole {dice:.4}, core "),
        None => "pseudo-Dice of regions: whole –, core ".into(),
    };
    for told in [&["status", &folder][..], &["watch", &folder, "--once"]] {
        let printed = Ended::run(plimsoll().args(told)).printed;
        assert!(printed.contains(&whole), "{told:?}: {printed}");
    }

    // Scores are of regions, whatever the labels within them.
    let summary = fs::read(run.join("fold_0/validation/summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["settings"]["regions"], json!([[1, 2, 3], [2, 3], [3]]));
    let expect = |case: &Value| {
        let files = ["prediction_file", "reference_file"].map(|key| Path::new(case[key].as_str().unwrap()));
        let [prediction, reference] = files.map(labels);
        for (region, set) in SETS.iter().enumerate() {
            let found = case["metrics"][(region + 1).to_string()]["Dice"].as_f64().unwrap();
            let expected = dice(&prediction, &reference, set);
            assert!((found - expected).abs() < 1e-12, "{}: {found}, {expected}", NAMES[region]);
        }
    };
    let cases = summary["metric_per_case"].as_array().unwrap();
    assert!(!cases.is_empty());
    cases.iter().for_each(expect);

    // What is predicted is scored in the same way, by the names that the data set has, or by labels that are named.
    let (images, predicted) = (format!("{data}/imagesTr"), balls.path("predicted"));
    let predicted = text(&predicted).to_string();
    run_json(&["predict", &folder, "-i", &images, "-o", &predicted, "--ram", "512MiB"]);
    for case in 0..4 {
        assert!(labels(&balls.path(&format!("predicted/c{case}.nii.gz"))).iter().all(|label| *label < 4));
    }
    let references = format!("{data}/labelsTr");
    let scores = run_json(&["evaluate", &predicted, &references, "--metrics", "all", "--ram", "512MiB"]);
    scores["metric_per_case"].as_array().unwrap().iter().for_each(expect);
    let printed =
        Ended::run(plimsoll().args(["evaluate", &predicted, &references, "--ram", "512MiB"])).printed;
    assert!(NAMES.iter().all(|name| printed.contains(name)), "{printed}");
    let one = run_json(&["evaluate", &predicted, &references, "--labels", "1+2+3,2+3,3", "--ram", "512MiB"]);
    assert_eq!(one["mean"]["1"]["Dice"], scores["mean"]["1"]["Dice"]);

    // nnU-Net reads regions in the order of the outputs.
    let made = balls.path("model");
    run_json(&["export", &folder, "-o", text(&made), "--format", "nnunet"]);
    let described = fs::read_to_string(made.join("dataset.json")).unwrap();
    let places = NAMES.map(|name| described.find(&format!("\"{name}\"")).unwrap());
    assert!(places[0] < places[1] && places[1] < places[2], "{described}");
    let described: Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described["regions_class_order"], json!([1, 2, 3]));
    assert_eq!(described["labels"]["core"], json!([2, 3]));
    let again = text(&balls.path("again")).to_string();
    run_json(&["predict", text(&made), "-i", &images, "-o", &again, "--ram", "512MiB", "--disable_tta"]);
    let graph = text(&balls.path("model.onnx")).to_string();
    run_json(&["export", &format!("{folder}/fold_0"), "-o", &graph, "--format", "onnx"]);

    let page = text(&balls.path("page.html")).to_string();
    let report = Ended::run(plimsoll().args(["report", &folder, "-o", &page]));
    assert_eq!(report.status, Some(0), "{report:?}");
    let page = fs::read_to_string(page).unwrap();
    assert!(NAMES.iter().all(|name| page.contains(name)));
    assert!(page.contains("the overlapping regions whole, core, enhancing"));
}

#[test]
fn a_killed_run_on_regions_goes_on_to_the_same_bits() {
    let balls = Balls::new();
    let data = text(&balls.path("data")).to_string();
    let (whole, killed) = (balls.path("whole"), balls.path("killed"));
    run_json(&Balls::train(&data, text(&whole), &["--epochs", "6", "--threads", "2"]));
    let args = Balls::train(&data, text(&killed), &["--epochs", "6", "--threads", "1"]);
    let mut child = plimsoll().args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = killed.join("fold_0/metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(300);
    while fs::read_to_string(&journal).unwrap_or_default().lines().count() < 1 {
        assert!(Instant::now() < deadline, "no epoch was finished");
        std::thread::sleep(Duration::from_millis(2));
    }
    // `kill` is SIGKILL; a run that has ended by then goes on as well.
    child.kill().unwrap();
    child.wait().unwrap();
    run_json(&[&args[..], &["--resume"]].concat());
    expect_same(&killed, &whole, "after it was killed");
}

#[test]
fn regions_need_no_description() {
    let balls = Balls::new();
    let described = run_json(&["inspect", text(&balls.path("data")), "--ram", "512MiB"]);
    fs::rename(balls.path("data/imagesTr"), balls.path("data/images")).unwrap();
    fs::rename(balls.path("data/labelsTr"), balls.path("data/labels")).unwrap();
    fs::remove_file(balls.path("data/dataset.json")).unwrap();
    let data = text(&balls.path("data")).to_string();
    let regions = "[regions]\nenhancing = 4\ncore = [2, 4]\nwhole = [1, 2, 4]\n";
    let config = balls.config(&format!("{regions}order = ['whole', 'core', 'enhancing']"));
    let found = run_json(&["inspect", &data, "--ram", "512MiB", "--config", &config]);
    assert_eq!(found["regions"], described["regions"]);
    // Which can be written down.
    run_json(&["inspect", &data, "--ram", "512MiB", "--config", &config, "--write"]);
    let written = fs::read_to_string(balls.path("data/dataset.json")).unwrap();
    assert!(written.find("whole") < written.find("core"), "{written}");
    let again = run_json(&["inspect", &data, "--ram", "512MiB", "--config", "/dev/null"]);
    assert_eq!(again["regions"], described["regions"]);
    fs::remove_file(balls.path("data/dataset.json")).unwrap();

    let error = |toml: &str| {
        let config = balls.config(toml);
        run_error(&["inspect", &data, "--ram", "512MiB", "--config", &config])
    };
    let short = error(&format!("{regions}order = ['whole', 'core']"));
    assert!(short.contains("`order` is [whole, core]") && short.contains("each region once"), "{short}");
    let written = error(&format!("{regions}order = ['whole', 'core', 'enhancing']\nwritten = [1, 2]"));
    assert!(written.contains("`written` is [1, 2]"), "{written}");
    let unknown = error(&format!("{regions}order = ['whole', 'core', 'enhancing']\nwritten = [1, 2, 3]"));
    assert!(unknown.contains("what is written for enhancing") && unknown.contains("0, 1, 2, 4"), "{unknown}");
    let of_labels = "labels = { edema = 1, necrosis = 2, enhancing = 4 }\n";
    let other = error(&format!("{of_labels}[regions]\norder = ['a', 'b']\na = [1, 3]\nb = 1"));
    assert!(other.contains("`a` is 3") && other.contains("labels have the values 0, 1, 2, 4"), "{other}");
    let empty = error("[regions]\norder = ['a', 'b']\na = []\nb = [1, 2]\nwritten = [1, 2]");
    assert!(empty.contains("a region needs at least one value"), "{empty}");
    let background = error("[regions]\norder = ['a', 'b']\na = [0, 1]\nb = 2\nwritten = [1, 2]");
    assert!(background.contains("`a` is 0") && background.contains("background"), "{background}");
    let which = error("[regions]\norder = ['a', 'b']\na = [1, 2, 4]\nb = 4");
    assert!(which.contains("the value to write must be set"), "{which}");
    let none = error("[regions]\norder = ['a', 'b', 'c']\na = 1\nb = 2\nc = 4");
    assert!(none.contains("leave the regions out"), "{none}");
}

#[test]
fn a_description_of_regions_that_cannot_be_is_an_error() {
    let balls = Balls::new();
    let data = text(&balls.path("data")).to_string();
    let error = |labels: &str, order: &str| {
        let text = format!(
            r#"{{"channel_names": {{"0": "MR"}}, "file_ending": ".nii.gz", "labels": {labels} {order}}}"#
        );
        fs::write(balls.path("data/dataset.json"), text).unwrap();
        run_error(&["inspect", &data, "--ram", "512MiB", "--config", "/dev/null"])
    };
    let good = r#"{"background": 0, "whole": [1, 2, 4], "core": [2, 4]}"#;
    let order = |order: &str| format!(r#", "regions_class_order": {order}"#);
    assert!(error(good, "").contains("no entry `regions_class_order`"));
    assert!(error(good, &order("[1]")).contains("a list of 2 values, one for each region"));
    assert!(error(good, &order("[1, 3]")).contains("what is written for core` is 3"));
    assert!(error(good, &order("[0, 1]")).contains("the value of the background"));
    let empty = r#"{"background": 0, "whole": [1, 2], "core": []}"#;
    assert!(error(empty, &order("[1, 2]")).contains("a region must have from 1 to"));
    let background = r#"{"background": 0, "whole": [0, 1], "core": 1}"#;
    assert!(error(background, &order("[1, 1]")).contains("the value of the background"));
    let wide = r#"{"background": 0, "whole": [1, 256], "core": 1}"#;
    assert!(error(wide, &order("[1, 1]")).contains("`labels.whole[1]` is 256"));
    assert!(error(r#"{"whole": [1, 2], "core": 1}"#, &order("[1, 1]")).contains("labels.background"));
}

#[test]
fn a_loss_that_is_of_classes_alone_is_refused_for_regions() {
    let balls = Balls::new();
    let (data, run) = (balls.path("data"), balls.path("run"));
    let config = balls.config("loss = { components = [{ name = 'soft_dice' }, { name = 'cross_entropy' }] }");
    let error = run_error(&Balls::train(text(&data), text(&run), &["--epochs", "1", "--config", &config]));
    assert!(error.contains("cross_entropy") && error.contains("regions overlap"), "{error}");
    for (component, found) in
        [("name = 'soft_dice'", false), ("name = 'weighted_bce', activation = 'sigmoid'", true)]
    {
        let config = balls
            .config(&format!("loss = {{ components = [{{ {component}, include_background = {found} }}] }}"));
        let error =
            run_error(&Balls::train(text(&data), text(&run), &["--epochs", "1", "--config", &config]));
        let said = format!("is {found}, but outputs are regions");
        assert!(error.contains(&said) && error.contains("hint: leave `include_background` out"), "{error}");
    }
    assert!(!run.join("fold_0").exists());
}
