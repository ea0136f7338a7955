//! Scores, through the command line.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run, run_error, run_json};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

/// Writes a cube of class 1 with an edge of `edge` voxels, which begins at `first` along the width.
fn write(path: &Path, length: usize, edge: usize, first: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let geometry = Geometry::new([length; 3], Affine::from_spacing(Spacing([1.5; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    let row = |inside: bool| (0..length).map(move |x| u8::from(inside && (first..first + edge).contains(&x)));
    for z in 0..length {
        let plane: Vec<u8> = (0..length).flat_map(|y| row(z < edge && y < edge)).collect();
        writer.write_planes(&plane).unwrap();
    }
    writer.finish().unwrap();
}

struct Maps {
    dir: tempfile::TempDir,
    prediction: PathBuf,
    reference: PathBuf,
}

fn maps(length: usize, edge: usize) -> Maps {
    let dir = tempfile::tempdir().unwrap();
    let [prediction, reference] =
        ["predictions", "references"].map(|name| dir.path().join(name).join("a.nii.gz"));
    write(&prediction, length, edge, 1);
    write(&reference, length, edge, 0);
    Maps { dir, prediction, reference }
}

impl Maps {
    /// Compares the two folders.
    fn folders<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let [prediction, reference] =
            [&self.prediction, &self.reference].map(|path| path.parent().unwrap().to_str().unwrap());
        [&["evaluate", prediction, reference, "--labels", "1,2"], more].concat()
    }
}

#[test]
fn summary_table_and_plots_stand_with_the_predictions() {
    let maps = maps(12, 5);
    let summary = run_json(&maps.folders(&["--metrics", "all", "--surface", "voxels", "--tolerance", "1.5"]));
    let scores = &summary["metric_per_case"][0]["metrics"]["1"];
    assert_eq!(scores["Dice"], 0.8);
    assert_eq!((&scores["HD"], &scores["NSD"]), (&1.5.into(), &1.0.into()));
    assert_eq!((&scores["LesionF1"], &scores["Betti0Error"]), (&1.0.into(), &0.0.into()));
    assert!(summary["metric_per_case"][0]["metrics"]["2"]["HD95"].is_null());
    assert_eq!(summary["foreground_mean"]["HD"], 1.5);
    assert_eq!(summary["settings"]["surface"], "voxels");
    let folder = maps.prediction.parent().unwrap();
    let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&file("summary.json")).unwrap(), summary);
    assert!(file("scores.csv").starts_with("case,class,Dice,IoU,Sensitivity,Precision,"));
    // A box of one case says nothing that its numbers do not.
    assert!(!folder.join("scores.svg").exists());
}

#[test]
fn overlap_alone_is_scored_unless_more_is_asked_for() {
    let maps = maps(12, 5);
    let out = maps.dir.path().join("fold.json");
    let summary = run_json(&maps.folders(&["-o", out.to_str().unwrap()]));
    assert!(summary["foreground_mean"]["IoU"].is_number() && summary["foreground_mean"]["HD"].is_null());
    assert!(summary["foreground_mean"].as_object().unwrap().keys().all(|name| name != "HD"));
    assert!(["json", "csv"].iter().all(|ending| out.with_extension(ending).is_file()));
    // Two files are one case.
    let [prediction, reference] = [&maps.prediction, &maps.reference].map(|path| path.to_str().unwrap());
    let alone = run_json(&["evaluate", prediction, reference, "--labels", "1,2"]);
    assert_eq!(alone["foreground_mean"], summary["foreground_mean"]);
}

#[test]
fn classes_are_the_labels_of_the_maps_without_a_data_set() {
    let maps = maps(12, 5);
    let [prediction, reference] = [&maps.prediction, &maps.reference].map(|path| path.to_str().unwrap());
    let named = run_json(&["evaluate", prediction, reference, "--labels", "1"]);
    let found = run_json(&["evaluate", prediction, reference]);
    assert_eq!(found["settings"]["classes"], serde_json::json!([1]));
    assert_eq!(found["foreground_mean"], named["foreground_mean"]);
    // Folders beside the folders of maps are not affected, whatever they contain.
    for folder in ["other/imagesTr", "more/labels"] {
        fs::create_dir_all(maps.dir.path().join(folder)).unwrap();
    }
    let [predictions, references] = [&maps.prediction, &maps.reference].map(|path| path.parent().unwrap());
    let found = run_json(&["evaluate", predictions.to_str().unwrap(), references.to_str().unwrap()]);
    assert_eq!(found["foreground_mean"], named["foreground_mean"]);
    write(&maps.prediction, 12, 0, 0);
    write(&maps.reference, 12, 0, 0);
    let error = run_error(&["evaluate", prediction, reference]);
    assert!(error.contains("has a voxel above 0") && error.contains("--labels 1,2"), "{error}");
}

#[test]
fn classes_go_by_their_names_where_a_data_set_has_them() {
    let maps = maps(12, 5);
    let [predictions, references] =
        [&maps.prediction, &maps.reference].map(|path| path.parent().unwrap().to_path_buf());
    write(&predictions.join("b.nii.gz"), 12, 5, 2);
    write(&references.join("b.nii.gz"), 12, 5, 0);
    let [predictions, references] = [&predictions, &references].map(|path| path.to_str().unwrap());
    let asked = |classes| run_error(&["evaluate", predictions, references, "--labels", classes]);
    let error = asked("vessel");
    assert!(
        error.contains("has no dataset.json with names") && error.contains("by their numbers"),
        "{error}"
    );
    let described = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "a <tube>": 1, "cyst": 2},
        "numTraining": 2, "file_ending": ".nii.gz"}"#;
    for case in ["a", "b"] {
        write(&maps.dir.path().join(format!("imagesTr/{case}_0000.nii.gz")), 12, 5, 0);
        write(&maps.dir.path().join(format!("labelsTr/{case}.nii.gz")), 12, 5, 0);
    }
    fs::write(maps.dir.path().join("dataset.json"), described).unwrap();
    let named = run(&["evaluate", predictions, references, "--labels", "a <tube>"]);
    let printed = String::from_utf8_lossy(&named.stdout).into_owned();
    assert!(printed.lines().any(|line| line.contains("a <tube>") && line.contains("0.8000")), "{named:?}");
    let plots = fs::read_to_string(Path::new(predictions).join("scores.svg")).unwrap();
    assert!(
        plots.contains(">a &lt;tube&gt;<") && plots.contains(">Dice<") && !plots.contains(">HD<"),
        "{plots}"
    );
    // Two cases are two points, and no box.
    assert!(plots.matches("<circle").count() > 0 && !plots.contains("<path class=\"box\""), "{plots}");
    let error = asked("tube");
    assert!(error.contains("there is no such class") && error.contains("a <tube>, cyst"), "{error}");
}

