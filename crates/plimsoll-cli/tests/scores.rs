//! Scores of runs and predictions, from the command line: which voxels count, which cases, and against which references.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Ended, Tiny, plimsoll, run, run_error, run_json};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeFile, VolumeWriter, VoxelBox};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn voxels(path: &Path) -> (Vec<u8>, [usize; 3]) {
    let mut file = VolumeFile::open(path).unwrap();
    let shape = file.geometry().shape();
    let mut labels = vec![0; shape.iter().product()];
    file.region_labels(0, VoxelBox::whole(shape), &mut labels).unwrap();
    (labels, shape)
}

fn write(path: &Path, shape: [usize; 3], labels: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn close(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found}"));
    assert!((found - expected).abs() < 1e-9, "{what}: {found}, {expected}");
}

/// A data set of which the front half of each case is not annotated.
fn half_annotated() -> Tiny {
    let tiny = Tiny::new();
    let described = tiny.data.join("dataset.json");
    let mut description = json(described.clone());
    description["labels"] = serde_json::json!({"background": 0, "vessel": 1, "ignore": 2});
    fs::write(&described, description.to_string()).unwrap();
    for entry in fs::read_dir(tiny.data.join("labelsTr")).unwrap() {
        let path = entry.unwrap().path();
        let mut file = VolumeFile::open(&path).unwrap();
        let geometry = *file.geometry();
        let shape = geometry.shape();
        let mut labels = vec![0; shape.iter().product()];
        file.region_labels(0, VoxelBox::whole(shape), &mut labels).unwrap();
        let half = shape[0] / 2 * shape[1] * shape[2];
        labels[..half].fill(2);
        let mut writer = VolumeWriter::create(&path, &geometry, 1, ElementType::U8, None).unwrap();
        writer.write_planes(&labels).unwrap();
        writer.finish().unwrap();
    }
    tiny
}

/// Replaces the predictions of a network that learned nothing: three quarters of each vessel, and all that is not annotated.
fn predict_instead(validation: &Path) {
    let summary = validation.join("summary.json");
    let case = json(summary.clone())["metric_per_case"][0].clone();
    let [prediction, reference] =
        ["prediction_file", "reference_file"].map(|key| PathBuf::from(case[key].as_str().unwrap()));
    let (expected, _) = voxels(&reference);
    let geometry = *VolumeFile::open(&prediction).unwrap().geometry();
    let mut seen = 0;
    let found: Vec<u8> = expected
        .iter()
        .map(|label| {
            seen += usize::from(*label == 1);
            u8::from(*label == 2 || *label == 1 && seen % 4 > 0)
        })
        .collect();
    let mut writer = VolumeWriter::create(&prediction, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&found).unwrap();
    writer.finish().unwrap();
    fs::remove_file(summary).unwrap();
}

/// Validation, cross-validation, evaluation, comparison, the report and the choice of steps agree with a count over annotated voxels.
#[test]
fn voxels_that_are_not_annotated_take_part_in_no_score_of_a_run() {
    let tiny = half_annotated();
    let run_folder = tiny.path("run");
    tiny.trained(&run_folder, &["--folds", "0,1"]);
    for fold in 0..2 {
        predict_instead(&run_folder.join(format!("fold_{fold}/validation")));
    }
    // Predictions that are there are scored anew.
    tiny.trained(&run_folder, &["--folds", "0,1", "--resume"]);
    let mut dice = Vec::new();
    for fold in 0..2 {
        let validation = run_folder.join(format!("fold_{fold}/validation"));
        let summary = json(validation.join("summary.json"));
        let case = &summary["metric_per_case"][0];
        let file = |key: &str| PathBuf::from(case[key].as_str().unwrap());
        let ((predicted, shape), (expected, _)) =
            (voxels(&file("prediction_file")), voxels(&file("reference_file")));
        let counted = predicted.iter().zip(&expected).filter(|(_, expected)| **expected != 2);
        let mut counts = [[0.0; 2]; 2];
        counted.for_each(|(found, own)| counts[usize::from(*own)][usize::from(*found)] += 1.0);
        let [[tn, fp], [fn_, tp]] = counts;
        assert!(tp > 0.0 && fn_ > 0.0, "there is something to score");
        assert_eq!(tn + fp + fn_ + tp, (shape[1] * shape[2] * (shape[0] - shape[0] / 2)) as f64);
        for (name, count) in [("TP", tp), ("FP", fp), ("FN", fn_), ("TN", tn)] {
            close(&case["metrics"]["1"][name], count, name);
        }
        dice.push(2.0 * tp / (2.0 * tp + fp + fn_));
        assert!(dice[fold] > 0.8, "what is predicted in the other half lowers nothing: {dice:?}");
        close(&summary["foreground_mean"]["Dice"], dice[fold], "validation");
        let scores = tiny.path("scores.json");
        let args = ["evaluate", text(&validation), text(&tiny.data), "--partial", "-o", text(&scores)];
        let evaluated = run_json(&args);
        close(&evaluated["foreground_mean"]["Dice"], dice[fold], "evaluate");
        assert_eq!(evaluated["metric_per_case"][0]["metrics"], case["metrics"]);
    }
    let mean = dice.iter().sum::<f64>() / 2.0;
    close(&json(run_folder.join("cv.json"))["foreground"]["Dice"]["mean"], mean, "cross-validation");
    let copy = tiny.path("copy");
    tiny.trained(&copy, &["--folds", "0,1", "--epochs", "1"]);
    let compared = run_json(&["compare", text(&run_folder), text(&copy), "--resamples", "20"]);
    close(&compared["scores"][0]["candidates"][0]["mean"], mean, "compare");
    let page = tiny.path("page.html");
    assert!(run(&["report", text(&run_folder), "-o", text(&page)]).status.success());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("{mean:.4}")), "the report shows {mean:.4}");
    let chosen = run_json(&["postprocess", text(&run_folder), "--choose"]);
    close(&chosen["chosen"]["labels"][0]["dice_before"], mean, "the choice of steps");
}

