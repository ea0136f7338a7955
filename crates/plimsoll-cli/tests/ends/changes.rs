//! The changes that a run accepts on resumption, and those that it refuses.

use std::fs;
use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, StoredVolume, VolumeWriter};

use super::Running;
use crate::support::{Ended, Tiny, expect_same, plimsoll, warnings};

fn error(tiny: &Tiny, run: &Path, more: &[&str]) -> String {
    Ended::run(&mut tiny.train(run, more)).error(1)
}

/// Changes the class of the last voxel of a label map.
fn change_last_voxel(path: &Path) {
    let volume = StoredVolume::read(path, &Budget::new(Bytes::mib(8)), "test").unwrap();
    let mut labels = volume.bytes().to_vec();
    *labels.last_mut().unwrap() ^= 1;
    let mut writer = VolumeWriter::create(path, volume.geometry(), 1, ElementType::U8, None).unwrap();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
}

#[test]
fn data_that_has_changed_since_a_run_began_is_named() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &[]);
    let before = fs::read(run.join("fold_0/checkpoint_latest.safetensors")).unwrap();

    // One voxel of the labels.
    let label = tiny.data.join("labelsTr/vessel_001.nii.gz");
    let kept = fs::read(&label).unwrap();
    change_last_voxel(&label);
    let said = error(&tiny, &run, &["--resume"]);
    assert!(
        said.contains("was started with other data; changed since: vessel_001\nhint: restore the data"),
        "{said}"
    );
    assert!(said.contains("--accept-changed-data"), "{said}");

    // A case that is gone.
    fs::remove_file(&label).unwrap();
    let image = tiny.data.join("imagesTr/vessel_001_0000.nii.gz");
    let kept_image = fs::read(&image).unwrap();
    fs::remove_file(&image).unwrap();
    let said = error(&tiny, &run, &["--resume"]);
    assert!(said.contains("vessel_001"), "{said}");
    fs::write(&image, kept_image).unwrap();
    fs::write(&label, kept).unwrap();

    // Another class.
    let description = tiny.data.join("dataset.json");
    let text = fs::read_to_string(&description).unwrap();
    fs::write(&description, text.replace("\"vessel\": 1", "\"vein\": 1")).unwrap();
    let said = error(&tiny, &run, &["--resume"]);
    assert!(said.contains("changed since: the classes of dataset.json\n"), "{said}");
    fs::write(&description, text).unwrap();

    assert!(fs::read(run.join("fold_0/checkpoint_latest.safetensors")).unwrap() == before);
    tiny.trained(&run, &["--resume"]);
}

#[test]
fn data_that_has_changed_is_taken_as_it_is_where_that_is_asked_for_and_that_is_written_down() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--epochs", "1"]);
    change_last_voxel(&tiny.data.join("labelsTr/vessel_001.nii.gz"));
    tiny.trained(&run, &["--epochs", "2", "--resume", "--accept-changed-data"]);
    let text = fs::read_to_string(run.join("fold_0/specification.json")).unwrap();
    let specification: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(specification["amendments"][0]["data"], serde_json::json!(["vessel_001"]));
    assert_eq!(specification["amendments"][0]["steps"], 2);
    // What was accepted is what is expected from now on.
    tiny.trained(&run, &["--resume"]);
}

#[test]
fn a_run_that_goes_on_has_its_own_settings_and_names_exactly_those_that_differ() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--learning-rate", "0.02", "--seed", "7"]);
    let said = error(&tiny, &run, &["--resume", "--batch-size", "4"]);
    let expected =
        "fold_0 is a run with other settings: batch_size was 2, now 4\nhint: leave these settings out";
    assert!(said.contains(expected), "{said}");
    let said = error(&tiny, &run, &["--resume", "--batch-size", "4", "--seed", "8"]);
    assert!(said.contains("settings: seed was 7, now 8; batch_size was 2, now 4\n"), "{said}");
    // Tensors of checkpoints have other shapes then: the settings are named, and not the tensors.
    let said = error(&tiny, &run, &["--resume", "--features", "16,64"]);
    assert!(
        said.contains("settings: network.features was [4, 8], now [16, 64]\nhint: leave these settings out"),
        "{said}"
    );
    // Neither is a plan made first that does not fit.
    let said = error(&tiny, &run, &["--resume", "--features", "512,1024"]);
    assert!(said.contains("settings: network.features was [4, 8], now [512, 1024]\n"), "{said}");
    tiny.trained(&run, &["--resume"]);
    let said = error(&tiny, &run, &[]);
    assert!(said.contains("fold_0 already holds a run\nhint: add --resume"), "{said}");
    let nothing = tiny.path("nothing");
    let said = error(&tiny, &nothing, &["--resume"]);
    assert!(said.contains("there is no run to resume: "), "{said}");
    assert!(said.contains("nothing/fold_0/specification.json does not exist"), "{said}");
    assert!(!nothing.exists());
}

