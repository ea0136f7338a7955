//! The output of `plimsoll compare` for classifiers.

use plimsoll::{ImageReport, quoted};
use plimsoll_metrics::classifiers::{ClassifierComparison, ImageDifference, ScoreOfClassifiers, TestName};

use super::compared::{
    MOST_ROWS, Row, direction, ends, number, print_differences, print_left_out, print_prediction,
    print_repeats, print_stability, repeats, runs, share,
};
use crate::report::Table;

/// Prints all scores, and the choice by the first.
pub fn print(report: &ImageReport) {
    let comparison = &report.comparison;
    print_left_out(&comparison.left_out);
    for score in &comparison.scores {
        print_score(comparison, score);
    }
    print_repeats(&comparison.candidates);
    if let Some(comparison) = &report.with_ensembles {
        for score in &comparison.scores {
            println!("{} with ensembles of two", score.score.name());
            print_candidates(score);
        }
    }
    print_choice(report);
    println!("reserved {} at most, peak resident {}", report.reserved_bytes, report.peak_rss_bytes);
}

/// The choice by the first score that has one, and what to do with it.
fn print_choice(report: &ImageReport) {
    let comparison = report.with_ensembles.as_ref().unwrap_or(&report.comparison);
    let choices = comparison.scores.iter().find_map(|score| Some((score.score, score.choice.as_ref()?)));
    let Some((score, choice)) = choices else { return };
    println!("by {}: {}", score.name(), choice.words);
    let Some(tables) = report.tables.get(&choice.candidate) else { return };
    let tables: Vec<String> = tables.iter().map(|table| quoted(&table.display().to_string())).collect();
    println!("its predictions are in {}", tables.join(", "));
    let runs = runs(report.folders.get(&choice.candidate));
    if runs.len() > 1 {
        print_prediction(&runs, repeats(&comparison.candidates, &choice.candidate), "OUT.csv");
    }
}

fn print_score(comparison: &ClassifierComparison, score: &ScoreOfClassifiers) {
    let (better, images) = (direction(score.better), comparison.images.len());
    println!("{} of {images} images, {better} is better", score.score.name());
    print_candidates(score);
    let rows: Vec<Row<'_>> = score.differences.iter().map(row).collect();
    print_differences(["images", "test"], &rows);
    print_stability([score.mean_tau, score.low_tau], comparison.bootstrap.confidence);
    println!();
}

/// The name of all classes together.
const ALL: &str = "all";

fn row(found: &ImageDifference) -> Row<'_> {
    Row {
        class: found.class.as_deref().unwrap_or(ALL),
        is_overall: found.class.is_none(),
        first: &found.first,
        second: &found.second,
        count: found.images,
        difference: found.difference,
        interval: found.interval,
        own: found.test.map_or("–", |test| shown(test.test)).into(),
        p: found.test.map(|test| test.p),
        p_holm: found.p_holm,
        verdict: &found.verdict,
    }
}

fn print_candidates(score: &ScoreOfClassifiers) {
    let has_repeats = score.candidates.iter().any(|candidate| candidate.over_repeats.is_some());
    let columns = ["candidate", "class", score.score.name(), "from", "to", "first in"].into_iter();
    let mut table = Table::new(columns.chain(has_repeats.then_some("sd of seeds")));
    for candidate in score.candidates.iter().take(MOST_ROWS) {
        let [low, high] = ends(candidate.interval);
        let mut row = vec![
            candidate.candidate.clone(),
            candidate.class.clone().unwrap_or_else(|| ALL.into()),
            number(candidate.value),
            low,
            high,
            share(candidate.first_share),
        ];
        if has_repeats {
            row.push(number(candidate.over_repeats.as_ref().and_then(|repeats| repeats.sd)));
        }
        table.row(row);
    }
    table.print();
}

fn shown(test: TestName) -> &'static str {
    match test {
        TestName::Mcnemar => "McNemar",
        TestName::SignFlip => "signs",
        TestName::Delong => "DeLong",
        TestName::Bootstrap => "bootstrap",
    }
}
