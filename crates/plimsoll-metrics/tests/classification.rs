//! Scores with weights and thresholds, intervals of shares, votes: see `oracles/classification.py`.

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::{
    Bootstrap, Curves, Labelling, OperatingPoint, ReliabilityBin, Table, TableError, classify, reliability,
    roc, threshold_for_sensitivity, wilson,
};
use plimsoll_metrics::votes::{Rule, Votes, VotesError, pair_count, pairs};
use serde_json::Value;

fn oracle() -> Value {
    serde_json::from_str(include_str!("../../../oracles/classification.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    assert!(
        found.is_nan() && expected.is_nan() || (found - expected).abs() < 1e-9,
        "{what}: {found}, {expected}"
    );
}

/// Each table of `metrics.json` with what the reference says of it.
fn for_each_table(check: impl Fn(&str, &Value, &Table, &Budget)) {
    let tables: Value = serde_json::from_str(include_str!("../../../oracles/metrics.json")).unwrap();
    let oracle = oracle();
    let tables = tables["classification"].as_array().unwrap();
    assert_eq!(tables.len(), oracle["tables"].as_array().unwrap().len());
    for (case, expected) in tables.iter().zip(oracle["tables"].as_array().unwrap()) {
        let labels: Vec<u32> = numbers(&case["labels"]).into_iter().map(|label| label as u32).collect();
        let probabilities = numbers(&case["probabilities"]);
        let names = (0..probabilities.len() / labels.len()).map(|class| class.to_string()).collect();
        let budget = Budget::new(Bytes::mib(16));
        let table = Table::new(names, &labels, &probabilities, &budget).unwrap();
        check(case["name"].as_str().unwrap(), expected, &table, &budget);
    }
}

#[test]
fn weighted_scores_are_those_of_scikit_learn() {
    for_each_table(|name, expected, table, budget| {
        let report = classify(table, &Bootstrap { resamples: 10, ..Bootstrap::default() }, budget).unwrap();
        for score in ["weighted_precision", "weighted_sensitivity", "weighted_f1", "weighted_auroc"] {
            let found = report.overall[score].value.unwrap_or(f64::NAN);
            close(found, expected[score].as_f64().unwrap_or(f64::NAN), &format!("{name}, {score}"));
        }
    });
}

#[test]
fn scores_of_several_labels_are_those_of_scikit_learn() {
    let oracle = oracle();
    let bootstrap = Bootstrap { resamples: 200, ..Bootstrap::default() };
    for case in oracle["several"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let classes = case["classes"]["f1"].as_array().unwrap().len();
        let names: Vec<String> = (0..classes).map(|class| format!("c{class}")).collect();
        let mut text = format!("case,label,{}\n", names.join(","));
        let (labels, probabilities) = (numbers(&case["labels"]), numbers(&case["probabilities"]));
        for (labels, row) in labels.chunks(classes).zip(probabilities.chunks(classes)) {
            let has: Vec<&str> = names
                .iter()
                .zip(labels)
                .filter(|(_, label)| **label == 1.0)
                .map(|(name, _)| &name[..])
                .collect();
            let row: Vec<String> = row.iter().map(f64::to_string).collect();
            text += &format!("x,{},{}\n", has.join("|"), row.join(","));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        let budget = Budget::new(Bytes::mib(16));
        let table = Table::read(&path, Labelling::SeveralLabels, &budget).unwrap();
        let report = classify(&table, &bootstrap, &budget).unwrap();
        for (score, expected) in case["overall"].as_object().unwrap() {
            let found = report.overall[score];
            close(found.value.unwrap(), expected.as_f64().unwrap(), &format!("{name}, {score}"));
            assert!(found.low <= found.value && found.value <= found.high, "{name}, {score}: {found:?}");
        }
        for (score, expected) in case["classes"].as_object().unwrap() {
            for (class, expected) in report.classes.iter().zip(numbers(expected)) {
                let found = class.scores[score].value.unwrap_or(f64::NAN);
                close(found, expected, &format!("{name}, {score} of {}", class.name));
            }
        }
        // The calibration error weighs the bins of all probabilities.
        let bins = reliability(&table, None, 15).unwrap();
        let all: u64 = bins.iter().map(|bin| bin.cases).sum();
        assert_eq!(all as usize, labels.len(), "{name}");
        let difference = |bin: &ReliabilityBin| {
            bin.cases as f64 * (bin.confidence.unwrap_or(0.0) - bin.frequency.unwrap_or(0.0)).abs()
        };
        let expected = bins.iter().map(difference).sum::<f64>() / all as f64;
        close(report.overall["ece"].value.unwrap(), expected, name);
    }
}

#[test]
fn roc_curves_and_thresholds_are_those_of_scikit_learn() {
    for_each_table(|name, expected, table, budget| {
        for class in 0..table.classes().len() {
            let mut points: Vec<OperatingPoint> = Vec::new();
            roc(table, class, budget, |point| points.push(point)).unwrap();
            let curve = &expected["roc"][class];
            let Some(curve) = curve.as_array() else {
                assert!(
                    points.iter().all(|point| point.sensitivity.is_none() || point.specificity.is_none())
                );
                continue;
            };
            assert_eq!(points.len(), curve.len(), "{name}, class {class}");
            for (point, expected) in points.iter().zip(curve) {
                let expected = numbers(expected);
                close(point.specificity.unwrap(), expected[0], name);
                close(point.sensitivity.unwrap(), expected[1], name);
            }
            for (wanted, expected) in [0.5, 0.9, 1.0].into_iter().zip(numbers(&expected["thresholds"][class]))
            {
                let found = threshold_for_sensitivity(table, class, wanted, budget).unwrap().unwrap();
                close(found.threshold, expected, &format!("{name}, class {class}, {wanted}"));
                assert!(found.sensitivity.unwrap() >= wanted);
            }
        }
        let none = roc(table, 99, budget, |_| {}).unwrap_err();
        assert!(matches!(none, TableError::NoClass { class: 99, .. }), "{none}");
    });
}

#[test]
fn reports_have_the_thresholds_of_scikit_learn_and_none_for_a_class_without_cases() {
    for_each_table(|name, expected, table, budget| {
        let mut report =
            classify(table, &Bootstrap { resamples: 2, ..Bootstrap::default() }, budget).unwrap();
        report.add_thresholds(table, &[0.5, 0.9, 1.0], budget).unwrap();
        for (class, report) in report.classes.iter().enumerate() {
            // The oracle has none of classes that no case, or each, is of.
            let Some(expected) = expected["thresholds"][class].as_array() else { continue };
            let expected: Vec<f64> = expected.iter().filter_map(Value::as_f64).collect();
            assert_eq!(report.thresholds.len(), expected.len());
            for (found, expected) in report.thresholds.iter().zip(expected) {
                close(found.threshold.unwrap(), expected, &format!("{name}, class {class}"));
                assert!(found.sensitivity.value.unwrap() >= found.wanted);
                assert!(found.sensitivity.low < found.sensitivity.value);
            }
        }
    });
    let budget = Budget::new(Bytes::mib(1));
    let names = vec!["a".into(), "b".into()];
    let table = Table::new(names, &[0, 0], &[0.5, 0.5, 0.75, 0.25], &budget).unwrap();
    let mut report = classify(&table, &Bootstrap { resamples: 2, ..Bootstrap::default() }, &budget).unwrap();
    report.add_thresholds(&table, &[0.9], &budget).unwrap();
    let [found] = report.classes[1].thresholds[..] else { panic!("{report:?}") };
    assert_eq!((found.threshold, found.sensitivity.value, found.specificity.value), (None, None, None));
    assert!(Curves::new(&table, &budget).unwrap().roc.iter().all(Vec::is_empty));
}

#[test]
fn curves_have_no_more_points_than_are_seen_and_both_ends() {
    let budget = Budget::new(Bytes::mib(16));
    let cases = 20_000;
    // A probability of its own for each case; every third is of the class, and likelier.
    let labels: Vec<u32> = (0..cases).map(|case: u32| u32::from(case.is_multiple_of(3))).collect();
    let share =
        |case: u32| f64::from(case) / f64::from(2 * cases) + if case.is_multiple_of(3) { 0.25 } else { 0.0 };
    let probabilities: Vec<f64> = (0..cases).flat_map(|case| [1.0 - share(case), share(case)]).collect();
    let table = Table::new(vec!["no".into(), "yes".into()], &labels, &probabilities, &budget).unwrap();
    let curves = Curves::new(&table, &budget).unwrap();
    for points in &curves.roc {
        assert!((400..=1002).contains(&points.len()), "{}", points.len());
        assert_eq!((points[0], points[points.len() - 1]), ([0.0, 0.0], [1.0, 1.0]));
        // What is left out does not change the area by more than what is seen.
        let area: f64 = points.windows(2).map(|p| (p[1][0] - p[0][0]) * (p[0][1] + p[1][1]) / 2.0).sum();
        let report = classify(&table, &Bootstrap { resamples: 1, ..Bootstrap::default() }, &budget).unwrap();
        let expected = report.classes[1].scores["auroc"].value.unwrap();
        assert!((area - expected).abs() < 1e-3, "{area}, {expected}");
    }
}

#[test]
fn reliability_is_that_of_scikit_learn_and_its_differences_make_the_calibration_error() {
    for_each_table(|name, expected, table, budget| {
        if let Some(expected) = expected["reliability"].as_array() {
            let bins = reliability(table, Some(1), 10).unwrap();
            let filled: Vec<_> = bins.iter().filter(|bin| bin.cases > 0).collect();
            let (confidence, frequency) = (numbers(&expected[0]), numbers(&expected[1]));
            assert_eq!(filled.len(), confidence.len());
            for (bin, (confidence, frequency)) in
                filled.into_iter().zip(confidence.into_iter().zip(frequency))
            {
                close(bin.confidence.unwrap(), confidence, name);
                close(bin.frequency.unwrap(), frequency, name);
                assert!(bin.above <= confidence && confidence <= bin.up_to);
            }
        }
        let bins = reliability(table, None, 15).unwrap();
        let cases: u64 = bins.iter().map(|bin| bin.cases).sum();
        assert_eq!(cases, table.cases() as u64);
        let weighted: f64 = bins
            .iter()
            .filter_map(|bin| Some(bin.cases as f64 * (bin.confidence? - bin.frequency?).abs()))
            .sum();
        let report = classify(table, &Bootstrap { resamples: 10, ..Bootstrap::default() }, budget).unwrap();
        close(weighted / cases as f64, report.overall["ece"].value.unwrap(), name);
    });
}

#[test]
fn intervals_of_shares_are_those_of_scipy() {
    for case in oracle()["wilson"].as_array().unwrap() {
        let [successes, trials, confidence, low, high] = numbers(case).try_into().unwrap();
        let found = wilson(successes as u64, trials as u64, confidence);
        close(found.low.unwrap(), low, "low");
        close(found.high.unwrap(), high, "high");
        close(found.value.unwrap(), successes / trials, "value");
    }
    assert_eq!(wilson(0, 0, 0.95).value, None);
    for_each_table(|name, _, table, budget| {
        let report = classify(table, &Bootstrap { resamples: 10, ..Bootstrap::default() }, budget).unwrap();
        for class in &report.classes {
            for (interval, score) in [(class.sensitivity, "sensitivity"), (class.specificity, "specificity")]
            {
                assert_eq!(interval.value, class.scores[score].value, "{name}, {score}");
                assert!(interval.low <= interval.value && interval.value <= interval.high);
            }
        }
    });
}

fn votes(classes: usize, rule: Rule) -> Votes {
    Votes::new(classes, rule, &[]).unwrap()
}

fn first_maximum(scores: &[f64]) -> usize {
    (0..scores.len()).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap()
}

#[test]
fn votes_win_as_in_scikit_learn_and_couple_to_the_minimum() {
    for case in oracle()["votes"].as_array().unwrap() {
        let classes = case["classes"].as_u64().unwrap() as usize;
        let p = numbers(&case["probabilities"]);
        // scikit-learn adds less than a third of a vote to break ties, which can only be seen where there are ties.
        let expected = numbers(&case["majority"]);
        let (winner, scores) = votes(classes, Rule::Majority).decide(&p).unwrap();
        let margin = expected[winner] - expected[first_maximum(&expected)];
        assert!(margin > -1e-12, "{p:?}: {scores:?}, {expected:?}");
        let coupled = votes(classes, Rule::Coupling).scores(&p).unwrap();
        for (found, expected) in coupled.iter().zip(numbers(&case["coupled"])) {
            assert!((found - expected).abs() < 1e-4, "{p:?}: {found}, {expected}");
        }
        assert!((coupled.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // The definition, in loops over all pairs of classes.
        let r = |a: usize, b: usize| {
            let at = |a, b| pairs(classes).position(|pair| pair == (a, b)).unwrap();
            if a < b { 1.0 - p[at(a, b)] } else { p[at(b, a)] }
        };
        let sums = votes(classes, Rule::ProbabilitySum).scores(&p).unwrap();
        for (a, found) in sums.iter().enumerate() {
            let sum: f64 = (0..classes).filter(|b| *b != a).map(|b| r(a, b)).sum();
            close(*found, sum / pair_count(classes) as f64, "sum");
        }
        close(sums.iter().sum(), 1.0, "sum of sums");
    }
}

#[test]
fn coupling_finds_probabilities_that_the_pairs_agree_on() {
    let truth = [0.5, 0.3, 0.15, 0.05];
    let p: Vec<f64> = pairs(4).map(|(a, b)| truth[b] / (truth[a] + truth[b])).collect();
    for (found, expected) in votes(4, Rule::Coupling).scores(&p).unwrap().into_iter().zip(truth) {
        close(found, expected, "coupled");
    }
    // A class that loses each pair for certain.
    let (winner, scores) = votes(3, Rule::Coupling).decide(&[0.0, 0.0, 0.0]).unwrap();
    assert!(winner == 0 && scores[0] > 0.999 && scores.iter().all(|score| *score >= 0.0), "{scores:?}");
}

#[test]
fn pairs_are_in_order_and_ties_go_as_they_are_said_to() {
    let order: Vec<_> = pairs(4).collect();
    assert_eq!(order, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    // p = ½ is a vote for the first class of the pair.
    assert_eq!(votes(2, Rule::Majority).decide(&[0.5]).unwrap().0, 0);
    // Each class wins one pair; 1 wins its own by most.
    assert_eq!(votes(3, Rule::Majority).decide(&[0.9, 0.4, 0.6]).unwrap().0, 1);
    // All are equal: the first.
    for rule in [Rule::Majority, Rule::ProbabilitySum, Rule::Weighted, Rule::Coupling] {
        let (winner, _) = votes(3, rule).decide(&[0.7, 0.3, 0.7]).unwrap();
        assert_eq!(winner, 0, "{rule:?}");
    }
    // Two votes win against any sum.
    let (winner, scores) = votes(3, Rule::Majority).decide(&[0.49, 0.49, 1.0]).unwrap();
    assert_eq!(winner, 0);
    assert!(scores[0] > scores[2] && scores[2] > scores[1], "{scores:?}");
}

#[test]
fn weights_are_squared_accuracy_times_confidence() {
    let votes = Votes::new(3, Rule::Weighted, &[0.8, 0.96, 0.5]).unwrap();
    let p = [0.25, 0.9, 0.5];
    // By hand: w01 = 0.64 · 0.5, w02 = 0.9216 · 1.5 · 0.8, w12 = 0.
    let (w01, w02) = (0.32, 1.10592);
    let means = [(w01 * 0.75 + w02 * 0.1) / (w01 + w02), 0.25, 0.9];
    let sum: f64 = means.iter().map(|mean: &f64| mean.exp()).sum();
    for (found, mean) in votes.scores(&p).unwrap().into_iter().zip(means) {
        close(found, mean.exp() / sum, "weighted");
    }
}

#[test]
fn several_classifiers_of_each_pair_count_the_same() {
    let (one, two) = ([0.2, 0.4, 0.9], [0.6, 0.8, 0.3]);
    let both: Vec<f64> = one.into_iter().chain(two).collect();
    let mean: Vec<f64> = one.iter().zip(two).map(|(one, two)| (one + two) / 2.0).collect();
    for rule in [Rule::ProbabilitySum, Rule::Coupling] {
        let (found, expected) =
            (votes(3, rule).scores(&both).unwrap(), votes(3, rule).scores(&mean).unwrap());
        found.into_iter().zip(expected).for_each(|(found, expected)| close(found, expected, "both"));
    }
    // 0 wins 01 and 02 once each, 1 wins 01 and 12 once each, 2 wins 02 and 12 once each.
    let scores = votes(3, Rule::Majority).scores(&both).unwrap();
    assert!(scores.iter().all(|score| (score - 1.0 / 3.0).abs() < 0.2), "{scores:?}");
}

#[test]
fn votes_that_are_not_those_of_all_pairs_are_refused_with_numbers() {
    assert_eq!(Votes::new(1, Rule::Majority, &[]), Err(VotesError::Classes { classes: 1 }));
    let three = votes(3, Rule::Majority);
    for (p, says) in [
        (vec![0.5; 4], "4 probabilities do not match 3 pairs"),
        (vec![], "0 probabilities"),
        (vec![0.5, 1.5, 0.5], "probability 1 is 1.5"),
        (vec![0.5, 0.5, f64::NAN], "probability 2 is NaN"),
    ] {
        let said = three.scores(&p).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
    let percent = Votes::new(2, Rule::Weighted, &[93.5]).unwrap_err();
    assert!(percent.to_string().contains("accuracy 0 is 93.5"), "{percent}");
    let other = Votes::new(3, Rule::Weighted, &[0.9; 6]).unwrap();
    assert!(other.scores(&[0.5; 3]).is_err());
}