/// The recipe's numbers: half of 24 × 24 × 24 voxels are annotated.
#[test]
fn evaluation_counts_annotated_voxels_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let shape = [24; 3];
    let at = |voxel: usize| [voxel / 576, voxel / 24 % 24, voxel % 24];
    let inside = |[z, y, x]: [usize; 3], first: usize| {
        (4..20).contains(&z) && (first..first + 8).contains(&y) && (4..20).contains(&x)
    };
    let map = |label: &dyn Fn([usize; 3]) -> u8| {
        (0..24 * 24 * 24).map(|voxel| label(at(voxel))).collect::<Vec<u8>>()
    };
    write(&path("labels/a.nii.gz"), shape, &map(&|at| if at[0] < 12 { 3 } else { u8::from(inside(at, 4)) }));
    write(&path("found/a.nii.gz"), shape, &map(&|at| u8::from(inside(at, 8))));
    let [found, labels] = ["found", "labels"].map(path);
    let scores = |more: &[&str]| {
        let summary = run_json(&[&["evaluate", text(&found), text(&labels), "--labels", "1"], more].concat());
        summary["metric_per_case"][0].clone()
    };
    let masked = scores(&["--ignore", "3", "--metrics", "all"]);
    assert_eq!(masked["counted_voxels"], 6912);
    let total: f64 =
        ["TP", "FP", "FN", "TN"].map(|name| masked["metrics"]["1"][name].as_f64().unwrap()).iter().sum();
    assert_eq!(total, 6912.0);
    // Both boxes have 8 × 8 × 16 voxels of the annotated half, and share every second one.
    assert_eq!(masked["metrics"]["1"]["Dice"], 0.5);
    assert_eq!(masked["metrics"]["1"]["HD"], 4.0);
    let unmasked = scores(&[]);
    assert_eq!(
        (&unmasked["counted_voxels"], &unmasked["metrics"]["1"]["n_pred"]),
        (&13824.into(), &2048.0.into())
    );
    let error = run_error(&["evaluate", text(&found), text(&labels), "--labels", "1,3", "--ignore", "3"]);
    assert!(error.contains("class 3 cannot be scored"), "{error}");
}

/// A folder of images and one of label maps with other names, and predictions that are named as images.
struct Named {
    dir: tempfile::TempDir,
}