#[test]
fn more_epochs_extend_a_run_and_what_that_does_to_its_schedule_is_said() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &[]);
    let ended = tiny.trained(&run, &["--resume", "--epochs", "4"]);
    let said = "extended from 2 to 4 epochs: from step 4 on, learning rates follow a run of 4 epochs";
    assert_eq!(warnings(&run.join("fold_0")), [said]);
    assert!(ended.said.contains(&format!("warning: {said}")), "{ended:?}");
    let metrics = fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap();
    let rates: Vec<f64> = metrics
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["learning_rate"].as_f64().unwrap()
        })
        .collect();
    // 0.01 · (1 - step / steps)^0.9, of 4 steps at first and then of 8, at the last step of each epoch.
    let rate = |step: f64, steps: f64| 0.01 * (1.0 - step / steps).powf(0.9);
    let expected = [rate(1.0, 4.0), rate(3.0, 4.0), rate(5.0, 8.0), rate(7.0, 8.0)];
    assert_eq!(rates.len(), expected.len());
    assert!(
        rates.iter().zip(expected).all(|(found, expected)| (found / expected - 1.0).abs() < 1e-12),
        "{rates:?}"
    );
    let said = error(&tiny, &run, &["--resume", "--epochs", "1"]);
    assert!(said.contains("4 epochs are already finished, but `epochs` is 1"), "{said}");
}

