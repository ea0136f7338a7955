//! Statistics of comparisons of classifiers: see `oracles/image_comparison.py`.

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::{Bootstrap, Labelling, NamedTable, Table};
use plimsoll_metrics::classifiers::{
    Classifier, ClassifierComparison, ClassifierRepeat, ClassifierSettings, ImageScore, PairedClassifiers,
    TestName, bootstrap_p, compare_classifiers, mcnemar, sign_flip,
};
use plimsoll_metrics::comparison::{ComparisonError, Outcome, percentile};
use serde_json::Value;

fn oracle() -> Value {
    serde_json::from_str(include_str!("../../../oracles/image_comparison.json")).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(|number| number.as_f64().unwrap()).collect()
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-9, "{what}: {found}, {expected}");
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

fn labels(case: &Value) -> Vec<u32> {
    list(&case["labels"]).iter().map(|label| label.as_u64().unwrap() as u32).collect()
}

/// A table with names of images that are their numbers.
fn named(labels: &[u32], probabilities: &[f64]) -> NamedTable {
    let classes = probabilities.len() / labels.len();
    let names = (0..classes).map(|class| format!("c{class}")).collect();
    let table = Table::new(names, labels, probabilities, &budget()).unwrap();
    NamedTable::new(table, (0..labels.len()).map(|image| format!("image_{image:04}")).collect()).unwrap()
}

fn candidate(name: &str, labels: &[u32], repeats: &[Vec<f64>]) -> Classifier {
    let repeat = |(at, table): (usize, &Vec<f64>)| {
        ClassifierRepeat::new(format!("{name}/{at}"), vec![named(labels, table)], &budget()).unwrap()
    };
    Classifier { name: name.into(), repeats: repeats.iter().enumerate().map(repeat).collect() }
}

fn compare(candidates: Vec<Classifier>, scores: &[&str], resamples: usize) -> ClassifierComparison {
    let paired = PairedClassifiers::new(candidates, false, &budget()).unwrap();
    let settings = ClassifierSettings {
        scores: scores.iter().map(|name| ImageScore::named(name).unwrap()).collect(),
        classes: None,
        bootstrap: Bootstrap { resamples, ..Bootstrap::default() },
    };
    compare_classifiers(&paired, &settings, &budget()).unwrap()
}

fn candidates(case: &Value) -> Vec<Classifier> {
    let of = |(at, table)| candidate(&format!("m{at}"), &labels(case), &[numbers(table)]);
    list(&case["tables"]).iter().enumerate().map(of).collect()
}

#[test]
fn mcnemars_exact_test_is_that_of_statsmodels() {
    let oracle = oracle();
    for pair in list(&oracle["mcnemar"]) {
        let [first, second] = ["first", "second"].map(|key| pair[key].as_u64().unwrap());
        let (found, expected) = (mcnemar(first, second), pair["p"].as_f64().unwrap());
        close(found, expected, "p");
        // Small ones are right in their digits, too.
        assert!((found / expected - 1.0).abs() < 1e-9, "{first} {second}: {found} {expected}");
        assert_eq!(found, mcnemar(second, first));
        let signs: Vec<i64> = (0..first).map(|_| 1).chain((0..second).map(|_| -1)).collect();
        assert_eq!(sign_flip(&signs), found, "of one repeat each, signs are McNemar's test");
    }
    assert_eq!(mcnemar(0, 5000), 0.0, "less than a number of 64 bits can be");
}

#[test]
fn tests_of_signs_are_scipys_over_all_assignments() {
    for case in list(&oracle()["signs"]) {
        let differences: Vec<i64> = list(&case["differences"]).iter().map(|d| d.as_i64().unwrap()).collect();
        close(sign_flip(&differences), case["p"].as_f64().unwrap(), "signs");
    }
    assert_eq!(sign_flip(&[0, 0]), 1.0);
    assert_eq!(sign_flip(&[]), 1.0);
    // Too many to be enumerated: the normal distribution, and near it.
    let many: Vec<i64> = (0..20_000).map(|at| if at % 40 < 21 { 2 - at % 2 } else { at % 2 - 2 }).collect();
    let few = &many[..4000];
    let squares = |d: &[i64]| d.iter().map(|d| (d * d) as f64).sum::<f64>();
    let z = |d: &[i64]| d.iter().sum::<i64>() as f64 / squares(d).sqrt();
    assert!((z(few) - z(&many) / 5f64.sqrt()).abs() < 1e-9);
    assert!(sign_flip(&many) < sign_flip(few) && sign_flip(few) < 1.0);
}

