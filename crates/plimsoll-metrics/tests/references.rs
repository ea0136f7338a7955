//! Scores against their reference programs, see `oracles/metrics.py`.

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{BettiNumbers, ClassMasks, Lesions, Surface, SurfaceDistances, cl_dice};
use plimsoll_morphology::Betti;
use serde_json::Value;

fn oracle(part: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../../oracles/metrics.json")).unwrap();
    all[part].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Null => f64::NAN,
        Value::String(_) => f64::INFINITY,
        value => value.as_f64().unwrap(),
    }
}

fn integers<const N: usize>(value: &Value) -> [u64; N] {
    numbers(value).into_iter().map(|number| number as u64).collect::<Vec<_>>().try_into().unwrap()
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    let same = (found.is_nan() && expected.is_nan()) || found == expected;
    let near = (found - expected).abs() <= 1e-6 * expected.abs().max(1.0);
    assert!(same || near, "{what}: {found}, but the reference says {expected}");
}

fn mask(bits: &Value, voxels: usize) -> Vec<u8> {
    let hex = bits.as_str().unwrap();
    let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
    bytes.flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1)).take(voxels).collect()
}

/// Each case of the oracle, with its masks.
fn for_each_case(check: impl Fn(&str, &Value, &ClassMasks, &Budget)) {
    for case in oracle("segmentation") {
        let shape = integers::<3>(&case["shape"]).map(|length| length as usize);
        let spacing = numbers(&case["spacing"]).try_into().unwrap();
        let voxels = shape.iter().product();
        let (prediction, reference) = (mask(&case["prediction"], voxels), mask(&case["reference"], voxels));
        let budget = Budget::new(Bytes::mib(64));
        let masks = ClassMasks::new(1, &prediction, &reference, shape, spacing, &budget).unwrap();
        check(case["name"].as_str().unwrap(), &case, &masks, &budget);
    }
}

fn check_surfaces(name: &str, case: &Value, scores: &Value, found: &SurfaceDistances) {
    close(found.hausdorff(), number(&scores["hd"]), &format!("{name}, HD"));
    close(found.average_symmetric(), number(&scores["assd"]), &format!("{name}, ASSD"));
    let tolerances = numbers(&case["tolerances"]);
    for (tolerance, nsd) in tolerances.into_iter().zip(numbers(&scores["nsd"])) {
        close(found.surface_dice(tolerance), nsd, &format!("{name}, NSD at {tolerance} mm"));
    }
}

#[test]
fn surface_elements_match_surface_distance() {
    for_each_case(|name, case, masks, budget| {
        let scores = &case["elements"];
        let found = SurfaceDistances::measure(masks, Surface::Elements, budget, 2).unwrap();
        check_surfaces(name, case, scores, &found);
        close(found.hausdorff_at(0.95), number(&scores["hd95"]), &format!("{name}, HD95"));
        for (found, expected) in found.average_distances().into_iter().zip(numbers(&scores["averages"])) {
            close(found, expected, &format!("{name}, average distance"));
        }
    });
}

#[test]
fn voxel_surfaces_match_monai() {
    for_each_case(|name, case, masks, budget| {
        let scores = &case["voxels"];
        let found = SurfaceDistances::measure(masks, Surface::Voxels, budget, 2).unwrap();
        check_surfaces(name, case, scores, &found);
        let hd95 = number(&scores["hd95"]);
        // Where all distances are infinite, MONAI's interpolation gives NaN.
        let hd95 = if found.hausdorff().is_infinite() && hd95.is_nan() { f64::INFINITY } else { hd95 };
        close(found.hausdorff_at(0.95), hd95, &format!("{name}, HD95"));
    });
}

#[test]
fn centreline_dice_matches_its_authors() {
    for_each_case(|name, case, masks, budget| {
        let found = cl_dice(masks, budget, 2).unwrap();
        let mut expected = number(&case["cldice"]["score"]);
        let masks = [masks.prediction(), masks.reference()].map(|mask| mask.contains(&1));
        let skeletons = integers::<2>(&case["cldice"]["skeletons"]).map(|voxels| voxels > 0);
        // Their program also divides zero by zero if nothing overlaps, where the score is 0.
        if expected.is_nan() && (masks[0] != masks[1] || skeletons == [true; 2]) {
            expected = 0.0;
        }
        close(found, expected, &format!("{name}, clDice"));
    });
}

#[test]
fn betti_numbers_match_components_and_the_euler_number() {
    for_each_case(|name, case, masks, budget| {
        let found = BettiNumbers::count(masks, budget, 2).unwrap();
        let [prediction, reference] = [0, 1].map(|side| {
            let [components, tunnels, cavities] = integers(&case["betti"][side]);
            Betti { components, tunnels, cavities }
        });
        assert_eq!(found, BettiNumbers { prediction, reference }, "{name}");
    });
}