#[test]
fn folds_are_named_once_and_stay_those_of_the_run() {
    let tiny = Tiny::new();
    let (run, whole) = (tiny.path("run"), tiny.path("whole"));
    let splits = |name: &str, val: usize| {
        let path = tiny.path(name);
        let cases = (0..3).map(|case| format!("vessel_{case:03}"));
        let (val, train): (Vec<_>, Vec<_>) = cases.enumerate().partition(|(case, _)| *case == val);
        let ids = |cases: Vec<(usize, String)>| cases.into_iter().map(|(_, id)| id).collect::<Vec<_>>();
        let folds = serde_json::json!([{ "train": ids(train), "val": ids(val) }]);
        fs::write(&path, folds.to_string()).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (one, other) = (splits("one.json", 0), splits("other.json", 2));
    tiny.trained(&whole, &["--splits", &one, "--epochs", "3"]);
    tiny.trained(&run, &["--splits", &one, "--epochs", "3"]);
    for name in ["latest", "final"] {
        fs::remove_file(run.join(format!("fold_0/checkpoint_{name}.safetensors"))).unwrap();
    }
    let said = error(&tiny, &run, &["--epochs", "3", "--resume", "--splits", &other]);
    assert!(said.contains("is a run with other settings: the cases of the fold was "), "{said}");
    assert!(said.contains("1 (vessel_000) to validate with") && said.contains("1 (vessel_002)"), "{said}");
    tiny.trained(&run, &["--epochs", "3", "--resume"]);
    expect_same(&run, &whole, "without --splits");
    tiny.trained(&run, &["--epochs", "3", "--resume", "--splits", &one]);
}

#[test]
fn a_case_that_was_added_changes_nothing_of_a_run_that_was_begun_before() {
    let tiny = Tiny::new();
    let (whole, run) = (tiny.path("whole"), tiny.path("run"));
    let settings = ["--epochs", "30"];
    tiny.trained(&whole, &settings);
    let epochs = || fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap_or_default().lines().count();
    let killed = Running::start(&mut tiny.train(&run, &settings)).until(|| epochs() > 2).signal("KILL").end();
    assert_eq!(killed.status, None);
    // Intensities of the data set, by which images are normalised, have changed; the run's have not.
    add_case(&tiny, "vessel_003");
    let said = error(&tiny, &run, &["--epochs", "30", "--resume"]);
    assert!(said.contains("which are in none of its folds: vessel_003\nhint: add --new-cases"), "{said}");
    tiny.trained(&run, &["--epochs", "30", "--resume", "--new-cases", "leave-out"]);
    let read = |run: &Path, file: &str| fs::read(run.join("fold_0").join(file)).unwrap();
    let weights = "checkpoint_final.safetensors";
    assert!(read(&run, weights) == read(&whole, weights), "with a case more");
    // What was chosen is written down, and holds.
    let specification: serde_json::Value = serde_json::from_slice(&read(&run, "specification.json")).unwrap();
    assert_eq!(specification["left_out"], serde_json::json!(["vessel_003"]));
    assert_eq!(specification["amendments"], serde_json::json!([]));
    tiny.trained(&run, &["--epochs", "30", "--resume"]);
}

/// Adds a case that is a copy of the first.
fn add_case(tiny: &Tiny, name: &str) {
    for (folder, ending) in [("imagesTr", "_0000"), ("labelsTr", "")] {
        let path = |case: &str| tiny.data.join(folder).join(format!("{case}{ending}.nii.gz"));
        fs::copy(path("vessel_000"), path(name)).unwrap();
    }
}

#[test]
fn cases_that_a_data_set_has_gained_are_named_and_included_or_left_out_by_choice() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let of = |fold: &'static str, more: &[&'static str]| {
        [&["--epochs", "1", "--fold", fold, "--skip-validation"], more].concat()
    };
    tiny.trained(&run, &of("0", &[]));
    let folds = || -> Vec<plimsoll_data::Fold> {
        serde_json::from_slice(&fs::read(run.join("splits_final.json")).unwrap()).unwrap()
    };
    let before = folds();
    add_case(&tiny, "vessel_003");
    let said = error(&tiny, &run, &of("1", &[]));
    assert!(
        said.contains("run was started without these cases, which are in none of its folds: vessel_003"),
        "{said}"
    );
    assert!(!run.join("fold_1").exists() && folds() == before);
    tiny.trained(&run, &of("1", &["--new-cases", "include"]));
    let after = folds();
    assert_eq!(after[0], before[0]);
    let new = String::from("vessel_003");
    assert!(after[1].val.contains(&new) && !after[1].train.contains(&new));
    assert!(after[2].train.contains(&new) && !after[2].val.contains(&new));
    // Both folds normalise images alike, since one model predicts with both.
    let intensities = |fold: &str| -> serde_json::Value {
        let text = fs::read(run.join(fold).join("specification.json")).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&text).unwrap();
        all["config"]["task"]["segmentation"]["dataset"]["foreground_intensity_properties_per_channel"]
            .clone()
    };
    assert!(intensities("fold_0").is_object() && intensities("fold_0") == intensities("fold_1"));
    // Nothing is new any more. What comes next can still be left out.
    tiny.trained(&run, &of("0", &["--resume"]));
    add_case(&tiny, "vessel_004");
    let ended = tiny.trained(&run, &of("2", &["--new-cases", "leave-out"]));
    assert!(ended.said.contains("warning: the case vessel_004 is left out of all folds"), "{ended:?}");
    // All folds are begun.
    add_case(&tiny, "vessel_005");
    let said = error(&tiny, &run, &of("2", &["--resume", "--new-cases", "include"]));
    assert!(
        said.contains("has started all its folds without these cases: vessel_005\nhint: start another run"),
        "{said}"
    );
}

#[test]
fn a_fold_that_begins_after_data_has_changed_is_refused_by_name() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let of = |fold: &'static str, more: &[&'static str]| {
        [&["--epochs", "1", "--fold", fold, "--skip-validation"], more].concat()
    };
    tiny.trained(&run, &of("0", &[]));
    change_last_voxel(&tiny.data.join("labelsTr/vessel_001.nii.gz"));
    let said = error(&tiny, &run, &of("1", &[]));
    assert!(
        said.contains("run was started with other data; changed since: vessel_001\nhint: restore"),
        "{said}"
    );
    assert!(!run.join("fold_1").exists());
    tiny.trained(&run, &of("1", &["--accept-changed-data"]));
    // A case that is gone is taken out of the fold that is left.
    for path in ["imagesTr/vessel_001_0000.nii.gz", "labelsTr/vessel_001.nii.gz"] {
        fs::remove_file(tiny.data.join(path)).unwrap();
    }
    let said = error(&tiny, &run, &of("2", &[]));
    assert!(
        said.contains("started with cases that the data set no longer has: vessel_001\nhint: restore"),
        "{said}"
    );
    // Accepted, it is in no list of the fold that begins, and stays in the lists of the others.
    tiny.trained(&run, &of("2", &["--accept-changed-data"]));
    let splits: Vec<plimsoll_data::Fold> =
        serde_json::from_slice(&fs::read(run.join("splits_final.json")).unwrap()).unwrap();
    let has =
        |fold: &plimsoll_data::Fold| fold.train.iter().chain(&fold.val).any(|case| case == "vessel_001");
    assert_eq!(splits.iter().map(has).collect::<Vec<_>>(), [true, true, false]);
    let begun = read_json(&run.join("fold_2/specification.json"));
    assert!(!begun["cases"].to_string().contains("vessel_001"), "{begun}");
}