#[test]
fn accuracy_is_tested_by_mcnemar_and_areas_by_delong_with_holms_correction() {
    for case in list(&oracle()["comparisons"]) {
        let found = compare(candidates(case), &["accuracy", "auroc", "sensitivity"], 50);
        let [accuracy, auroc, sensitivity] = &found.scores[..] else { panic!("{found:?}") };
        let (pairs, classes) = (list(&case["pairs"]), found.classes.len());
        let is_binary = classes == 2;
        let holm = numbers(&case["holm_of_accuracy"]);
        for (place, pair) in pairs.iter().enumerate() {
            let difference = &accuracy.differences[place];
            assert_eq!([&difference.first, &difference.second], [&pair["first"], &pair["second"]]);
            let test = difference.test.unwrap();
            assert_eq!(test.test, TestName::Mcnemar);
            let alone: Vec<u64> = test.right_in_one_alone.unwrap().to_vec();
            assert_eq!(Value::from(alone), pair["alone"]);
            close(test.p, pair["p_accuracy"].as_f64().unwrap(), "McNemar");
            close(difference.p_holm.unwrap(), holm[place], "Holm");
            for class in 0..classes {
                let expected = &pair["areas"][class];
                // Of two classes both areas are the same, and are listed as the area of all.
                let at = if is_binary { place } else { pairs.len() + class * pairs.len() + place };
                let difference = &auroc.differences[at];
                let test = difference.test.unwrap();
                assert_eq!(test.test, TestName::Delong);
                for (found, expected) in difference.scores.iter().zip(numbers(&expected["areas"])) {
                    close(found.unwrap(), expected, "area");
                }
                close(difference.standard_error.unwrap(), expected["se"].as_f64().unwrap(), "se");
                close(test.p, expected["p"].as_f64().unwrap(), "DeLong");
                for (end, expected) in difference.interval.unwrap().iter().zip(numbers(&expected["interval"]))
                {
                    close(*end, expected, "interval");
                }
                let sensitive = &pair["sensitivity"][class];
                // Sensitivity is of single classes alone.
                let difference = &sensitivity.differences[class * pairs.len() + place];
                assert_eq!(difference.class.as_deref(), Some(&*format!("c{class}")));
                let test = difference.test.unwrap();
                close(test.p, sensitive["p"].as_f64().unwrap(), "McNemar of a class");
                assert_eq!(Value::from(test.right_in_one_alone.unwrap().to_vec()), sensitive["alone"]);
            }
        }
        if !is_binary {
            let corrected = numbers(&case["holm_of_areas"]);
            for (difference, expected) in auroc.differences[pairs.len()..].iter().zip(corrected) {
                close(difference.p_holm.unwrap(), expected, "Holm over pairs and classes");
            }
            assert_eq!(auroc.differences[0].test.unwrap().test, TestName::Bootstrap, "the mean over classes");
        }
    }
}

#[test]
fn scores_of_all_images_are_those_of_scikit_learn() {
    let names = ["accuracy", "balanced_accuracy", "quadratic_kappa", "f1", "auroc", "average_precision"];
    for case in list(&oracle()["comparisons"]) {
        let found = compare(candidates(case), &names, 10);
        for (name, score) in names.iter().zip(&found.scores) {
            for (candidate, expected) in score.candidates.iter().zip(list(&case["scores"])) {
                assert_eq!(candidate.class, None);
                close(candidate.value.unwrap(), expected[*name].as_f64().unwrap(), name);
            }
        }
    }
}

