//! Segmentations of DICOM as the label maps of a data set, and as predictions and references.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::support::{plimsoll, run_error, run_json};
use dicom_object::{OpenFileOptions, Tag};
use plimsoll_dicom::{SegmentationRequest, SegmentationType, Series};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, LabelTable, VolumeFile, VolumeWriter};

const SHAPE: [usize; 3] = [6, 9, 12];

fn series() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/short")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An organ in two slices, with a tumour in it.
fn labels(organ: u8, tumour: u8) -> Vec<u8> {
    let class = |at: usize| match [at / 108, at / 12 % 9, at % 12] {
        [2 | 3, 3..6, 5] => tumour,
        [2 | 3, 2..8, 3..9] => organ,
        _ => 0,
    };
    (0..SHAPE.iter().product()).map(class).collect()
}

/// Writes a segmentation of the series whose label map has these values, or the label map alone.
fn write(to: &Path, kind: Option<SegmentationType>, labels: &[u8], names: &[(u16, &str)]) {
    let budget = Budget::new(Bytes::mib(64));
    let series = Series::find(&series(), &budget).unwrap();
    let map = if kind.is_some() { to.with_extension("nii.gz") } else { to.to_path_buf() };
    let mut writer = VolumeWriter::create(&map, series.geometry(), 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
    let Some(kind) = kind else { return };
    let names =
        LabelTable { labels: names.iter().map(|(value, name)| (*value, (*name).to_string())).collect() };
    let request = SegmentationRequest { kind, names: &names, description: "d", algorithm: "a" };
    series.write_segmentation(&map, to, &request, &budget, &AtomicBool::new(false)).unwrap();
    fs::remove_file(map).unwrap();
}

/// A data set of three cases, whose segmentations are of both kinds and number their segments differently.
fn data_set(folder: &Path) -> PathBuf {
    let data = folder.join("data");
    fs::create_dir_all(data.join("labelsTr")).unwrap();
    for case in ["a", "b", "c"] {
        let images = data.join("imagesTr").join(case);
        fs::create_dir_all(&images).unwrap();
        for slice in fs::read_dir(series()).unwrap() {
            let slice = slice.unwrap().path();
            fs::copy(&slice, images.join(slice.file_name().unwrap())).unwrap();
        }
    }
    let (named, swapped) = ([(1, "organ"), (2, "tumour")], [(1, "tumour"), (2, "organ")]);
    let label = |case: &str| data.join("labelsTr").join(case);
    write(&label("a.dcm"), Some(SegmentationType::Binary), &labels(1, 2), &named);
    write(&label("b.dcm"), Some(SegmentationType::LabelMap), &labels(2, 1), &swapped);
    write(&label("c.dcm"), Some(SegmentationType::Binary), &labels(2, 1), &swapped);
    let cases = ["a", "b", "c"].map(|case| {
        format!(r#""{case}": {{"images": ["imagesTr/{case}"], "label": "labelsTr/{case}.dcm"}}"#)
    });
    fs::write(
        data.join("dataset.json"),
        format!(
            r#"{{"channel_names": {{"0": "CT"}}, "labels": {{"background": 0, "organ": 1, "tumour": 2}}, "file_ending": ".dcm",
            "numTraining": 3, "dataset": {{{}}}}}"#,
            cases.join(", ")
        ),
    )
    .unwrap();
    data
}

#[test]
fn segmentations_of_dicom_are_inspected_and_trained_on_by_the_names_of_their_segments() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_set(dir.path());
    let inspected = run_json(&["inspect", text(&data)]);
    let expected: Vec<u64> =
        [0, 1, 2].map(|class| labels(1, 2).iter().filter(|label| **label == class).count() as u64).to_vec();
    for case in inspected["fingerprint"]["cases"].as_array().unwrap_or_else(|| panic!("{inspected}")) {
        assert_eq!(
            serde_json::from_value::<Vec<u64>>(case["label_voxels"].clone()).unwrap(),
            expected,
            "{case}"
        );
    }
    let run = dir.path().join("run");
    let trained = plimsoll()
        .args([
            "train",
            text(&data),
            "--out",
            text(&run),
            "--fold",
            "all",
            "--ram",
            "512MiB",
            "--net",
            "dynunet",
        ])
        .args([
            "--features",
            "4,8",
            "--patch-size",
            "4,8,8",
            "--epochs",
            "1",
            "--iterations",
            "2",
            "--threads",
            "1",
        ])
        .args(["--validation-iterations", "1", "--config", "/dev/null"])
        .output()
        .unwrap();
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    // A segmentation of another frame of reference is no label map of this image.
    let label = data.join("labelsTr/b.dcm");
    let mut other = OpenFileOptions::new().open_file(&label).unwrap();
    let frame_of_reference = Tag(0x0020, 0x0052);
    let kind = other.element(frame_of_reference).unwrap().vr();
    other.put_str(frame_of_reference, kind, "1.2.3");
    other.write_to_file(&label).unwrap();
    let error = run_error(&["inspect", text(&data)]);
    assert!(error.contains("b.dcm") || error.contains("frame of reference"), "{error}");
}

#[test]
fn segmentations_of_dicom_are_scored_as_predictions_and_as_references() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_set(dir.path());
    let [masks, maps, plain] = ["masks", "maps", "plain"].map(|name| dir.path().join(name));
    let named = [(1, "organ"), (2, "tumour")];
    for folder in [&masks, &maps, &plain] {
        fs::create_dir(folder).unwrap();
    }
    for case in ["a", "b", "c"] {
        write(&masks.join(format!("{case}.dcm")), Some(SegmentationType::Binary), &labels(1, 2), &named);
        write(&maps.join(format!("{case}.dcm")), Some(SegmentationType::LabelMap), &labels(1, 2), &named);
        write(&plain.join(format!("{case}.nii.gz")), None, &labels(1, 2), &named);
    }
    for predictions in [&masks, &maps, &plain] {
        run_json(&["evaluate", text(predictions), text(&data)]);
        let summary: serde_json::Value =
            serde_json::from_slice(&fs::read(predictions.join("summary.json")).unwrap()).unwrap();
        let cases = summary["metric_per_case"].as_array().unwrap();
        assert_eq!(cases.len(), 3);
        for case in cases {
            for (class, voxels) in [("1", 66.0), ("2", 6.0)] {
                assert_eq!(case["metrics"][class]["Dice"], 1.0, "{case}");
                assert_eq!(case["metrics"][class]["n_ref"], voxels, "{case}");
            }
        }
    }
    // The planes of a sparse prediction that its reference does not have count.
    let mut far = labels(1, 2);
    far[0] = 1;
    far[107] = 1;
    let one = dir.path().join("far.dcm");
    write(&one, Some(SegmentationType::Binary), &far, &named);
    let scored = run_json(&[
        "evaluate",
        text(&one),
        text(&data.join("labelsTr/a.dcm")),
        "-o",
        text(&dir.path().join("s.json")),
    ]);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(summary["metric_per_case"][0]["metrics"]["1"]["FP"], 2.0, "{scored} {summary}");
    plimsoll_dicom::register();
    assert_eq!(VolumeFile::open(series()).unwrap().geometry().shape(), SHAPE);
}