/// Red, green and blue of each pixel of a PNG, with its width and height.
fn decoded(path: &Path) -> (Vec<[u8; 3]>, [u32; 2]) {
    let picture = image::open(path).unwrap().to_rgb8();
    (picture.pixels().map(|pixel| pixel.0).collect(), [picture.width(), picture.height()])
}

#[test]
fn a_picture_fills_its_frame_and_shows_the_slice_of_the_largest_error() {
    let dir = tempfile::tempdir().unwrap();
    let place = |folder: &str, name: &str| dir.path().join(folder).join(name);
    // Thick slices: as many millimetres down as across in coronal and sagittal views, of a fifth of the voxels.
    let shape = [12, 60, 60];
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([5.0, 1.0, 1.0]))).unwrap();
    let write = |path: &Path, voxel: &dyn Fn(usize, usize, usize) -> u8| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
        for d in 0..shape[0] {
            let plane: Vec<u8> = (0..shape[1])
                .flat_map(|h| (0..shape[2]).map(move |w| (h, w)))
                .map(|(h, w)| voxel(d, h, w))
                .collect();
            writer.write_planes(&plane).unwrap();
        }
        writer.finish().unwrap();
    };
    let is_in =
        |d: usize, h: usize, w: usize| (2..10).contains(&d) && (10..50).contains(&h) && (10..50).contains(&w);
    write(&place("images", "a_0000.nii.gz"), &|d, h, w| (d + h + w) as u8);
    write(&place("labels", "a.nii.gz"), &|d, h, w| u8::from(is_in(d, h, w)));
    // Right but for a hole in one slice.
    let is_hole = |d: usize, h: usize, w: usize| d == 7 && (20..40).contains(&h) && (30..45).contains(&w);
    write(&place("predictions", "a.nii.gz"), &|d, h, w| u8::from(is_in(d, h, w) && !is_hole(d, h, w)));
    let [predictions, labels, images, pictures] = ["predictions", "labels", "images", "pictures"]
        .map(|name| dir.path().join(name).to_str().unwrap().to_string());
    let args =
        ["evaluate", &predictions, &labels, "--labels", "1", "--images", &images, "--pictures", &pictures];
    run_json(&args);
    let (pixels, [width, height]) = decoded(&place("pictures", "a.png"));
    assert_eq!(width, 1200);
    let count = |colour: [u8; 3]| pixels.iter().filter(|pixel| **pixel == colour).count();
    let [green, orange, yellow] = [[60, 220, 90], [255, 90, 30], [255, 230, 60]].map(count);
    assert!(
        yellow > 2000 && orange > 300,
        "the outlines of both, and of the hole: {green} {orange} {yellow}"
    );
    // Three squares beside each other, and a line of names below: nothing is left empty but that.
    assert!((400..450).contains(&height), "{height}");
    let behind = count([16, 18, 22]);
    assert!(behind < pixels.len() / 12, "{behind} of {} pixels are empty", pixels.len());
}

