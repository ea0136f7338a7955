//! Steps on label maps from the command line: chosen for a run by its validation cases, and done by `predict`.

use std::fs;
use std::path::Path;

use crate::support::{Tiny, plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, StoredVolume, VolumeFile, VolumeWriter};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn labels(path: &Path) -> Vec<u8> {
    StoredVolume::read(path, &Budget::new(Bytes::mib(16)), "test").unwrap().bytes().to_vec()
}

/// Makes the prediction of a case its reference with a voxel more in a corner, which touches nothing.
fn spoil(prediction: &Path, reference: &Path) {
    let truth = StoredVolume::read(reference, &Budget::new(Bytes::mib(16)), "test").unwrap();
    let (geometry, mut found) = (*truth.geometry(), truth.bytes().to_vec());
    assert!(truth.element_type() == ElementType::U8);
    let [_, height, width] = geometry.shape();
    for [d, h, w] in [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]] {
        assert_eq!(found[(d * height + h) * width + w], 0);
    }
    found[0] = 1;
    let mut writer = VolumeWriter::create(prediction, &geometry, 1, ElementType::U8, None).unwrap();
    found.chunks(height * width).for_each(|plane| writer.write_planes(plane).unwrap());
    writer.finish().unwrap();
}

#[test]
fn steps_that_help_are_written_into_the_run_and_done_by_predict() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let early = run_error(&["postprocess", text(&run), "--choose"]);
    assert!(early.contains("no folds with held-out validation cases"), "{early}");
    tiny.trained(&run, &["--fold", "0", "--skip-validation"]);
    let missing = run_error(&["postprocess", text(&run), "--choose"]);
    assert!(missing.contains("fold 0 is not validated") && missing.contains("summary.json"), "{missing}");
    assert!(!run.join("postprocessing.toml").exists());
    fs::remove_dir_all(&run).unwrap();

    for fold in ["0", "1"] {
        tiny.trained(&run, &["--fold", fold]);
    }
    for fold in ["fold_0", "fold_1"] {
        let folder = run.join(fold).join("validation");
        let summary = fs::read(folder.join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
        for case in summary["metric_per_case"].as_array().unwrap() {
            let reference = Path::new(case["reference_file"].as_str().unwrap());
            spoil(Path::new(case["prediction_file"].as_str().unwrap()), reference);
        }
    }
    let chosen = run_json(&["postprocess", text(&run), "--choose", "--threads", "1"]);
    assert_eq!(chosen["chosen"]["folds"], serde_json::json!(["0", "1"]));
    assert_eq!(chosen["chosen"]["cases"], 2);
    let gain = &chosen["chosen"]["labels"][0];
    let (before, after) = (gain["dice_before"].as_f64().unwrap(), gain["dice_after"].as_f64().unwrap());
    assert!(before < 1.0 && after == 1.0, "{chosen}");
    assert!(!chosen["steps"].as_array().unwrap().is_empty());
    let file = fs::read_to_string(run.join("postprocessing.toml")).unwrap();
    assert!(file.contains("[[steps]]") && file.contains("dice_before"), "{file}");

    // What `predict` does with it is what `postprocess` does with the same steps.
    let (images, out, plain) = (tiny.data.join("imagesTs"), tiny.path("out"), tiny.path("plain"));
    let predict = |out: &Path, rest: &[&str]| {
        let args = [
            "predict",
            text(&run),
            "-i",
            text(&images),
            "-o",
            text(out),
            "--ram",
            "512MiB",
            "--threads",
            "1",
        ];
        run_json(&[&args[..], rest].concat())
    };
    let report = predict(&out, &["--preview"]);
    let file = report["cases"][0]["file"].as_str().unwrap().to_string();
    let name = Path::new(&file).file_name().unwrap();
    assert!(out.join("unprocessed").join(name).is_file());
    let preview =
        out.join(format!("{}.preview.png", name.to_str().unwrap().strip_suffix(".nii.gz").unwrap()));
    // Labels that were processed anew are drawn anew.
    let drawn = fs::read(&preview).unwrap();
    fs::write(&preview, "of other labels").unwrap();
    fs::remove_file(out.join(name)).unwrap();
    let again = predict(&out, &["--preview"]);
    assert!(
        again["kept"].as_array().unwrap().iter().any(|kept| kept["file"].as_str() == Some(file.as_str())),
        "{again}"
    );
    assert_eq!(fs::read(&preview).unwrap(), drawn);
    // One that cannot be drawn fails the command, behind its report.
    fs::remove_file(&preview).unwrap();
    fs::create_dir_all(preview.join("in the way")).unwrap();
    fs::remove_file(out.join(name)).unwrap();
    let args = [
        "predict",
        text(&run),
        "-i",
        text(&images),
        "-o",
        text(&out),
        "--preview",
        "--ram",
        "512MiB",
        "--json",
    ];
    let output = plimsoll().args(args).output().unwrap();
    assert!(!output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["previews_failed"].as_array().unwrap().len(), 1, "{report}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("previews could not be drawn: "));
    fs::remove_dir_all(&preview).unwrap();
    predict(&plain, &["--no-postprocessing"]);
    assert!(!plain.join("unprocessed").exists());
    assert_eq!(labels(&plain.join(name)), labels(&out.join("unprocessed").join(name)));
    let again = tiny.path("again");
    let steps = run.join("postprocessing.toml");
    let args = ["postprocess", "-i", text(&plain), "-o", text(&again), "--steps", text(&steps)];
    let report = run_json(&args);
    assert_eq!(report["files"].as_array().unwrap().len(), 1);
    assert_eq!(labels(&again.join(name)), labels(Path::new(&file)));
    // What is there is kept.
    assert_eq!(run_json(&args)["kept"].as_array().unwrap().len(), 1);

    // A fold alone has no steps, and then there is nothing to be left out.
    let fold = run.join("fold_0");
    let args = ["predict", text(&fold), "-i", text(&images), "-o", text(&plain), "--no-postprocessing"];
    assert!(run_error(&args).contains("--no-postprocessing has no effect: the model has no steps"));
    let args = ["postprocess", "-i", text(&plain), "-o", text(&plain), "--steps", text(&steps)];
    assert!(run_error(&args).contains("would be replaced"));
    fs::write(&steps, "[[steps]]\nstep = \"melt\"\n").unwrap();
    let wrong = run_error(&["predict", text(&run), "-i", text(&images), "-o", text(&tiny.path("wrong"))]);
    assert!(wrong.contains("postprocessing.toml, line 2") && wrong.contains("melt"), "{wrong}");
    assert!(!tiny.path("wrong").exists());
}

/// Writes a volume of 8 bits.
fn write_u8(path: &Path, geometry: &Geometry, voxels: &[u8]) {
    let [_, height, width] = geometry.shape();
    let mut writer = VolumeWriter::create(path, geometry, 1, ElementType::U8, None).unwrap();
    voxels.chunks(height * width).for_each(|plane| writer.write_planes(plane).unwrap());
    writer.finish().unwrap();
}

#[test]
fn labels_of_sheared_images_are_written_on_grids_at_right_angles_as_the_warning_says() {
    let tiny = Tiny::new();
    let (images, out) = (tiny.path("sheared"), tiny.path("labels"));
    fs::create_dir(&images).unwrap();
    // Each slice lies one row and a half further along the height.
    let affine = Affine([[0.0, 0.0, 1e-3, 0.0], [1.5e-3, 1e-3, 0.0, 0.0], [2e-3, 0.0, 0.0, 0.0]]);
    let sheared = Geometry::new([9, 12, 14], affine).unwrap();
    let voxels: Vec<u8> = (0..9 * 12 * 14).map(|place| (place * 37 % 251) as u8).collect();
    write_u8(&images.join("a_0000.nii.gz"), &sheared, &voxels);
    fs::copy(tiny.data.join("imagesTr/vessel_000_0000.nii.gz"), images.join("b_0000.nii.gz")).unwrap();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0", "--skip-validation"]);
    let args =
        ["predict", text(&run), "-i", text(&images), "-o", text(&out), "--ram", "512MiB", "--threads", "1"];
    let report = run_json(&args);
    let warnings = report["warnings"].as_array().unwrap();
    let warnings: Vec<&str> = warnings.iter().map(|warning| warning["warning"].as_str().unwrap()).collect();
    let [warning] = warnings[..] else { panic!("{report}") };
    assert!(warning.contains("not at right angles") && report["warnings"][0]["case"] == "a", "{warning}");
    let command = warning.split('`').nth(1).unwrap();
    // Labels that are known in place of those that were predicted.
    write_u8(&out.join("a.nii.gz"), &sheared, &voxels);
    let straight = tiny.path("straight");
    let command = command.replace("LABELS", text(&out)).replace("OUT", text(&straight));
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    let report = run_json(&args);
    let files = report["files"].as_array().unwrap();
    let resampled: Vec<bool> = files.iter().map(|file| file["resampled"].as_bool().unwrap()).collect();
    assert_eq!(resampled, [true, false]);
    assert_eq!(labels(&straight.join("b.nii.gz")), labels(&out.join("b.nii.gz")));
    let file = VolumeFile::open(straight.join("a.nii.gz")).unwrap();
    let grid = *file.geometry();
    assert_eq!(grid.shape(), [9, 24, 14]);
    let rows = grid.affine().0;
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let product: f64 = rows.iter().map(|row| row[a] * row[b]).sum();
        assert!(product.abs() < 1e-12, "{rows:?}");
    }
    let found = labels(&straight.join("a.nii.gz"));
    for (place, label) in found.iter().enumerate() {
        let index = [place / (24 * 14), place / 14 % 24, place % 14];
        let at = sheared.world_to_voxel(grid.voxel_to_world(index.map(|index| index as f64)));
        // Half a voxel is rounded up; files store affines in 32 bits.
        let [d, h, w] = at.map(|at| (at + 0.5 + 1e-4).floor());
        let is_inside = (0.0..12.0).contains(&h);
        let expected = if is_inside { voxels[((d * 12.0 + h) * 14.0 + w) as usize] } else { 0 };
        assert_eq!(*label, expected, "{index:?} is at {at:?}");
    }
    // A second call keeps what is there; steps are something else.
    assert_eq!(run_json(&args)["kept"].as_array().unwrap().len(), 2);
    let error = run_error(&[&args[..], &["--steps", "steps.toml"]].concat());
    assert!(error.contains("cannot be used with"), "{error}");
}