#[test]
fn a_class_that_only_validation_cases_have_is_named() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let description = tiny.data.join("dataset.json");
    let text = fs::read_to_string(&description).unwrap();
    let text = text.replace("\"vessel\": 1", "\"vessel\": 1, \"rare\": 2, \"absent\": 3");
    fs::write(&description, text).unwrap();
    let splits = tiny.path("splits.json");
    let folds = serde_json::json!([{ "train": ["vessel_000", "vessel_002"], "val": ["vessel_001"] }]);
    fs::write(&splits, folds.to_string()).unwrap();
    let label = tiny.data.join("labelsTr/vessel_001.nii.gz");
    let volume = StoredVolume::read(&label, &Budget::new(Bytes::mib(8)), "test").unwrap();
    let mut labels = volume.bytes().to_vec();
    *labels.last_mut().unwrap() = 2;
    let mut writer = VolumeWriter::create(&label, volume.geometry(), 1, ElementType::U8, None).unwrap();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
    let ended = tiny.trained(&run, &["--epochs", "1", "--splits", splits.to_str().unwrap()]);
    let expected = [
        "class rare is in no training case of fold 0, but in 1 validation cases, such as vessel_001",
        "class absent is in no case of fold 0",
    ];
    assert_eq!(warnings(&run.join("fold_0")), expected);
    for warning in expected {
        assert!(ended.said.contains(&format!("warning: {warning}")), "{ended:?}");
    }
    // A call that resumes prints them again, but the run and its page list each once.
    tiny.trained(&run, &["--epochs", "2", "--resume"]);
    let ended = tiny.trained(&run, &["--epochs", "3", "--resume"]);
    assert!(ended.said.contains(&format!("warning: {}", expected[0])), "{ended:?}");
    let mut of_classes = warnings(&run.join("fold_0"));
    of_classes.retain(|warning| warning.starts_with("class "));
    assert_eq!(of_classes, expected);
    let page = tiny.path("page.html");
    let written = [("report", run.as_path()), ("-o", page.as_path())];
    let args = written.iter().flat_map(|(word, path)| [word, path.to_str().unwrap()]);
    assert_eq!(Ended::run(plimsoll().args(args)).status, Some(0));
    assert_eq!(fs::read_to_string(page).unwrap().matches(&format!("<td>{}", expected[0])).count(), 1);
}

/// A loss of which one component is computed on some steps.
fn staggered(tiny: &Tiny, every: u64, weight: f64) -> String {
    let path = tiny.path(&format!("every {every}, {weight}.toml"));
    let text = format!(
        "[[loss.components]]\nname = \"soft_dice\"\nweight = {weight}\n\n[[loss.components]]\nname = \"boundary\"\nevery = \
         {every}\nweight = 0.1\notherwise = \"boundary_l1\"\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

fn read_json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn loss_and_learning_rate_change_on_resume_are_recorded_and_kills_do_not_change_the_bits() {
    let tiny = Tiny::new();
    let (whole, killed) = (tiny.path("whole"), tiny.path("killed"));
    let (before, after) = (staggered(&tiny, 2, 1.0), staggered(&tiny, 1, 0.5));
    let first = ["--config", &before, "--epochs", "2"];
    let change = ["--config", &after, "--epochs", "30", "--resume", "--learning-rate", "0.02"];
    for run in [&whole, &killed] {
        tiny.trained(run, &first);
    }
    let ended = tiny.trained(&whole, &change);
    let said = "warning: loss: `otherwise` of boundary is unused: with every = 1 there is no step without the component";
    assert!(ended.said.contains(said), "{ended:?}");
    let epochs =
        || fs::read_to_string(killed.join("fold_0/metrics.jsonl")).unwrap_or_default().lines().count();
    let ended = Running::start(&mut tiny.train(&killed, &change)).until(|| epochs() > 4).signal("KILL").end();
    assert_eq!(ended.status, None);
    tiny.trained(&killed, &["--epochs", "30", "--resume"]);
    expect_same(&killed, &whole, "after a change and a kill");

    for run in [&whole, &killed] {
        let amendments = read_json(&run.join("fold_0/specification.json"))["amendments"].clone();
        assert_eq!(amendments.as_array().unwrap().len(), 1, "{amendments}");
        let events = fs::read_to_string(run.join("fold_0/events.jsonl")).unwrap();
        let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let changes: Vec<serde_json::Value> = events.filter(|event| event["event"] == "change").collect();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0]["steps"], 4);
        let what = "epochs was 2, now 30; learning_rate was 0.01, now 0.02; loss.soft_dice.weight was 1.0, now 0.5; \
                    loss.boundary.every was 2, now 1";
        for part in what.split("; ") {
            assert!(changes[0]["what"].as_str().unwrap().contains(part), "{part}: {changes:?}");
        }
        let page = tiny.path("page.html");
        let mut report = crate::support::plimsoll();
        let ended = Ended::run(report.arg("report").arg(run).arg("-o").arg(&page));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(fs::read_to_string(&page).unwrap().contains("loss.boundary.every was 2, now 1"));
    }
    let metrics = fs::read_to_string(whole.join("fold_0/metrics.jsonl")).unwrap();
    let third: serde_json::Value = serde_json::from_str(metrics.lines().nth(2).unwrap()).unwrap();
    // By hand: 0.02 · (1 − 5/60)^0.9 at the last step of the third epoch.
    let rate = 0.02 * (1.0 - 5.0 / 60.0f64).powf(0.9);
    assert!((third["learning_rate"].as_f64().unwrap() / rate - 1.0).abs() < 1e-12, "{third}");
}