#[test]
fn differences_of_the_same_resamples_have_the_intervals_of_numpy() {
    let names = ["accuracy", "balanced_accuracy", "quadratic_kappa", "f1", "auroc", "average_precision"];
    for case in list(&oracle()["resamples"]) {
        let all = labels(case);
        let tables: Vec<Vec<f64>> = list(&case["tables"]).iter().map(numbers).collect();
        let classes = tables[0].len() / all.len();
        let mut differences = vec![Vec::new(); names.len()];
        for drawn in list(&case["indices"]) {
            let drawn: Vec<usize> = list(drawn).iter().map(|at| at.as_u64().unwrap() as usize).collect();
            let own: Vec<u32> = drawn.iter().map(|at| all[*at]).collect();
            let of = |table: &Vec<f64>| -> Vec<f64> {
                drawn.iter().flat_map(|at| &table[at * classes..][..classes]).copied().collect()
            };
            let two = ["a", "b"].iter().zip(&tables).map(|(name, table)| candidate(name, &own, &[of(table)]));
            let found = compare(two.collect(), &names, 1);
            for (of_score, score) in differences.iter_mut().zip(&found.scores) {
                of_score.push(score.differences[0].difference.unwrap());
            }
        }
        for (name, mut found) in names.iter().zip(differences) {
            let expected = &case["found"][*name];
            for (found, expected) in found.iter().zip(numbers(&expected["differences"])) {
                close(*found, expected, name);
            }
            // What rounds to zero is zero for both or for neither.
            found.iter_mut().filter(|d| d.abs() < 1e-12).for_each(|d| *d = 0.0);
            close(bootstrap_p(&found).unwrap(), expected["p"].as_f64().unwrap(), name);
            found.sort_by(f64::total_cmp);
            for (end, expected) in
                percentile(&found, 0.95).unwrap().iter().zip(numbers(&expected["interval"]))
            {
                close(*end, expected, name);
            }
        }
    }
    assert_eq!(bootstrap_p(&[]), None);
}

/// A second training is no further image: for repeats with the same predictions, p is the p of one.
#[test]
fn repeats_are_averaged_and_count_as_no_images() {
    let oracle = oracle();
    let case = &list(&oracle["comparisons"])[2];
    let all = labels(case);
    let [first, second] = [0, 1].map(|at| numbers(&case["tables"][at]));
    let of = |repeats: usize| {
        let tables = |table: &Vec<f64>| vec![table.clone(); repeats];
        let two = vec![candidate("a", &all, &tables(&first)), candidate("b", &all, &tables(&second))];
        compare(two, &["accuracy", "auroc", "f1"], 40)
    };
    let (one, three) = (of(1), of(3));
    for (one, three) in one.scores.iter().zip(&three.scores) {
        for (one, three) in one.differences.iter().zip(&three.differences) {
            close(three.test.unwrap().p, one.test.unwrap().p, "p");
            close(three.difference.unwrap(), one.difference.unwrap(), "difference");
            close(three.standard_error.unwrap(), one.standard_error.unwrap(), "standard error");
        }
        let repeats = three.candidates[0].over_repeats.as_ref().unwrap();
        assert_eq!(repeats.means.len(), 3);
        assert!(repeats.sd.unwrap() < 1e-12);
    }
    // One training against two, one of which is the other candidate: half of what is different is left.
    let two =
        vec![candidate("a", &all, std::slice::from_ref(&first)), candidate("b", &all, &[first, second])];
    let halved = compare(two, &["accuracy"], 10);
    let [whole, half] = [&one, &halved].map(|found| &found.scores[0].differences[0]);
    close(half.difference.unwrap(), whole.difference.unwrap() / 2.0, "half");
    assert_eq!(half.test.unwrap().test, TestName::SignFlip);
    close(half.test.unwrap().p, whole.test.unwrap().p, "the same images differ");
}

