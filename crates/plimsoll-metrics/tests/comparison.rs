//! Statistics of paired comparisons: see `oracles/comparison.py`.

use std::collections::BTreeMap;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{
    Candidate, Comparison, ComparisonError, ComparisonSettings, Distribution, Outcome, Paired, Repeat, bca,
    cases_needed, compare_candidates, holm, kendall_tau, percentile, signed_rank,
};
use plimsoll_metrics::{CaseScores, Metric, Missing, Scores, Settings, Summary};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

fn oracle() -> Value {
    serde_json::from_str(include_str!("../../../oracles/comparison.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-9, "{what}: {found}, {expected}");
}

#[test]
fn signed_rank_tests_are_those_of_scipy() {
    let oracle = oracle();
    let cases = oracle["signed_ranks"].as_array().unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let (name, differences) = (case["name"].as_str().unwrap(), numbers(&case["differences"]));
        let found = signed_rank(&differences);
        let statistic = found.positive_ranks.min(found.negative_ranks);
        close(statistic, case["statistic"].as_f64().unwrap(), name);
        let expected = case["p"].as_f64().unwrap();
        close(found.p, expected, name);
        // Small ones are right in all their digits, too.
        assert!((found.p / expected - 1.0).abs() < 1e-9, "{name}: {} {expected}", found.p);
        let exact = differences.len() <= 13 || (differences.len() <= 50 && name.ends_with("without ties"));
        assert!(!exact || found.distribution == Distribution::Exact, "{name}");
    }
    assert_eq!(signed_rank(&[0.0; 30]).p, 1.0);
    assert_eq!(signed_rank(&[]).p, 1.0);
}

#[test]
fn bootstrap_intervals_are_those_of_scipy_for_the_same_resamples() {
    for case in oracle()["bootstraps"].as_array().unwrap() {
        let differences = numbers(&case["differences"]);
        let confidence = case["confidence"].as_f64().unwrap();
        let mut means = Vec::new();
        let mut medians = Vec::new();
        for indices in case["indices"].as_array().unwrap() {
            let drawn =
                indices.as_array().unwrap().iter().map(|at| differences[at.as_u64().unwrap() as usize]);
            let mut drawn: Vec<f64> = drawn.collect();
            means.push(drawn.iter().sum::<f64>() / drawn.len() as f64);
            drawn.sort_by(f64::total_cmp);
            medians.push((drawn[(drawn.len() - 1) / 2] + drawn[drawn.len() / 2]) / 2.0);
        }
        means.sort_by(f64::total_cmp);
        medians.sort_by(f64::total_cmp);
        for (found, expected) in [
            (bca(&differences, &means, confidence), "bca_of_mean"),
            (percentile(&means, confidence), "percentile_of_mean"),
            (percentile(&medians, confidence), "percentile_of_median"),
        ] {
            let bounds = found.unwrap();
            for (bound, expected_bound) in bounds.into_iter().zip(numbers(&case[expected])) {
                close(bound, expected_bound, expected);
            }
        }
    }
}

#[test]
fn holms_correction_is_that_of_statsmodels() {
    for family in oracle()["families"].as_array().unwrap() {
        let found = holm(&numbers(&family["p"]));
        for (found, expected) in found.into_iter().zip(numbers(&family["holm"])) {
            close(found, expected, "Holm");
        }
    }
    assert!(holm(&[]).is_empty());
}

#[test]
fn kendalls_tau_is_that_of_scipy() {
    for case in oracle()["taus"].as_array().unwrap() {
        let found = kendall_tau(&numbers(&case["one"]), &numbers(&case["other"]));
        match case["tau"].as_f64() {
            None => assert_eq!(found, None),
            Some(expected) => close(found.unwrap(), expected, "tau"),
        }
    }
}

/// Standard normal numbers (Box and Muller 1958).
struct Normal(ChaCha8Rng);

impl Normal {
    fn new(seed: u64) -> Normal {
        Normal(ChaCha8Rng::seed_from_u64(seed))
    }

    fn draw(&mut self) -> f64 {
        let mut unit = || ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let radius = (-2.0 * unit().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * unit()).cos()
    }
}

/// The Dice of cases by class; NaN where it is undefined.
fn summary(dice: &[Vec<f64>]) -> Summary {
    let cases = dice.iter().enumerate().map(|(case, dice)| {
        let of = |dice: &f64| {
            let mut scores = Scores::default();
            scores.set(Metric::Dice, *dice);
            scores.set(Metric::HD95, 100.0 * (1.0 - dice));
            scores.set(Metric::Reference, 1000.0 + case as f64);
            scores
        };
        let file = |folder: &str| format!("{folder}/case_{case:03}.nii.gz").into();
        let metrics = (1..).zip(dice.iter().map(of)).collect();
        CaseScores {
            prediction_file: file("a"),
            reference_file: file("b"),
            metrics,
            counted_voxels: None,
            diagonal_mm: None,
        }
    });
    let classes = (1..).take(dice[0].len()).collect();
    Summary::new(cases.collect(), Settings::new(classes))
}

fn candidate(name: &str, repeats: &[Vec<Vec<f64>>]) -> Candidate {
    let repeat = |(at, dice): (usize, &Vec<Vec<f64>>)| {
        let name = format!("{name}/{at}");
        Repeat::new(name.clone(), name, summary(dice), []).unwrap()
    };
    Candidate { name: name.into(), repeats: repeats.iter().enumerate().map(repeat).collect() }
}

fn settings(resamples: usize) -> ComparisonSettings {
    ComparisonSettings {
        metrics: vec![Metric::Dice],
        classes: None,
        names: BTreeMap::from([(1, "liver".to_string())]),
        missing: Missing::Worst,
        bootstrap: Bootstrap { resamples, ..Bootstrap::default() },
    }
}

fn compare(candidates: Vec<Candidate>, resamples: usize) -> Comparison {
    let paired = Paired::new(candidates, false).unwrap();
    compare_candidates(&paired, &settings(resamples), &Budget::new(Bytes::mib(16))).unwrap()
}

/// In how many of so many simulated sweeps the cases separate two candidates, whose scores vary by case, by class and by seed. One is better
/// by `shift` standard deviations of the difference of a case.
fn separated(sweeps: u64, cases: usize, shift: f64) -> u64 {
    const SEEDS: usize = 2;
    let noise = 0.02;
    (0..sweeps)
        .filter(|sweep| {
            let mut normal = Normal::new(1000 + sweep);
            let difficulty: Vec<f64> = (0..cases).map(|_| 0.8 + 0.05 * normal.draw()).collect();
            // The difference of means over seeds has the variance 2 · noise² / seeds.
            let gain = shift * noise * (2.0 / SEEDS as f64).sqrt();
            let mut repeats = |gain: f64| -> Vec<Vec<Vec<f64>>> {
                let mut one =
                    || difficulty.iter().map(|dice| vec![dice + gain + noise * normal.draw()]).collect();
                (0..SEEDS).map(|_| one()).collect()
            };
            let candidates = vec![candidate("a", &repeats(0.0)), candidate("b", &repeats(gain))];
            let found = compare(candidates, 10);
            found.scores[0].differences[0].verdict.outcome == Outcome::Separated
        })
        .count() as u64
}

/// Three standard deviations of a binomial count.
fn bound(trials: u64, share: f64) -> f64 {
    3.0 * (trials as f64 * share * (1.0 - share)).sqrt()
}

/// Two of the same are separated in 5 % at most of all sweeps, but for three standard deviations: 29 of 400.
#[test]
fn identical_candidates_are_rarely_told_apart() {
    let (sweeps, found) = (400, separated(400, 20, 0.0));
    let most = 0.05 * sweeps as f64 + bound(sweeps, 0.05);
    assert!((found as f64) <= most, "{found} of {sweeps}, at most {most}");
    assert!(found > 0, "a test that never separates tests nothing");
}

#[test]
fn a_known_difference_is_found_as_often_as_theory_says() {
    for case in oracle()["powers"].as_array().unwrap() {
        let cases = case["cases"].as_u64().unwrap() as usize;
        let (shift, power) = (case["shift"].as_f64().unwrap(), case["power"].as_f64().unwrap());
        let sweeps = 400;
        let found = separated(sweeps, cases, shift) as f64;
        let expected = power * sweeps as f64;
        assert!((found - expected).abs() <= bound(sweeps, power), "{found}, {expected} of {sweeps}");
    }
}

/// For many normal differences, p′ is near its value for the distribution, and so is the number of cases.
#[test]
fn the_cases_needed_are_those_of_noethers_formula() {
    let mut normal = Normal::new(5);
    for case in oracle()["needed"].as_array().unwrap() {
        let (shift, expected) = (case["shift"].as_f64().unwrap(), case["cases"].as_f64().unwrap());
        let differences: Vec<f64> = (0..20_000).map(|_| normal.draw() + shift).collect();
        let found = cases_needed(&differences, 0.05).unwrap() as f64;
        assert!((found / expected - 1.0).abs() < 0.08, "{found}, {expected}");
    }
}

/// Brute force over all pairs of a case and class.
#[test]
fn pairs_without_a_score_are_dropped_and_counted_by_who_lacks_it() {
    let nan = f64::NAN;
    let first = [vec![0.5, nan], vec![0.7, 0.6], vec![0.9, 0.4], vec![nan, nan]];
    let second = [vec![0.4, 0.3], vec![nan, 0.5], vec![0.6, 0.6], vec![nan, 0.2]];
    let candidates = vec![candidate("a", &[first.to_vec()]), candidate("b", &[second.to_vec()])];
    let found = compare(candidates, 100);
    let [overall, liver, other] = &found.scores[0].differences[..] else { panic!("{found:?}") };
    let names = [overall, liver, other].map(|difference| difference.class.name.as_str());
    assert_eq!(names, ["mean of classes", "liver", "class 2"]);
    let dropped = [overall, liver, other].map(|difference| {
        let undefined = difference.undefined;
        (difference.cases, undefined.first, undefined.second, undefined.both)
    });
    assert_eq!(dropped, [(3, 2, 1, 1), (2, 0, 1, 1), (2, 2, 0, 0)]);
    // Of the means over classes: 0.1, 0.1 and (0.3 − 0.2) / 2.
    close(overall.mean.unwrap(), 0.25 / 3.0, "mean of classes");
    close(liver.median.unwrap(), 0.2, "liver");
    let ranking = found.scores[0].ranking.as_ref().unwrap();
    assert_eq!((ranking.ranked_scores, ranking.dropped_scores), (4, 3));
    // The first wins three of four.
    assert_eq!((ranking.order[0].candidate.as_str(), ranking.order[0].mean_rank), ("a", 1.25));
    let means: Vec<Option<f64>> = found.scores[0].candidates.iter().map(|scores| scores.mean).collect();
    close(means[0].unwrap(), (0.7 + 0.5) / 2.0, "mean of the means of classes");
}

#[test]
fn seeds_are_averaged_and_their_spread_is_said() {
    let seeds = |gain: f64| [-0.1, 0.1].map(|seed| vec![vec![0.5 + gain + seed], vec![0.7 + gain + seed]]);
    let candidates = vec![candidate("a", &seeds(0.05)), candidate("b", &seeds(0.0))];
    let found = compare(candidates, 100);
    let difference = &found.scores[0].differences[0];
    assert_eq!(difference.cases, 2, "a repeat is no case");
    close(difference.mean.unwrap(), 0.05, "difference");
    let repeats = found.scores[0].candidates[0].over_repeats.as_ref().unwrap();
    close(repeats.means[0].unwrap(), 0.55, "first seed");
    close(repeats.sd.unwrap(), 0.02f64.sqrt(), "sd of 0.55 and 0.75");
}

#[test]
fn few_cases_say_that_they_cannot_tell_and_how_many_could() {
    let dice = |gain: f64| (0..4).map(|case| vec![0.5 + 0.1 * f64::from(case) + gain]).collect::<Vec<_>>();
    let found = compare(vec![candidate("a", &[dice(0.1)]), candidate("b", &[dice(0.0)])], 100);
    let verdict = &found.scores[0].differences[0].verdict;
    assert_eq!((verdict.outcome, verdict.cases_needed), (Outcome::TooFewCases, Some(11)));
    assert!(
        verdict.words.starts_with("4 cases cannot separate a and b: a − b is +10.00 points"),
        "{verdict:?}"
    );
    assert!(verdict.words.contains("6 cases are the least"), "{verdict:?}");
    let found = compare(vec![candidate("a", &[dice(0.1)]), candidate("b", &[dice(0.1)])], 100);
    assert_eq!(found.scores[0].differences[0].verdict.outcome, Outcome::Same);
}

/// Lower distances are better, and ranks follow.
#[test]
fn the_better_one_of_a_distance_is_the_lower_one() {
    let mut normal = Normal::new(3);
    let mut dice = |gain: f64| (0..30).map(|_| vec![0.6 + gain + 0.01 * normal.draw()]).collect::<Vec<_>>();
    let candidates = vec![candidate("a", &[dice(0.0)]), candidate("b", &[dice(0.1)])];
    let paired = Paired::new(candidates, false).unwrap();
    let settings = ComparisonSettings { metrics: paired.metrics(), ..settings(500) };
    let found = compare_candidates(&paired, &settings, &Budget::new(Bytes::mib(16))).unwrap();
    assert_eq!(settings.metrics, [Metric::Dice, Metric::HD95]);
    for score in &found.scores {
        let verdict = &score.differences[0].verdict;
        assert_eq!(verdict.better.as_deref(), Some("b"), "{verdict:?}");
        let choice = score.choice.as_ref().unwrap();
        assert_eq!((choice.candidate.as_str(), choice.first_share), ("b", 1.0));
        assert!(choice.not_separated_from.is_empty());
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_other_resamples() {
    let mut normal = Normal::new(9);
    let mut dice = || (0..15).map(|_| vec![0.6 + 0.1 * normal.draw()]).collect::<Vec<_>>();
    let (a, b) = (dice(), dice());
    let text = |seed| {
        let candidates =
            vec![candidate("a", std::slice::from_ref(&a)), candidate("b", std::slice::from_ref(&b))];
        let paired = Paired::new(candidates, false).unwrap();
        let bootstrap = Bootstrap { resamples: 200, seed, ..Bootstrap::default() };
        let settings = ComparisonSettings { bootstrap, ..settings(0) };
        let found = compare_candidates(&paired, &settings, &Budget::new(Bytes::mib(16))).unwrap();
        serde_json::to_string(&found.scores).unwrap()
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn what_cannot_be_paired_is_refused() {
    let dice = |cases: usize| (0..cases).map(|_| vec![0.5]).collect::<Vec<_>>();
    let pair = |candidates| Paired::new(candidates, false).unwrap_err();
    let one = || candidate("a", &[dice(3)]);
    assert!(matches!(pair(vec![one()]), ComparisonError::TooFew { found: 1 }));
    assert!(matches!(pair(vec![one(), one()]), ComparisonError::SameName { .. }));
    let missing = pair(vec![one(), candidate("b", &[dice(2)])]);
    assert_eq!(missing.to_string(), "1 of 3 cases are missing for some candidates: case_002 (b/0 lacks it)");
    let common = Paired::new(vec![one(), candidate("b", &[dice(2)])], true).unwrap();
    assert_eq!((common.cases().len(), common.left_out()), (2, &["case_002".to_string()][..]));
    let classes = pair(vec![one(), candidate("b", &[vec![vec![0.5, 0.5]; 3]])]);
    assert!(matches!(classes, ComparisonError::Classes { .. }), "{classes}");
    let mut other = summary(&dice(3));
    for case in &mut other.metric_per_case {
        let mut scores = case.metrics.remove(&1).unwrap();
        scores.set(Metric::Reference, 7.0);
        case.metrics.insert(1, scores);
    }
    let other = Repeat::new("b", "b".into(), other, []).unwrap();
    let other = pair(vec![one(), Candidate { name: "b".into(), repeats: vec![other] }]);
    assert!(matches!(other, ComparisonError::OtherReference { .. }), "{other}");
    let twice = Repeat::new("a", "a".into(), summary(&dice(2)), [("b".to_string(), summary(&dice(1)))]);
    assert!(matches!(twice, Err(ComparisonError::CaseTwice { .. })));

    let paired = Paired::new(vec![one(), candidate("b", &[dice(3)])], false).unwrap();
    let refused = |settings: ComparisonSettings| {
        compare_candidates(&paired, &settings, &Budget::new(Bytes::mib(16))).unwrap_err()
    };
    let no_score = refused(ComparisonSettings { metrics: vec![Metric::NSD], ..settings(10) });
    assert_eq!(no_score.to_string(), "a/0 does not have NSD of all cases; it has Dice, HD95");
    // The second fold was not scored by distance.
    let mut overlap_alone = summary(&dice(4));
    overlap_alone.metric_per_case.drain(..3);
    for scores in overlap_alone.metric_per_case[0].metrics.values_mut() {
        *scores = Scores::default();
        scores.set(Metric::Dice, 0.5);
    }
    let folds = Repeat::new("a", "a".into(), summary(&dice(3)), [("b".to_string(), overlap_alone)]).unwrap();
    let folds = Candidate { name: "a".into(), repeats: vec![folds] };
    let in_part = Paired::new(vec![folds, candidate("b", &[dice(4)])], false).unwrap();
    assert_eq!(in_part.metrics(), [Metric::Dice]);

    let twice = ComparisonSettings { classes: Some(vec![1, 1]), ..settings(10) };
    let twice = compare_candidates(&paired, &twice, &Budget::new(Bytes::mib(16))).unwrap();
    assert_eq!((twice.classes, twice.scores[0].differences.len()), (vec![1], 1));
    let no_class = refused(ComparisonSettings { classes: Some(vec![4]), ..settings(10) });
    assert!(matches!(no_class, ComparisonError::NoClass { class: 4, .. }));
    let little = compare_candidates(&paired, &settings(10_000), &Budget::new(Bytes(1000))).unwrap_err();
    assert!(matches!(little, ComparisonError::Memory(_)), "{little}");
}