#[test]
fn a_rule_that_ends_a_run_may_change_and_scores_of_another_kind_are_not_compared() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let rule = |name: &str, text: &str| {
        let path = tiny.path(name);
        fs::write(&path, format!("[early_stopping]\npatience = 50\n{text}")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (dice, loss) = (rule("dice.toml", ""), rule("loss.toml", "score = \"validation_loss\"\n"));
    tiny.trained(&run, &["--config", &dice]);
    tiny.trained(&run, &["--config", &loss, "--resume", "--epochs", "3"]);
    let file = plimsoll_nn::weights::SafetensorsFile::open(&run.join("fold_0/checkpoint_latest.safetensors"))
        .unwrap();
    let progress: serde_json::Value = serde_json::from_str(&file.metadata()["plimsoll.progress"]).unwrap();
    let metrics = fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    let best = -last["validation_loss"].as_f64().unwrap();
    assert_eq!(
        progress["patience"],
        serde_json::json!([best, 0]),
        "the third epoch's loss is the first of its kind"
    );
}

#[test]
fn an_epoch_that_is_begun_counts_for_the_least_number_of_epochs() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &[]);
    let said = error(&tiny, &run, &["--resume", "--epochs", "1"]);
    assert!(
        said.contains("2 epochs are already finished, but `epochs` is 1\nhint: set --epochs 2 or more"),
        "{said}"
    );
    tiny.trained(&run, &["--resume", "--epochs", "2"]);
}

#[test]
fn checkpoints_that_cannot_be_used_are_answered_with_a_way_to_begin_anew_that_works() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &[]);
    for name in ["latest", "previous", "final", "best"] {
        let path = run.join(format!("fold_0/checkpoint_{name}.safetensors"));
        if path.exists() {
            fs::write(path, "damaged").unwrap();
        }
    }
    let said = error(&tiny, &run, &["--resume"]);
    assert!(said.contains("no checkpoint in ") && said.contains("without --resume"), "{said}");
    let folder = said.split("or remove ").nth(1).unwrap().split(" and give").next().unwrap();
    fs::remove_dir_all(folder).unwrap();
    tiny.trained(&run, &[]);
}

#[test]
fn a_folder_has_one_use() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--skip-validation"]);
    let images = tiny.data.join("imagesTs");
    let predict = |to: &std::path::Path| {
        let mut command = plimsoll();
        command.args(["predict", "-m"]).arg(&run).arg("-i").arg(&images).arg("-o").arg(to);
        Ended::run(command.args(["--ram", "512MiB", "--threads", "1"]))
    };
    let error = predict(&run).error(1);
    assert!(
        error.contains("holds folds of a run that labels voxels, so it cannot also hold predictions"),
        "{error}"
    );
    let labels = run.join("labels");
    assert_eq!(predict(&labels).status, Some(0), "a folder below it is another one");
    for (out, held) in [
        (labels.clone(), "holds predictions"),
        (run.join("fold_0"), "holds one fold of a run"),
        (run.join("fold_0/more"), "holds one fold of a run"),
    ] {
        let error = Ended::run(&mut tiny.train(&out, &[])).error(1);
        assert!(error.contains(held) && error.contains("another folder with --out"), "{error}");
        assert!(!out.join("fold_0").exists());
    }
}