/// An ensemble is the mean of the probabilities, repeat by repeat, and is compared as a candidate that had said them itself.
#[test]
fn ensembles_are_candidates_that_say_the_mean_of_both() {
    let oracle = oracle();
    let case = &list(&oracle["comparisons"])[2];
    let all = labels(case);
    let [first, second] = [0, 1].map(|at| numbers(&case["tables"][at]));
    // Another training of both: what each says of the classes, turned round.
    let turned = |table: &[f64]| {
        table
            .chunks_exact(table.len() / all.len())
            .flat_map(|row| row.iter().rev())
            .copied()
            .collect::<Vec<f64>>()
    };
    let mean = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a + b) / 2.0).collect::<Vec<f64>>();
    let [one, other] = [[first.clone(), turned(&first)], [second.clone(), turned(&second)]];
    let means = [mean(&one[0], &other[0]), mean(&one[1], &other[1])];
    let two = || vec![candidate("a", &all, &one), candidate("b", &all, &other)];
    let paired = PairedClassifiers::new(two(), false, &budget()).unwrap();
    let paired = paired.with_ensembles(&budget()).unwrap();
    assert_eq!(paired.names().collect::<Vec<_>>(), ["a", "b", "a + b"]);
    let settings = ClassifierSettings {
        scores: ["accuracy", "auroc", "f1"].map(|name| ImageScore::named(name).unwrap()).to_vec(),
        classes: None,
        bootstrap: Bootstrap { resamples: 60, ..Bootstrap::default() },
    };
    let found = compare_classifiers(&paired, &settings, &budget()).unwrap();
    let by_hand = compare(
        two().into_iter().chain([candidate("a + b", &all, &means)]).collect(),
        &["accuracy", "auroc", "f1"],
        60,
    );
    for (found, expected) in found.scores.iter().zip(&by_hand.scores) {
        assert_eq!(found.candidates.len(), expected.candidates.len());
        for (found, expected) in found.candidates.iter().zip(&expected.candidates) {
            assert_eq!((&found.candidate, &found.class), (&expected.candidate, &expected.class));
            close(found.value.unwrap(), expected.value.unwrap(), "value");
        }
        for (found, expected) in found.differences.iter().zip(&expected.differences) {
            close(found.difference.unwrap(), expected.difference.unwrap(), "difference");
            close(found.p_holm.unwrap(), expected.p_holm.unwrap(), "p");
        }
    }
    // Written and read again it is the same table, of numbers with as many decimals.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    let tables: Vec<_> = paired.tables("a + b").collect();
    assert_eq!(tables.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a/0 + b/0", "a/1 + b/1"]);
    tables[0].1.write(paired.images(), &mut std::fs::File::create(&path).unwrap()).unwrap();
    let read = Table::read(&path, Labelling::OneClass, &budget()).unwrap();
    for (read, mean) in read.rows().flatten().zip(&means[0]) {
        assert!((read - mean).abs() <= 0.5e-7 + 1e-12);
    }
    // Trained differently often, it is not known which are averaged.
    let uneven = vec![candidate("a", &all, &one), candidate("b", &all, &[second])];
    let refused = PairedClassifiers::new(uneven, false, &budget()).unwrap().with_ensembles(&budget());
    let refused = refused.unwrap_err();
    assert_eq!(refused.to_string(), "a was trained 2 times and b 1 times: it is ambiguous which to average");
}

#[test]
fn few_images_that_differ_say_that_they_cannot_tell_and_the_same_are_the_same() {
    let all = vec![0, 1, 0, 1, 0, 1];
    let right: Vec<f64> = all.iter().flat_map(|label| [1.0 - f64::from(*label), f64::from(*label)]).collect();
    let mut wrong = right.clone();
    wrong[..2].reverse();
    let two = |other: &[f64]| {
        vec![candidate("a", &all, std::slice::from_ref(&right)), candidate("b", &all, &[other.to_vec()])]
    };
    let found = compare(two(&wrong), &["accuracy"], 200);
    let verdict = &found.scores[0].differences[0].verdict;
    assert_eq!(verdict.outcome, Outcome::TooFewCases);
    assert!(
        verdict.words.starts_with("6 images cannot separate a and b by accuracy: 1.0000 − 0.8333"),
        "{verdict:?}"
    );
    assert!(verdict.words.contains("only one of both gets 1 and 0 images right"), "{verdict:?}");
    let found = compare(two(&right), &["accuracy", "auroc", "ece"], 200);
    for score in &found.scores {
        let difference = &score.differences[0];
        assert_eq!(
            (difference.verdict.outcome, difference.p_holm),
            (Outcome::Same, Some(1.0)),
            "{difference:?}"
        );
    }
}