impl Named {
    fn new() -> Named {
        let dir = tempfile::tempdir().unwrap();
        let shape = [6, 8, 8];
        let map = |first: usize| {
            (0..384).map(|at| u8::from((first..first + 100).contains(&at))).collect::<Vec<u8>>()
        };
        for (case, first) in [("mv01", 50), ("mv02", 80), ("mv03", 100)] {
            write(&dir.path().join(format!("d/raw/{case}.nii.gz")), shape, &map(first));
            write(&dir.path().join(format!("d/seg/{case}_y.nii.gz")), shape, &map(first));
            // A quarter of the voxels is beside the reference.
            write(&dir.path().join(format!("p/{case}.nii.gz")), shape, &map(first + 25));
        }
        Named { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn predictions_are_paired_with_references_as_a_data_set_pairs_its_images() {
    let named = Named::new();
    let predictions = named.path("p");
    for references in ["d", "d/seg"] {
        let references = named.path(references);
        let summary = run_json(&["evaluate", text(&predictions), text(&references)]);
        assert_eq!(summary["metric_per_case"].as_array().unwrap().len(), 3, "{references:?}");
        assert_eq!(
            summary["settings"]["classes"],
            serde_json::json!([1]),
            "classes follow from the label maps"
        );
        close(&summary["foreground_mean"]["Dice"], 0.75, "Dice");
        let first = &summary["metric_per_case"][0];
        assert!(first["prediction_file"].as_str().unwrap().ends_with("p/mv01.nii.gz"), "{first}");
        assert!(first["reference_file"].as_str().unwrap().ends_with("seg/mv01_y.nii.gz"), "{first}");
    }
    fs::remove_file(named.path("p/mv03.nii.gz")).unwrap();
    let error = run_error(&["evaluate", text(&predictions), text(&named.path("d"))]);
    assert!(error.contains("mv03_y.nii.gz") && error.contains("--partial"), "{error}");
    let summary = run_json(&["evaluate", text(&predictions), text(&named.path("d/seg")), "--partial"]);
    assert_eq!(summary["metric_per_case"].as_array().unwrap().len(), 2);
}

/// Pictures of cases find images by the names of predictions.
#[test]
fn pictures_of_cases_are_drawn_for_paired_names() {
    let named = Named::new();
    let [predictions, references, images, pictures] =
        ["p", "d", "d/raw", "pictures"].map(|name| named.path(name));
    let mut command = plimsoll();
    command.args(["evaluate", text(&predictions), text(&references)]);
    command.args(["--images", text(&images), "--pictures", text(&pictures)]);
    let ended = Ended::run(&mut command);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(pictures.join("mv02.png").is_file());
}

/// One model misses two of four cases and is nearer in the others.
#[test]
fn a_model_that_misses_cases_is_not_ranked_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let map = |first: Option<usize>| -> Vec<u8> {
        (0..10 * 10 * 10)
            .map(|at| u8::from(first.is_some_and(|first| (first..first + 2).contains(&(at % 10)))))
            .collect()
    };
    for case in 0..4 {
        let name = |folder: &str| path(&format!("{folder}/case_{case}.nii.gz"));
        write(&name("labels"), [10; 3], &map(Some(2)));
        write(&name("all"), [10; 3], &map(Some(5)));
        write(&name("half"), [10; 3], &map((case < 2).then_some(4)));
    }
    let evaluate = |folder: &str, more: &[&str]| {
        let (found, labels) = (path(folder), path("labels"));
        let args = ["evaluate", text(&found), text(&labels), "--labels", "1", "--metrics", "overlap,surface"];
        let said = run(&[&args[..], &["--surface", "voxels"], more].concat());
        assert!(said.status.success(), "{said:?}");
        (json(found.join("summary.json")), String::from_utf8(said.stdout).unwrap())
    };
    let (all, _) = evaluate("all", &[]);
    assert_eq!(all["mean"]["1"]["HD95"], 3.0);
    let (half, said) = evaluate("half", &[]);
    assert_eq!(half["mean"]["1"]["HD95"], 2.0);
    let cases = serde_json::json!({"defined": 2, "missing": 2, "of": 4});
    assert_eq!((&half["mean_cases"]["1"]["HD95"], &half["settings"]["missing"]), (&cases, &"ignore".into()));
    assert!(said.contains("2.0000 (2 of 4)") && said.contains("favours whoever finds nothing"), "{said}");
    let (_, said) = evaluate("half", &["--missing", "worst"]);
    assert!(said.contains("∞ (2 of 4)"), "{said}");
    let (half, _) = evaluate("half", &["--missing", "diagonal"]);
    close(&half["mean"]["1"]["HD95"], (2.0 + 300f64.sqrt()) / 2.0, "two distances and two diagonals");
    let [one, other] = ["half", "all"].map(path);
    let compare = |more: &[&str]| {
        let args = ["compare", text(&one), text(&other), "--metric", "hd95", "--resamples", "200"];
        run_json(&[&args[..], more].concat())
    };
    for more in [&[][..], &["--missing", "diagonal"]] {
        let found = compare(more);
        assert_eq!(found["scores"][0]["choice"]["candidate"], "all", "{more:?}");
        assert_eq!(found["scores"][0]["candidates"][0]["counts"], cases);
    }
    let found = compare(&["--missing", "ignore"]);
    assert_eq!(
        (&found["missing"], &found["scores"][0]["choice"]["candidate"]),
        (&"ignore".into(), &"half".into())
    );
    let picture = path("picture.png");
    let said = run(&["compare", text(&one), text(&other), "--metric", "hd95", "--picture", text(&picture)]);
    let printed = String::from_utf8(said.stdout).unwrap();
    assert!(printed.contains("∞ (2.0000 in 2 of 4)") && picture.is_file(), "{printed}");
}
