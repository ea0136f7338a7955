//! Folders of label maps, compared.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{MetricError, evaluate};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

fn write(path: &Path, shape: [usize; 3], spacing: f64, labels: &[u8]) {
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([spacing; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
}

struct Folders {
    _dir: tempfile::TempDir,
    predictions: std::path::PathBuf,
    references: std::path::PathBuf,
}

fn folders() -> Folders {
    let dir = tempfile::tempdir().unwrap();
    let (predictions, references) = (dir.path().join("predictions"), dir.path().join("references"));
    std::fs::create_dir(&predictions).unwrap();
    std::fs::create_dir(&references).unwrap();
    Folders { _dir: dir, predictions, references }
}

fn run(folders: &Folders) -> Result<plimsoll_metrics::Summary, MetricError> {
    let budget = Budget::new(Bytes::mib(1));
    evaluate(&folders.predictions, &folders.references, ".nii.gz", &[1, 2], false, &budget)
}

#[test]
fn scores_are_those_of_nnunets_summary() {
    let folders = folders();
    write(&folders.references.join("a.nii.gz"), [2, 2, 2], 1.0, &[0, 1, 1, 1, 0, 0, 0, 0]);
    write(&folders.predictions.join("a.nii.gz"), [2, 2, 2], 1.0, &[0, 1, 1, 0, 1, 0, 0, 0]);
    write(&folders.references.join("b.nii.gz"), [1, 2, 2], 1.0, &[2, 2, 0, 1]);
    write(&folders.predictions.join("b.nii.gz"), [1, 2, 2], 1.0, &[2, 0, 0, 1]);
    let summary = run(&folders).unwrap();
    let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
    let (a, b) = (&summary.metric_per_case[0].metrics, &summary.metric_per_case[1].metrics);
    assert!(close(a[&1].dice, 4.0 / 6.0) && close(a[&1].iou, 0.5));
    assert_eq!((a[&1].true_negatives, a[&1].n_pred, a[&1].n_ref), (4.0, 3.0, 3.0));
    assert_eq!(a[&2].dice, None, "class 2 is in neither");
    assert!(close(b[&1].dice, 1.0) && close(b[&2].dice, 2.0 / 3.0));
    assert!(close(summary.mean[&1].dice, (4.0 / 6.0 + 1.0) / 2.0));
    assert!(close(summary.mean[&2].dice, 2.0 / 3.0), "over the one case that has it");
    assert!(close(summary.foreground_mean.dice, (5.0 / 6.0 + 2.0 / 3.0) / 2.0));
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["metric_per_case"][0]["metrics"]["1"]["TP"], 2.0);
    assert_eq!(json["metric_per_case"][0]["metrics"]["2"]["Dice"], serde_json::Value::Null);
    assert!(json["foreground_mean"]["IoU"].is_number());
}

#[test]
fn what_cannot_be_compared_is_named() {
    let folders = folders();
    assert!(matches!(run(&folders), Err(MetricError::NoCases { .. })));
    write(&folders.references.join("a.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    write(&folders.references.join("b.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    write(&folders.predictions.join("a.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    let error = run(&folders).unwrap_err();
    assert!(error.to_string().contains("b.nii.gz"), "{error}");
    write(&folders.predictions.join("b.nii.gz"), [1, 2, 2], 1.5, &[0, 1, 1, 1]);
    let error = run(&folders).unwrap_err();
    assert!(matches!(error, MetricError::Geometry { .. }), "{error}");
    assert!(error.to_string().contains("b.nii.gz") && error.hint().is_some(), "{error}");
}