#[test]
fn the_better_one_is_named_and_chosen() {
    let all: Vec<u32> = (0..200).map(|image| image % 2).collect();
    let said = |wrong: fn(usize) -> bool| -> Vec<f64> {
        let of = |(image, label): (usize, &u32)| {
            let right = if wrong(image) { 0.3 } else { 0.8 };
            if *label == 0 { [right, 1.0 - right] } else { [1.0 - right, right] }
        };
        all.iter().enumerate().flat_map(of).collect()
    };
    let better = candidate("better", &all, &[said(|image| image % 11 == 0)]);
    let worse = candidate("worse", &all, &[said(|image| image % 3 == 0)]);
    let found = compare(vec![worse, better], &["accuracy", "ece", "auroc"], 500);
    for score in &found.scores {
        let verdict = &score.differences[0].verdict;
        assert_eq!(
            (verdict.outcome, verdict.better.as_deref()),
            (Outcome::Separated, Some("better")),
            "{verdict:?}"
        );
        let choice = score.choice.as_ref().unwrap();
        assert_eq!((choice.candidate.as_str(), choice.not_separated_from.len()), ("better", 0), "{choice:?}");
        assert!(choice.first_share > 0.99, "{choice:?}");
    }
    let mut csv = Vec::new();
    found.write_csv(&mut csv).unwrap();
    let rows = String::from_utf8(csv).unwrap();
    assert!(rows.lines().all(|row| row.split(',').count() == 19), "{rows}");
    assert!(rows.contains("\naccuracy,all,worse,better,200,0.665,0.905,-0.24"), "{rows}");
}

#[test]
fn what_cannot_be_paired_is_refused_with_names() {
    let all = vec![0, 1, 0, 1];
    let table: Vec<f64> =
        all.iter().flat_map(|label| [0.9 - 0.8 * f64::from(*label), 0.1 + 0.8 * f64::from(*label)]).collect();
    let one = || candidate("a", &all, std::slice::from_ref(&table));
    let refused =
        |candidates: Vec<Classifier>| PairedClassifiers::new(candidates, false, &budget()).unwrap_err();
    assert!(matches!(refused(vec![one()]), ComparisonError::TooFew { found: 1 }));
    assert!(matches!(refused(vec![one(), one()]), ComparisonError::SameName { .. }));
    let fewer = || candidate("b", &all[..3], &[table[..6].to_vec()]);
    let missing = refused(vec![one(), fewer()]);
    assert_eq!(
        missing.to_string(),
        "1 of 4 cases are missing for some candidates: image_0003 (b/0 lacks it)"
    );
    let common = PairedClassifiers::new(vec![one(), fewer()], true, &budget()).unwrap();
    assert_eq!((common.images().len(), common.left_out()), (3, &["image_0003".to_string()][..]));
    let relabelled = refused(vec![one(), candidate("b", &[0, 1, 1, 1], std::slice::from_ref(&table))]);
    assert_eq!(relabelled.to_string(), "the labels of image_0002 differ: c0 for a/0, and c1 for b/0");
    let more: Vec<f64> = all.iter().flat_map(|_| [0.5, 0.25, 0.25]).collect();
    let classes = refused(vec![one(), candidate("b", &all, &[more])]);
    assert_eq!(classes.to_string(), "a/0 has the classes c0, c1, but b/0 has c0, c1, c2");
    let twice = vec![named(&all, &table), named(&all, &table)];
    let twice = ClassifierRepeat::new("a", twice, &budget()).unwrap_err();
    assert!(matches!(twice, ComparisonError::CaseTwice { .. }), "{twice}");
    let paired = PairedClassifiers::new(
        vec![one(), candidate("b", &all, std::slice::from_ref(&table))],
        false,
        &budget(),
    )
    .unwrap();
    let settings = |score: &str, class: Option<&str>| ClassifierSettings {
        scores: vec![ImageScore::named(score).unwrap()],
        classes: class.map(|class| vec![class.to_string()]),
        bootstrap: Bootstrap { resamples: 10, ..Bootstrap::default() },
    };
    let refused = |settings| compare_classifiers(&paired, &settings, &budget()).unwrap_err().to_string();
    assert_eq!(refused(settings("micro_f1", None)), "classifiers of this kind have no micro_f1");
    assert_eq!(refused(settings("f1", Some("c7"))), "there is no class c7; these are: c0, c1");
    let little = compare_classifiers(&paired, &settings("f1", None), &Budget::new(Bytes(100))).unwrap_err();
    assert!(little.remedy().is_some(), "{little}");
}