#[test]
fn scores_do_not_depend_on_threads() {
    let maps = maps(20, 9);
    let [one, three] =
        ["1", "3"].map(|threads| run_json(&maps.folders(&["--metrics", "all", "--threads", threads])));
    assert_eq!(one, three);
}

#[test]
fn a_class_over_the_limit_is_refused_and_nothing_is_written() {
    let maps = maps(220, 219);
    let error = run_error(&maps.folders(&["--metrics", "lesion", "--ram", "80MiB", "--threads", "1"]));
    for part in
        ["a.nii.gz, class 1: ", "219 × 219 × 220 voxels needs", "of 80.0 MiB is free", "hint: raise --ram"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!maps.prediction.with_file_name("summary.json").exists());
    run_json(&maps.folders(&["--ram", "80MiB", "--threads", "1"]));
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let maps = maps(4, 2);
    for wrong in [
        ["--tolerance=-1", "--partial"],
        ["--tolerance", "nan"],
        ["--lesion-overlap", "1.5"],
        ["--surface", "both"],
    ] {
        let error = run_error(&maps.folders(&wrong));
        let option = wrong[0].split('=').next().unwrap();
        assert!(error.contains(option), "{error}");
    }
    assert!(run_error(&["evaluate"]).contains("error: "));
}

#[test]
fn classifications_are_scored_from_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("cases.csv");
    fs::write(&table, "case,label,no,yes\na,no,0.9,0.1\nb,yes,0.6,0.4\nc,yes,0.2,0.8\nd,no,0.7,0.3\n")
        .unwrap();
    let path = table.to_str().unwrap();
    let report = run_json(&["evaluate", "--classification", path, "--resamples", "50", "--seed", "3"]);
    assert_eq!((&report["cases"], &report["overall"]["accuracy"]["value"]), (&4.into(), &0.75.into()));
    assert_eq!(report["overall"]["auroc"]["value"], 1.0);
    assert_eq!(report["confusion_matrix"], serde_json::json!([[2, 0], [1, 1]]));
    let again = ["evaluate", "--classification", path, "--resamples", "50", "--seed", "3"];
    let error = run_error(&again);
    assert!(error.contains("scores.json already exists") && error.contains("--overwrite"), "{error}");
    let again = run_json(&[&again[..], &["--overwrite"]].concat());
    assert_eq!(report, again);
    assert!(fs::read_to_string(dir.path().join("scores.csv")).unwrap().contains("yes,sensitivity,0.5,"));
    assert!(dir.path().join("scores.json").is_file());
    let pictures = fs::read_to_string(dir.path().join("scores.svg")).unwrap();
    for part in
        ["Confusion matrix, 4 cases", ">no: AUC 1.000<", ">yes: AUC 1.000<", "Reliability, calibration error"]
    {
        assert!(pictures.contains(part), "{part}: {pictures}");
    }
    // The curve of `yes`: at 0.8 one of two is found and nothing else, at 0.4 both.
    assert!(pictures.contains("d=\"M0 320L0 160L0 0L160 0L320 0\""), "{pictures}");
    // For half of the cases of `yes` 0.8 is enough; for more it takes 0.4, which still calls no other case positive.
    let wanted = ["evaluate", "--classification", path, "--overwrite", "--sensitivity", "0.5,0.9"];
    let report = run_json(&wanted);
    let found = &report["classes"][1]["thresholds"];
    assert_eq!((&found[0]["threshold"], &found[0]["sensitivity"]["value"]), (&0.8.into(), &0.5.into()));
    assert_eq!((&found[1]["threshold"], &found[1]["sensitivity"]["value"]), (&0.4.into(), &1.0.into()));
    assert_eq!(found[1]["wanted"], 0.9);
    // 2 of 2 with 95 %: z² / (2 + z²) with z = 1.96 is what Wilson's interval leaves out.
    let low = found[1]["specificity"]["low"].as_f64().unwrap();
    assert!((low - 2.0 / (2.0 + 1.959_964f64.powi(2))).abs() < 1e-6, "{low}");
    let printed = run(&wanted);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.lines().any(|line| line.contains("yes") && line.contains("0.9") && line.contains("0.4")),
        "{printed}"
    );
    for wrong in ["0", "1.5", "nan"] {
        let refused = run(&["evaluate", "--classification", path, "--sensitivity", wrong]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("above 0 and at most 1"), "{wrong}");
    }
    assert!(run(&["evaluate", "--classification", path, "--overwrite"]).status.success());
    let error = run_error(&["evaluate", "--classification", path, "-o", path]);
    assert!(error.contains("would replace"), "{error}");
    fs::write(&table, "case,label,no,yes\na,no,0.9,0.2\n").unwrap();
    let error = run_error(&["evaluate", "--classification", path, "--overwrite"]);
    assert!(error.contains("cases.csv, line 2: ") && error.contains("hint: "), "{error}");
}
