//! Models that miss a class do not gain by it.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{
    Candidate, Comparison, ComparisonError, ComparisonSettings, Paired, Repeat, compare_candidates,
};
use plimsoll_metrics::{
    CasePaths, CaseScores, CrossValidation, Group, Metric, Missing, Scores, Settings, Summary, Surface,
    evaluate,
};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

const SHAPE: [usize; 3] = [4, 6, 8];

fn write(path: &Path, labels: &[u8]) {
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([3.0, 2.0, 1.0]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(labels).unwrap();
    writer.finish().unwrap();
}

/// A map with class 1 in one voxel of the first row.
fn voxel(at: Option<usize>) -> Vec<u8> {
    let mut labels = vec![0; SHAPE.iter().product()];
    at.into_iter().for_each(|at| labels[at] = 1);
    labels
}

/// Three cases: found 2 mm aside, missed, and in neither map.
fn scored(missing: Missing) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let maps = [(Some(1), Some(3)), (Some(1), None), (None, None)];
    let cases = (0..).zip(maps).map(|(case, (expected, found))| {
        let [reference, prediction] = ["r", "p"].map(|name| dir.path().join(format!("{name}{case}.nii.gz")));
        write(&reference, &voxel(expected));
        write(&prediction, &voxel(found));
        CasePaths { prediction, reference, reference_values: None, prediction_values: None }
    });
    let cases: Vec<CasePaths> = cases.collect();
    let groups = [Group::Overlap, Group::Surface].into();
    let settings = Settings { groups, surface: Surface::Voxels, missing, ..Settings::new(vec![1]) };
    evaluate(&cases, &settings, &Budget::new(Bytes::mib(8)), 1, &|_| ()).unwrap()
}

/// The diagonal of 12 × 12 × 8 mm.
const DIAGONAL: f64 = 18.761_663_039_293_72;

#[test]
fn means_follow_the_convention_and_say_how_many_cases_have_the_score() {
    let mean = |missing, metric| scored(missing).mean_of(Some(1), metric);
    for (missing, hd95, precision) in [
        (Missing::Ignore, 2.0, 0.0),
        (Missing::Worst, f64::INFINITY, 0.0),
        (Missing::Diagonal, (2.0 + DIAGONAL) / 2.0, 0.0),
    ] {
        let found = mean(missing, Metric::HD95);
        let close = (found.value.unwrap() - hd95).abs() < 1e-9 || found.value == Some(hd95);
        assert!(close, "{missing:?}: {found:?}");
        assert_eq!((found.cases.defined, found.cases.missing, found.cases.of), (1, 1, 3));
        assert_eq!(mean(missing, Metric::Precision).value, Some(precision));
    }
    // A missed class has a Dice of 0 under any convention; a class in neither map has none.
    let dice = mean(Missing::Ignore, Metric::Dice);
    assert_eq!((dice.value, dice.cases.to_string()), (Some(0.0), "2 of 3".to_string()));
}

#[test]
fn files_say_how_many_cases_are_behind_each_mean() {
    let summary = scored(Missing::Worst);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["settings"]["missing"], "worst");
    assert!(json["mean"]["1"]["HD95"].is_null(), "an infinite mean is no number of JSON");
    let expected = serde_json::json!({"defined": 1, "missing": 1, "of": 3});
    assert_eq!(json["mean_cases"]["1"]["HD95"], expected);
    assert_eq!(json["foreground_cases"]["HD95"], expected);
    let diagonal = json["metric_per_case"][1]["diagonal_mm"].as_f64().unwrap();
    assert!((diagonal - DIAGONAL).abs() < 1e-9, "{diagonal}");
    // What is read has the same means, the infinite ones too.
    let read = Summary::parse(&serde_json::to_vec(&summary).unwrap()).unwrap();
    assert_eq!(read, summary);
    assert_eq!(read.mean_of(Some(1), Metric::HD95).value, Some(f64::INFINITY));
    let folds = [("0".to_string(), summary.clone()), ("1".to_string(), summary)];
    let json = serde_json::to_value(CrossValidation::new(&folds).unwrap()).unwrap();
    assert_eq!(json["missing"], "worst");
    assert_eq!(json["folds"][0]["mean_cases"]["1"]["HD95"], expected);
    assert!(json["classes"]["1"]["HD95"]["mean"].is_null(), "a fold without a finite mean is not left out");
}

/// The HD95 of cases: none where the class is missed, and of `None` where it is in neither map.
fn summary(cases: &[Option<Option<f64>>], diagonal_mm: Option<f64>) -> Summary {
    let case = |(number, found): (usize, &Option<Option<f64>>)| {
        let mut scores = Scores::default();
        let [predicted, reference] = match found {
            None => [0.0; 2],
            Some(None) => [0.0, 100.0],
            Some(Some(_)) => [100.0; 2],
        };
        scores.set(Metric::Predicted, predicted);
        scores.set(Metric::Reference, reference);
        scores.set(Metric::HD95, found.flatten().unwrap_or(f64::INFINITY));
        CaseScores {
            prediction_file: format!("case_{number}.nii.gz").into(),
            reference_file: format!("case_{number}.nii.gz").into(),
            metrics: BTreeMap::from([(1, scores)]),
            counted_voxels: None,
            diagonal_mm,
        }
    };
    let groups = [Group::Surface].into();
    let settings = Settings { groups, ..Settings::new(vec![1]) };
    Summary::new(cases.iter().enumerate().map(case).collect(), settings)
}