#[test]
fn lesion_detection_matches_isles_and_panoptic_quality_matches_monai() {
    for_each_case(|name, case, masks, budget| {
        let (found, expected) = (Lesions::find(masks, budget, 2).unwrap(), &case["lesions"]);
        for (overlap, counts) in [(0.0, 0), (0.3, 1)] {
            let detection = found.detection(overlap);
            let counts = integers(&expected["detections"][counts]);
            let detected = [detection.found, detection.missed, detection.false_positives];
            assert_eq!(detected, counts, "{name}, overlap {overlap}");
        }
        let [matched, extra, missed, iou] = numbers(&expected["panoptic"]).try_into().unwrap();
        let panoptic = found.panoptic();
        let lesions = matched + 0.5 * extra + 0.5 * missed;
        close(panoptic.quality, iou / lesions, &format!("{name}, PQ"));
        close(panoptic.recognition, matched / lesions, &format!("{name}, RQ"));
        close(panoptic.segmentation, iou / matched, &format!("{name}, SQ"));
    });
}

#[test]
fn variation_of_information_matches_scikit_image() {
    for_each_case(|name, case, masks, budget| {
        let found = Lesions::find(masks, budget, 2).unwrap().variation_of_information();
        close(found.splits, number(&case["lesions"]["splits"]), &format!("{name}, splits"));
        close(found.merges, number(&case["lesions"]["merges"]), &format!("{name}, merges"));
    });
}

mod classification {
    use super::*;
    use plimsoll_metrics::classification::{Bootstrap, Interval, Table, classify};

    fn for_each_table(check: impl Fn(&str, &Value, &Table, &Budget)) {
        for case in oracle("classification") {
            let labels: Vec<u32> = numbers(&case["labels"]).into_iter().map(|label| label as u32).collect();
            let probabilities = numbers(&case["probabilities"]);
            let classes = probabilities.len() / labels.len();
            let names = (0..classes).map(|class| format!("class {class}")).collect();
            let budget = Budget::new(Bytes::mib(64));
            let table = Table::new(names, &labels, &probabilities, &budget).unwrap();
            check(case["name"].as_str().unwrap(), &case, &table, &budget);
        }
    }

    fn value(found: Interval) -> f64 {
        found.value.unwrap_or(f64::NAN)
    }

    #[test]
    fn scores_match_scikit_learn() {
        let bootstrap = Bootstrap { resamples: 20, ..Bootstrap::default() };
        for_each_table(|name, case, table, budget| {
            let report = classify(table, &bootstrap, budget).unwrap();
            // Weighted scores are compared in `tests/classification.rs`.
            for (score, found) in report.overall.iter().filter(|(score, _)| !score.starts_with("weighted")) {
                close(value(*found), number(&case["overall"][score]), &format!("{name}, {score}"));
            }
            for (at, class) in report.classes.iter().enumerate() {
                for (score, found) in &class.scores {
                    let expected = number(&case["classes"][score][at]);
                    close(value(*found), expected, &format!("{name}, {score} of class {at}"));
                }
            }
            let matrix = serde_json::to_value(&report.confusion_matrix).unwrap();
            assert_eq!(matrix, case["confusion_matrix"], "{name}");
        });
    }

    #[test]
    fn the_interval_of_the_accuracy_is_binomial() {
        let bootstrap = Bootstrap { resamples: 20_000, ..Bootstrap::default() };
        for_each_table(|name, case, table, budget| {
            let report = classify(table, &bootstrap, budget).unwrap();
            let accuracy = report.overall["accuracy"];
            let found = [accuracy.low.unwrap(), accuracy.high.unwrap()];
            let one_case = 1.0 / report.cases as f64 + 1e-9;
            for (found, expected) in found.into_iter().zip(numbers(&case["accuracy_interval"])) {
                assert!((found - expected).abs() <= one_case, "{name}: {found}, {expected}");
            }
        });
    }

    #[test]
    fn intervals_depend_on_the_seed_alone() {
        for_each_table(|name, _, table, budget| {
            let of = |seed| {
                let bootstrap = Bootstrap { resamples: 200, seed, ..Bootstrap::default() };
                classify(table, &bootstrap, budget).unwrap()
            };
            assert_eq!(of(1), of(1), "{name}");
            if name == "four classes" {
                assert_ne!(of(1).overall, of(2).overall, "{name}");
            }
        });
    }
}
