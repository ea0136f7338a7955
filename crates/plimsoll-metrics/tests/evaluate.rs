//! Folders of label maps, compared.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{
    CasePaths, Group, LabelMaps, Metric, MetricError, Scores, Settings, Summary, Surface, evaluate,
    evaluate_maps,
};
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

fn run(folders: &Folders) -> Result<Summary, MetricError> {
    run_with(folders, Settings::new(vec![1, 2]), Bytes::mib(1))
}

fn run_with(folders: &Folders, settings: Settings, limit: Bytes) -> Result<Summary, MetricError> {
    let mut references: Vec<_> =
        std::fs::read_dir(&folders.references).unwrap().map(|entry| entry.unwrap().path()).collect();
    references.sort();
    let cases: Vec<CasePaths> = references
        .into_iter()
        .map(|reference| CasePaths {
            prediction: folders.predictions.join(reference.file_name().unwrap()),
            reference,
            reference_values: None,
            prediction_values: None,
        })
        .collect();
    evaluate(&cases, &settings, &Budget::new(limit), 1, &|_| ())
}

#[test]
fn scores_match_nnunets_summary() {
    let folders = folders();
    write(&folders.references.join("a.nii.gz"), [2, 2, 2], 1.0, &[0, 1, 1, 1, 0, 0, 0, 0]);
    write(&folders.predictions.join("a.nii.gz"), [2, 2, 2], 1.0, &[0, 1, 1, 0, 1, 0, 0, 0]);
    write(&folders.references.join("b.nii.gz"), [1, 2, 2], 1.0, &[2, 2, 0, 1]);
    write(&folders.predictions.join("b.nii.gz"), [1, 2, 2], 1.0, &[2, 0, 0, 1]);
    let summary = run(&folders).unwrap();
    let close = |scores: &Scores, metric: Metric, expected: f64| {
        (scores.get(metric).unwrap() - expected).abs() < 1e-12
    };
    let (a, b) = (&summary.metric_per_case[0].metrics, &summary.metric_per_case[1].metrics);
    assert!(close(&a[&1], Metric::Dice, 4.0 / 6.0) && close(&a[&1], Metric::IoU, 0.5));
    let counts = [Metric::TN, Metric::Predicted, Metric::Reference].map(|count| a[&1].get(count));
    assert_eq!(counts, [Some(4.0), Some(3.0), Some(3.0)]);
    assert_eq!(a[&2].get(Metric::Dice), None, "class 2 is in neither");
    assert!(close(&b[&1], Metric::Dice, 1.0) && close(&b[&2], Metric::Dice, 2.0 / 3.0));
    assert!(close(&summary.mean[&1], Metric::Dice, (4.0 / 6.0 + 1.0) / 2.0));
    assert!(close(&summary.mean[&2], Metric::Dice, 2.0 / 3.0), "over the one case that has it");
    assert!(close(&summary.foreground_mean, Metric::Dice, (5.0 / 6.0 + 2.0 / 3.0) / 2.0));
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["metric_per_case"][0]["metrics"]["1"]["TP"], 2.0);
    assert_eq!(json["metric_per_case"][0]["metrics"]["2"]["Dice"], serde_json::Value::Null);
    assert!(json["foreground_mean"]["IoU"].is_number());
}

#[test]
fn regions_are_scored_as_if_their_labels_were_one() {
    let folders = folders();
    let (reference, prediction) = ([0, 1, 2, 2, 4, 0, 0, 1], [0, 2, 2, 4, 4, 1, 0, 1]);
    write(&folders.references.join("a.nii.gz"), [2, 2, 2], 1.0, &reference);
    write(&folders.predictions.join("a.nii.gz"), [2, 2, 2], 1.0, &prediction);
    let regions = vec![vec![1, 2, 4], vec![2, 4], vec![4]];
    let groups = Group::ALL.into_iter().collect();
    let of_regions = Settings { regions: regions.clone(), groups, ..Settings::new(vec![1, 2, 3]) };
    let found = run_with(&folders, of_regions.clone(), Bytes::mib(4)).unwrap();
    for (class, region) in (1..).zip(regions) {
        // The same maps with the labels of the region alone, as 1.
        let one = |labels: [u8; 8]| labels.map(|label| u8::from(region.contains(&label)));
        write(&folders.references.join("a.nii.gz"), [2, 2, 2], 1.0, &one(reference));
        write(&folders.predictions.join("a.nii.gz"), [2, 2, 2], 1.0, &one(prediction));
        let alone = Settings { regions: Vec::new(), classes: vec![1], ..of_regions.clone() };
        let alone = run_with(&folders, alone, Bytes::mib(4)).unwrap();
        assert_eq!(found.mean[&class], alone.mean[&1], "{region:?}");
    }
    assert_eq!(found.mean[&2].get(Metric::Dice), Some(6.0 / 7.0));
}

