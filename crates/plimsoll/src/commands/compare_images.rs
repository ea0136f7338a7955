//! What `plimsoll compare` prints of classifiers.

use plimsoll_metrics::Better;
use plimsoll_metrics::classifiers::{ClassifierComparison, ImageDifference, ScoreOfClassifiers, TestName};
use plimsoll_metrics::comparison::Outcome as Told;

use super::compare::{MOST_ROWS, number, probability, told};
use crate::jobs::compare_images::ImageReport;
use crate::report::Table;

/// Prints all scores, and the choice by the first.
pub fn print(report: &ImageReport) {
    let comparison = &report.comparison;
    if !comparison.left_out.is_empty() {
        println!("left out, since not all have them: {}", comparison.left_out.join(", "));
    }
    for score in &comparison.scores {
        print_score(comparison, score);
    }
    if comparison.candidates.iter().all(|candidate| candidate.repeats.len() == 1) {
        println!(
            "each was trained once: differences are of these networks, and seeds of the same settings may differ as much"
        );
    }
    if let Some((score, choice)) =
        comparison.scores.iter().find_map(|score| Some((score.score, score.choice.as_ref()?)))
    {
        println!("by {}: {}", score.name(), choice.words);
    }
    println!("reserved {} at most, peak resident {}", report.reserved_bytes, report.peak_rss_bytes);
}

fn print_score(comparison: &ClassifierComparison, score: &ScoreOfClassifiers) {
    let better = match score.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    println!("{} of {} images, {better} is better", score.score.name(), comparison.images.len());
    print_candidates(score);
    print_differences(score);
    for found in score.differences.iter().filter(|found| found.class.is_none()) {
        println!("{}", found.verdict.words);
    }
    if let (Some(mean), Some(low)) = (score.mean_tau, score.low_tau) {
        let percent = 50.0 * (1.0 + comparison.bootstrap.confidence);
        println!(
            "Kendall's tau of this order and those of resamples: {mean:.2} on average, {low:.2} or more in {percent:.1} %"
        );
    }
    println!();
}

fn print_candidates(score: &ScoreOfClassifiers) {
    let has_repeats = score.candidates.iter().any(|candidate| candidate.over_repeats.is_some());
    let columns = ["candidate", "class", score.score.name(), "from", "to", "first in"].into_iter();
    let mut table = Table::new(columns.chain(has_repeats.then_some("sd of seeds")));
    for candidate in score.candidates.iter().take(MOST_ROWS) {
        let end = |end: usize| number(candidate.interval.map(|interval| interval[end]));
        let mut row = vec![
            candidate.candidate.clone(),
            candidate.class.clone().unwrap_or_else(|| "all".into()),
            number(candidate.value),
            end(0),
            end(1),
            candidate.first_share.map_or("–".into(), |share| format!("{:.0} %", 100.0 * share)),
        ];
        if has_repeats {
            row.push(number(candidate.over_repeats.as_ref().and_then(|repeats| repeats.sd)));
        }
        table.row(row);
    }
    table.print();
}

fn print_differences(score: &ScoreOfClassifiers) {
    let mut table = Table::new([
        "class",
        "first",
        "second",
        "images",
        "first − second",
        "from",
        "to",
        "test",
        "p",
        "Holm",
        "",
    ]);
    let is_long = score.differences.len() > MOST_ROWS;
    let is_shown = |found: &&ImageDifference| {
        !is_long || found.class.is_none() || found.verdict.outcome == Told::Separated
    };
    for found in score.differences.iter().filter(is_shown) {
        let [low, high] = [0, 1].map(|bound| number(found.interval.map(|interval| interval[bound])));
        table.row([
            found.class.clone().unwrap_or_else(|| "all".into()),
            found.first.clone(),
            found.second.clone(),
            found.images.to_string(),
            number(found.difference),
            low,
            high,
            found.test.map_or("–".into(), |test| shown(test.test).into()),
            probability(found.test.map(|test| test.p)),
            probability(found.p_holm),
            told(found.verdict.outcome).into(),
        ]);
    }
    table.print();
    let hidden = score.differences.iter().filter(|found| !is_shown(found)).count();
    if hidden > 0 {
        println!("{hidden} more comparisons of classes are not separated: --csv and --json have them");
    }
}

fn shown(test: TestName) -> &'static str {
    match test {
        TestName::Mcnemar => "McNemar",
        TestName::SignFlip => "signs",
        TestName::Delong => "DeLong",
        TestName::Bootstrap => "bootstrap",
    }
}
