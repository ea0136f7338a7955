//! Images of any format go through prediction and evaluation, whatever format a model was trained on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{VolumeError, VolumeFile, VolumeWriter};

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes an image in the format of another name.
fn convert(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let mut file = VolumeFile::open(from).unwrap();
    let (geometry, element) = (*file.geometry(), file.element_type());
    let mut writer = VolumeWriter::create(to, &geometry, 1, element, None).unwrap();
    file.for_each_plane(0, &budget, |_, plane| writer.write_planes(plane)).unwrap();
    writer.finish().unwrap();
}

fn voxels(path: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    let budget = Budget::new(Bytes::mib(64));
    let mut file = VolumeFile::open(path).unwrap();
    let add = |_, plane: &[u8]| {
        all.extend_from_slice(plane);
        Ok::<(), VolumeError>(())
    };
    file.for_each_plane(0, &budget, add).unwrap();
    all
}

#[test]
fn what_a_file_says_of_itself_is_told_with_its_prediction() {
    let dir = tempfile::tempdir().unwrap();
    let model = oracles().join("nnunet/flat/results/Dataset103_Flat/nnUNetTrainer__nnUNetPlans__2d");
    let lossy = oracles().join("dicom/compressed/jpeg_ls_near");
    let out = dir.path().join("out");
    let args = ["predict", "-m", text(&model), "-i", text(&lossy), "-o", text(&out), "--ram", "1GiB"];
    let report = run_json(&args);
    let [warning] = &report["warnings"].as_array().unwrap()[..] else { panic!("{report}") };
    assert!(
        warning["warning"].as_str().unwrap().contains("3 of 3 slices were compressed with loss"),
        "{warning}"
    );
    assert!(warning["file"].as_str().unwrap().ends_with("jpeg_ls_near"), "{warning}");
    let printed = plimsoll().args(args).arg("--overwrite").output().unwrap();
    let said = String::from_utf8_lossy(&printed.stderr);
    assert!(said.contains("warning: jpeg_ls_near: ") && said.contains("compressed with loss"), "{said}");
}

#[test]
fn labels_of_images_in_other_formats_are_the_same_and_written_in_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let (images, results) = (oracles().join("nnunet/flat/images"), oracles().join("nnunet/flat/results"));
    let model = results.join("Dataset103_Flat/nnUNetTrainer__nnUNetPlans__2d");
    let predict = |input: &Path, output: &Path| {
        let args = ["predict", "-m", text(&model), "-i", text(input), "-o", text(output), "--ram", "1GiB"];
        run_json(&args)
    };
    let out = |name: &str| dir.path().join(name);
    let first = images.join("first_0000.nii.gz");
    predict(&first, &out("nifti"));
    let expected = voxels(&out("nifti/first.nii.gz"));
    assert!(expected.iter().any(|label| *label > 0));
    for ending in ["nrrd", "mha"] {
        let folder = out(&format!("images_{ending}"));
        convert(&first, &folder.join(format!("first_0000.{ending}")));
        predict(&folder, &out(ending));
        let labels = out(ending).join(format!("first.{ending}"));
        assert_eq!(voxels(&labels), expected, "{ending}");
        // Scores do not depend on formats either.
        let scores =
            run_json(&["evaluate", text(&labels), text(&out("nifti/first.nii.gz")), "--labels", "1,2"]);
        assert!(scores.to_string().contains("1.0"), "{scores}");
    }
}

#[test]
fn a_series_of_dicom_is_an_image_to_predict_and_to_train_on() {
    let dir = tempfile::tempdir().unwrap();
    let results = oracles().join("nnunet/flat/results");
    let model = results.join("Dataset103_Flat/nnUNetTrainer__nnUNetPlans__2d");
    plimsoll_dicom::register();
    let (series, plain) = (oracles().join("dicom/short"), dir.path().join("short.nii.gz"));
    convert(&series, &plain);
    let out = dir.path().join("out");
    for input in [&series, &plain] {
        let to = out.join(input.extension().map_or("series", |_| "file"));
        run_json(&["predict", "-m", text(&model), "-i", text(input), "-o", text(&to), "--ram", "1GiB"]);
    }
    assert_eq!(voxels(&out.join("series/short.nii.gz")), voxels(&out.join("file/short.nii.gz")));

    // A data set of folders of slices, with labels of NIfTI.
    let data = dir.path().join("data");
    for case in 0..5 {
        let folder = data.join(format!("imagesTr/c{case}_0000.dcm"));
        fs::create_dir_all(&folder).unwrap();
        for slice in fs::read_dir(&series).unwrap() {
            let slice = slice.unwrap().path();
            fs::copy(&slice, folder.join(slice.file_name().unwrap())).unwrap();
        }
        let label = data.join(format!("labelsTr/c{case}.nii.gz"));
        fs::create_dir_all(label.parent().unwrap()).unwrap();
        let image = VolumeFile::open(&plain).unwrap();
        let geometry = *image.geometry();
        let mut writer =
            VolumeWriter::create(&label, &geometry, 1, plimsoll_volume::ElementType::U8, None).unwrap();
        let labels: Vec<u8> = (0..geometry.voxel_count()).map(|voxel| u8::from(voxel % 5 == 0)).collect();
        writer.write_planes(&labels).unwrap();
        writer.finish().unwrap();
    }
    let description = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "a": 1}, "numTraining": 5, "file_ending": ".dcm"}"#;
    fs::write(data.join("dataset.json"), description).unwrap();
    let report = run_json(&["inspect", text(&data)]);
    assert!(report.to_string().contains("c4"), "{report}");

    // The same without a description, in pairs of folders: it is written from what is there.
    let pairs = dir.path().join("pairs");
    fs::create_dir_all(pairs.join("raw")).unwrap();
    for case in 0..5 {
        let from = data.join(format!("imagesTr/c{case}_0000.dcm"));
        std::os::unix::fs::symlink(&from, pairs.join(format!("raw/c{case}"))).unwrap();
    }
    std::os::unix::fs::symlink(data.join("labelsTr"), pairs.join("seg")).unwrap();
    let described = run_json(&["inspect", text(&pairs), "--write"]);
    assert!(described.to_string().contains("c4"), "{described}");
    let written: serde_json::Value =
        serde_json::from_slice(&fs::read(pairs.join("dataset.json")).unwrap()).unwrap();
    assert_eq!(written["file_ending"], ".dcm");
    assert_eq!(written["dataset"]["c3"]["images"], serde_json::json!(["raw/c3"]));
    run_json(&["inspect", text(&pairs)]);
    run_json(&[
        "predict",
        "-m",
        text(&model),
        "-i",
        text(&pairs.join("raw")),
        "-o",
        text(&out.join("all")),
        "--ram",
        "1GiB",
    ]);
    assert_eq!(voxels(&out.join("all/c1.nii.gz")), voxels(&out.join("file/short.nii.gz")));

    let slices: Vec<PathBuf> =
        fs::read_dir(data.join("imagesTr/c2_0000.dcm")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let middle = slices.iter().find(|path| path.ends_with("05.dcm")).unwrap();
    fs::remove_file(middle).unwrap();
    let error = run_error(&["inspect", text(&data)]);
    assert!(error.contains("c2_0000.dcm") && error.contains("1 missing"), "{error}");
}