#[test]
fn distances_are_in_the_unit_that_is_said() {
    let folders = folders();
    // Two voxels apart, 5 µm each by a header that says nothing of its unit.
    write(&folders.references.join("a.nii.gz"), [1, 1, 4], 5.0, &[0, 1, 0, 0]);
    write(&folders.predictions.join("a.nii.gz"), [1, 1, 4], 5.0, &[0, 0, 0, 1]);
    let groups = [Group::Surface].into();
    let usual = Settings { groups, surface: Surface::Voxels, ..Settings::new(vec![1]) };
    let hausdorff = |settings: Settings| {
        run_with(&folders, settings, Bytes::mib(4)).unwrap().mean[&1].get(Metric::HD).unwrap()
    };
    assert!((hausdorff(usual.clone()) - 10.0).abs() < 1e-9);
    let in_micrometres = Settings { millimetres_per_unit: Some(1e-3), ..usual };
    // The numbers of headers are f32.
    assert!((hausdorff(in_micrometres) - 0.01).abs() < 1e-9);
}

#[test]
fn files_that_cannot_be_compared_are_named() {
    let folders = folders();
    write(&folders.references.join("a.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    write(&folders.references.join("b.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    write(&folders.predictions.join("a.nii.gz"), [1, 2, 2], 1.0, &[0, 1, 1, 1]);
    let error = run(&folders).unwrap_err();
    assert!(error.to_string().contains("b.nii.gz"), "{error}");
    write(&folders.predictions.join("b.nii.gz"), [1, 2, 2], 1.5, &[0, 1, 1, 1]);
    let error = run(&folders).unwrap_err();
    assert!(matches!(error, MetricError::Geometry { .. }), "{error}");
    assert!(error.to_string().contains("b.nii.gz") && error.remedy().is_some(), "{error}");
}

/// Two boxes of class 1, one of them shifted by a voxel, far from the origin of a large grid.
fn boxes(folders: &Folders) {
    let shape = [30, 40, 50];
    let labels = |first: usize| -> Vec<u8> {
        let inside =
            |z, y, x| (20..26).contains(&z) && (30..37).contains(&y) && (first..first + 5).contains(&x);
        let voxels = (0..30).flat_map(|z| (0..40).flat_map(move |y| (0..50).map(move |x| (z, y, x))));
        voxels.map(|(z, y, x)| u8::from(inside(z, y, x))).collect()
    };
    write(&folders.references.join("a.nii.gz"), shape, 2.0, &labels(10));
    write(&folders.predictions.join("a.nii.gz"), shape, 2.0, &labels(11));
}

#[test]
fn all_scores_are_written_for_classes_that_are_present() {
    let folders = folders();
    boxes(&folders);
    let settings = Settings { groups: Group::ALL.into(), ..Settings::new(vec![1, 2]) };
    let summary = run_with(&folders, settings, Bytes::mib(8)).unwrap();
    let (one, two) = (&summary.metric_per_case[0].metrics[&1], &summary.metric_per_case[0].metrics[&2]);
    for metric in Metric::ALL {
        assert!(one.get(metric).is_some(), "{metric:?}");
        assert_eq!(two.get(metric).is_some(), metric.is_count(), "{metric:?} of a class that is in neither");
    }
    assert_eq!((one.get(Metric::HD), one.get(Metric::Betti0)), (Some(2.0), Some(0.0)));
    assert_eq!((one.get(Metric::LesionF1), one.get(Metric::PQ)), (Some(1.0), Some(4.0 / 6.0)));
    let mut csv = Vec::new();
    summary.write_csv(&mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("case,class,Dice,IoU,") && lines[1].starts_with("a.nii.gz,1,0.8,"), "{csv}");
    assert!(lines.iter().all(|line| line.matches(',').count() == Metric::ALL.len() + 1), "{csv}");
}

#[test]
fn a_class_that_does_not_fit_is_refused_with_the_numbers() {
    let folders = folders();
    boxes(&folders);
    // The background fills the grid: 32 × 42 × 52 voxels with a margin, at 2 bytes and 8 more for components.
    let settings = Settings { groups: Group::ALL.into(), ..Settings::new(vec![0]) };
    let error = run_with(&folders, settings, Bytes(600_000)).unwrap_err();
    let text = error.to_string();
    let expected =
        "a.nii.gz, class 0: a box of 30 × 40 × 50 voxels needs 682.5 KiB, but 585.9 KiB of 585.9 KiB is free";
    assert!(text.contains(expected), "{text}");
    assert!(error.remedy().unwrap().contains("‹ram›"));
}

#[test]
fn held_labels_are_freed_before_a_class_is_refused() {
    let folders = folders();
    boxes(&folders);
    let settings = Settings { groups: Group::ALL.into(), ..Settings::new(vec![0, 1]) };
    let scores = |kib: u64| {
        let summary = run_with(&folders, settings.clone(), Bytes(kib << 10)).ok()?;
        Some(serde_json::to_string(&summary).unwrap())
    };
    let all = scores(8 << 10).unwrap();
    // Both files are 117 KiB. With a growing limit they never fit, then fit until a class needs their memory, then
    // always fit.
    let by_limit: Vec<Option<String>> = (600..1400).step_by(20).map(scores).collect();
    let least = by_limit.iter().position(Option::is_some).unwrap();
    assert!(least > 0, "the smallest limit is too small");
    assert!(by_limit[least..].iter().all(|scores| scores.as_ref() == Some(&all)));
}

#[test]
fn maps_in_memory_have_the_scores_of_the_same_maps_in_files() {
    let folders = folders();
    let shape = [6, 7, 8];
    let labels = |shift: usize| -> Vec<u8> {
        (0..shape.iter().product::<usize>())
            .map(|voxel| match (voxel / 56, voxel / 8 % 7, voxel % 8) {
                (1..5, y, x) if (1..4).contains(&y) && (1 + shift..5 + shift).contains(&x) => 1,
                (2..4, 5..7, x) if x >= shift => 2,
                (0, 0, 0) => 9,
                _ => 0,
            })
            .collect()
    };
    let (reference, prediction) = (labels(0), labels(1));
    write(&folders.references.join("a.nii.gz"), shape, 1.5, &reference);
    write(&folders.predictions.join("a.nii.gz"), shape, 1.5, &prediction);
    let settings = Settings {
        groups: [Group::Overlap, Group::Surface, Group::Topology, Group::Lesion].into(),
        ignore: Some(9),
        // Label 3 is in neither map.
        ..Settings::new(vec![1, 2, 3])
    };
    let files = run_with(&folders, settings.clone(), Bytes::mib(8)).unwrap();
    let maps = LabelMaps { prediction: &prediction, reference: &reference, shape, spacing: [1.5; 3] };
    let budget = Budget::new(Bytes::mib(8));
    let scores = evaluate_maps(&maps, &settings, &budget, 1).unwrap();
    assert_eq!(scores, files.metric_per_case[0].metrics);
    // Shifted by a voxel of 1.5 mm.
    assert_eq!(scores[&1].get(Metric::HD), Some(1.5));
    assert_eq!(scores[&3].get(Metric::Dice), None);

    let short = LabelMaps { prediction: &prediction[1..], ..maps };
    let error = evaluate_maps(&short, &settings, &budget, 1).unwrap_err();
    assert!(matches!(error, MetricError::Length { .. }), "{error}");
    let little = Budget::new(Bytes(100));
    assert!(matches!(evaluate_maps(&maps, &settings, &little, 1), Err(MetricError::Memory(_))));
}
