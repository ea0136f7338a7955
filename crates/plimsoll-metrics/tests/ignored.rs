//! Voxels whose reference has the ignored label take part in no score.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{CasePaths, Group, Metric, Settings, Summary, evaluate};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const IGNORE: u8 = 3;

fn write(path: &Path, shape: [usize; 3], labels: &[u8]) {
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([2.0, 1.0, 0.5]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
}

/// Scores one case.
fn score(shape: [usize; 3], reference: &[u8], prediction: &[u8], ignore: Option<u8>) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let [expected, predicted] = ["reference.nii.gz", "prediction.nii.gz"].map(|name| dir.path().join(name));
    write(&expected, shape, reference);
    write(&predicted, shape, prediction);
    let cases = [CasePaths {
        prediction: predicted,
        reference: expected,
        reference_values: None,
        prediction_values: None,
    }];
    let groups = Group::ALL.into_iter().collect();
    let settings = Settings { groups, ignore, ..Settings::new(vec![1, 2]) };
    evaluate(&cases, &settings, &Budget::new(Bytes::mib(32)), 1, &|_| ()).unwrap()
}

/// Blobs of two classes and noise in a cube, and a prediction that differs from them.
fn maps(length: usize) -> [Vec<u8>; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(40);
    let near = |at: usize, middle: usize| (at as i64 - middle as i64).pow(2);
    let blob = |z, y, x, shift: usize| match near(z, 12) + near(y, 12 + shift) + near(x, 12) {
        distance if distance < 20 => 1,
        distance if distance < 60 => 2,
        _ => 0,
    };
    let voxels = (0..length.pow(3)).map(|at| [at / length / length, at / length % length, at % length]);
    let maps = voxels.map(|[z, y, x]| {
        // The left half of the cube is not annotated.
        let reference = if x < length / 2 { IGNORE } else { blob(z, y, x, 0) };
        let prediction =
            if random.next_u64() % 7 == 0 { (random.next_u64() % 3) as u8 } else { blob(z, y, x, 2) };
        (reference, prediction)
    });
    let (reference, prediction) = maps.unzip();
    [reference, prediction]
}

#[test]
fn counts_and_overlap_are_those_of_a_count_over_annotated_voxels() {
    let length = 24;
    let [reference, prediction] = maps(length);
    let found = score([length; 3], &reference, &prediction, Some(IGNORE));
    let case = &found.metric_per_case[0];
    assert_eq!(case.counted_voxels, Some(6912));
    for class in [1, 2] {
        let count = |in_reference: bool, in_prediction: bool| {
            let pairs = reference.iter().zip(&prediction).filter(|(reference, _)| **reference != IGNORE);
            pairs.filter(|(r, p)| [**r == class, **p == class] == [in_reference, in_prediction]).count()
                as f64
        };
        let [tp, fp, fn_, tn] =
            [(true, true), (false, true), (true, false), (false, false)].map(|(r, p)| count(r, p));
        assert_eq!(tp + fp + fn_ + tn, 6912.0);
        let expected = [
            (Metric::TP, tp),
            (Metric::FP, fp),
            (Metric::FN, fn_),
            (Metric::TN, tn),
            (Metric::Predicted, tp + fp),
            (Metric::Reference, tp + fn_),
            (Metric::Dice, 2.0 * tp / (2.0 * tp + fp + fn_)),
            (Metric::IoU, tp / (tp + fp + fn_)),
            (Metric::Sensitivity, tp / (tp + fn_)),
            (Metric::Precision, tp / (tp + fp)),
        ];
        for (metric, expected) in expected {
            let found = case.metrics[&class].get(metric).unwrap();
            assert!((found - expected).abs() < 1e-12, "{metric:?} of {class}: {found}, {expected}");
        }
        // The unannotated half lowers the score where it counts as background.
        let unmasked = score([length; 3], &reference, &prediction, None);
        let dice = unmasked.mean[&class].get(Metric::Dice).unwrap();
        assert!(dice < case.metrics[&class].get(Metric::Dice).unwrap() - 0.1, "{dice}");
    }
}

#[test]
fn shapes_are_those_of_both_maps_without_the_ignored_voxels() {
    let length = 24;
    let [reference, prediction] = maps(length);
    let found = score([length; 3], &reference, &prediction, Some(IGNORE));
    let masked = |map: &[u8]| -> Vec<u8> {
        map.iter().zip(&reference).map(|(label, own)| if *own == IGNORE { 0 } else { *label }).collect()
    };
    let expected = score([length; 3], &masked(&reference), &masked(&prediction), None);
    let of_shape = [Group::Surface, Group::Topology, Group::Lesion].into_iter().flat_map(Group::metrics);
    // The information is over counted voxels, which masking by hand does not remove.
    for metric in of_shape.filter(|metric| ![Metric::VISplit, Metric::VIMerge].contains(metric)) {
        for class in [1, 2] {
            let [found, expected] = [&found, &expected].map(|summary| summary.mean[&class].get(metric));
            assert_eq!(found, expected, "{metric:?} of {class}");
        }
    }
}

/// By hand: of four counted voxels the reference has one and the prediction two, one of them the same. H(reference) = 0.811, H(prediction) =
/// 1, H(both) = 1.5 bits.
#[test]
fn the_variation_of_information_is_over_counted_voxels() {
    let found = score([1, 1, 8], &[1, 0, 0, 0, 3, 3, 3, 3], &[1, 1, 0, 0, 1, 1, 1, 1], Some(IGNORE));
    let of_reference = -(0.25f64 * 0.25f64.log2() + 0.75 * 0.75f64.log2());
    let [split, merge] = [Metric::VISplit, Metric::VIMerge].map(|metric| found.mean[&1].get(metric).unwrap());
    assert!((split - (1.5 - of_reference)).abs() < 1e-12 && (merge - 0.5).abs() < 1e-12, "{split} {merge}");
}

/// A class that is predicted where nothing is annotated alone is in neither map.
#[test]
fn a_class_in_ignored_voxels_alone_has_no_score() {
    let found = score([1, 1, 4], &[0, 0, 3, 3], &[0, 0, 2, 2], Some(IGNORE));
    assert_eq!(found.mean[&2].get(Metric::Dice), None);
    assert_eq!(found.mean[&2].get(Metric::HD95), None);
    assert_eq!(found.mean[&2].get(Metric::Predicted), Some(0.0));
}