fn compare(candidates: &[(&str, Summary)], missing: Missing) -> Result<Comparison, ComparisonError> {
    let candidate = |(name, summary): &(&str, Summary)| {
        let repeat = Repeat::new(*name, name.to_string(), summary.clone(), []).unwrap();
        Candidate { name: name.to_string(), repeats: vec![repeat] }
    };
    let paired = Paired::new(candidates.iter().map(candidate).collect(), false)?;
    let settings = ComparisonSettings {
        metrics: vec![Metric::HD95],
        classes: None,
        names: BTreeMap::new(),
        missing,
        bootstrap: Bootstrap { resamples: 200, ..Bootstrap::default() },
    };
    compare_candidates(&paired, &settings, &Budget::new(Bytes::mib(8)))
}

/// One model finds half of the cases, 2 mm off; the other finds all, 3 mm off.
#[test]
fn who_misses_half_of_the_cases_is_not_first() {
    let half: Vec<_> = (0..8).map(|case| Some((case < 4).then_some(2.0))).collect();
    let all = vec![Some(Some(3.0)); 8];
    let candidates = [("half", summary(&half, Some(50.0))), ("all", summary(&all, Some(50.0)))];
    let first = |missing| {
        let found = compare(&candidates, missing).unwrap();
        let score = &found.scores[0];
        (
            score.choice.as_ref().unwrap().candidate.clone(),
            score.candidates[0].mean,
            score.differences[0].clone(),
        )
    };
    // Each is better in four cases, and the sum of the scores decides.
    let (first_one, mean, difference) = first(Missing::Worst);
    assert_eq!((first_one.as_str(), mean), ("all", Some(f64::INFINITY)));
    assert_eq!((difference.cases, difference.missing.first, difference.mean), (8, 4, Some(f64::INFINITY)));
    assert!(difference.verdict.words.contains("+∞ mm on average"), "{}", difference.verdict.words);
    // The larger differences have the higher ranks.
    assert!(difference.test.unwrap().positive_ranks > difference.test.unwrap().negative_ranks);
    let (first_one, mean, difference) = first(Missing::Diagonal);
    assert_eq!((first_one.as_str(), mean, difference.mean), ("all", Some(26.0), Some(23.0)));
    let (first_one, mean, difference) = first(Missing::Ignore);
    assert_eq!((first_one.as_str(), mean, difference.cases), ("half", Some(2.0), 4));
    // With one more miss it is behind by ranks, too.
    let most: Vec<_> = (0..8).map(|case| Some((case < 3).then_some(2.0))).collect();
    let found =
        compare(&[("most", summary(&most, None)), ("all", summary(&all, None))], Missing::Worst).unwrap();
    let score = &found.scores[0];
    assert_eq!(score.choice.as_ref().unwrap().candidate, "all");
    let counts = score.candidates[0].counts;
    assert_eq!((counts.defined, counts.missing, counts.of), (3, 5, 8));
    assert_eq!(score.candidates[0].mean_of_defined, Some(2.0));
}

/// An empty prediction of an empty reference is right, and any other is a false alarm.
#[test]
fn a_false_alarm_is_worse_than_none() {
    let right = vec![None; 6];
    let mut alarm = summary(&[Some(None); 6], None);
    for case in &mut alarm.metric_per_case {
        let scores = case.metrics.get_mut(&1).unwrap();
        scores.set(Metric::Predicted, 100.0);
        scores.set(Metric::Reference, 0.0);
    }
    let found = compare(&[("alarm", alarm), ("right", summary(&right, None))], Missing::Worst).unwrap();
    let score = &found.scores[0];
    assert_eq!(score.choice.as_ref().unwrap().candidate, "right");
    assert_eq!(score.differences[0].verdict.better.as_deref(), Some("right"));
}

#[test]
fn a_diagonal_that_is_not_known_is_asked_for() {
    let candidates = [("a", summary(&[Some(None)], None)), ("b", summary(&[Some(Some(1.0))], None))];
    let error = compare(&candidates, Missing::Diagonal).unwrap_err();
    assert!(error.to_string().starts_with("a has no HD95 of case_0"), "{error}");
    assert!(error.remedy().unwrap().contains("‹missing=worst›"));
}

#[test]
fn candidates_that_count_other_voxels_are_not_compared() {
    let counted = |voxels| {
        let mut summary = summary(&[Some(Some(1.0))], None);
        summary.metric_per_case[0].counted_voxels = Some(voxels);
        summary
    };
    let error = compare(&[("a", counted(6912)), ("b", counted(13824))], Missing::Worst).unwrap_err();
    assert_eq!(error.to_string(), "6912 voxels of case_0 are counted for a, but 13824 for b");
}
