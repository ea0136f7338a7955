//! `plimsoll compare`

use plimsoll::{CompareRequest, ComparisonReport, LabelReport, compare};
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{CandidateScores, ClassName, Comparison, Difference, ScoreComparison};
use plimsoll_metrics::{CaseCounts, Missing};

use super::compared::{
    Row, direction, number, print_differences, print_left_out, print_prediction, print_repeats,
    print_stability, repeats, runs, share,
};
use crate::args::Compare;
use crate::failure::Outcome;
use crate::report::{Table, json, or_dash};
use crate::terminal;

/// Columns of classes that are printed; of more only the mean.
const MOST_COLUMNS: usize = 8;

/// Says which candidates are better.
pub fn run(args: &Compare, as_json: bool) -> Outcome {
    let context = terminal::context(as_json)?;
    let ensembles = args.ensembles()?;
    if ensembles.is_some() {
        context.keep_results();
    }
    let bootstrap = Bootstrap { resamples: args.resamples.get(), seed: args.seed, ..Bootstrap::default() };
    let request = CompareRequest {
        candidates: args.candidates.clone(),
        scores: args.metric.clone(),
        classes: args.classes.clone(),
        common_cases: args.common_cases,
        several_labels: args.several_labels,
        missing: args.missing.map(Missing::from),
        bootstrap,
        csv: args.csv.clone(),
        picture: args.picture.clone(),
        ensembles,
        ram: args.ram.ram,
    };
    let report = compare(&request, &context)?;
    if as_json {
        return json(&report);
    }
    match &report {
        ComparisonReport::LabelMaps(report) => print(report),
        ComparisonReport::Images(report) => super::compare_images::print(report),
    }
    Ok(())
}

/// Prints the comparison of candidates that label voxels.
fn print(report: &LabelReport) {
    let comparison = &report.comparison;
    print_left_out(&comparison.left_out);
    for score in &comparison.scores {
        print_score(comparison, score);
    }
    print_repeats(&comparison.candidates);
    if let Some(comparison) = &report.with_ensembles {
        for score in &comparison.scores {
            println!("{} with ensembles of two", score.metric.name());
            print_candidates(comparison, score);
        }
    }
    print_choice(report);
    println!("reserved {} at most, peak resident {}", report.reserved_bytes, report.peak_rss_bytes);
}

fn print_score(comparison: &Comparison, score: &ScoreComparison) {
    let (better, cases) = (direction(score.better), comparison.cases.len());
    let unit = score.unit.map(|unit| format!(" in {unit}")).unwrap_or_default();
    println!("{}{unit} of {cases} cases, {better} is better", score.metric.name());
    print_candidates(comparison, score);
    let overall = score.overall();
    let row = |found| row(found, overall.iter().any(|overall| std::ptr::eq(*overall, found)));
    print_differences(["cases", "median"], &score.differences.iter().map(row).collect::<Vec<_>>());
    for difference in &overall {
        let [first, second] = [difference.undefined.first, difference.undefined.second];
        if first + second > 0 {
            println!(
                "warning: {} is undefined in {first} scores of {} alone and in {second} of {} alone; such pairs are dropped, which favours \
                 whoever finds nothing",
                score.metric.name(),
                difference.first,
                difference.second
            );
        }
    }
    if score.candidates.iter().any(|scores| scores.counts.missing > 0) {
        println!("{}", plimsoll_report::missing_words(comparison.missing));
    }
    if let Some(ranking) = &score.ranking {
        print_stability([ranking.mean_tau, ranking.low_tau], comparison.bootstrap.confidence);
    }
    println!();
}

fn row(found: &Difference, is_overall: bool) -> Row<'_> {
    Row {
        class: &found.class.name,
        is_overall,
        first: &found.first,
        second: &found.second,
        count: found.cases,
        difference: found.mean,
        interval: found.mean_interval,
        own: number(found.median),
        p: found.test.map(|test| test.p),
        p_holm: found.p_holm,
        verdict: &found.verdict,
    }
}

/// The candidates in their order, with their means.
fn print_candidates(comparison: &Comparison, score: &ScoreComparison) {
    let mut classes: Vec<&ClassName> = Vec::new();
    for scores in &score.candidates {
        if !classes.contains(&&scores.class) {
            classes.push(&scores.class);
        }
    }
    if classes.len() > MOST_COLUMNS {
        classes.truncate(1);
    }
    let has_repeats = comparison.candidates.iter().any(|candidate| candidate.repeats.len() > 1);
    let columns = ["candidate", "mean rank", "first in"].into_iter();
    let columns = columns.chain(classes.iter().map(|class| class.name.as_str()));
    let mut table = Table::new(columns.chain(has_repeats.then_some("sd of seeds")));
    let order: Vec<(&str, Option<_>)> = match &score.ranking {
        Some(ranking) => {
            ranking.order.iter().map(|ranked| (ranked.candidate.as_str(), Some(ranked))).collect()
        }
        None => comparison.candidates.iter().map(|candidate| (candidate.name.as_str(), None)).collect(),
    };
    for (name, ranked) in order {
        let of = |class: &ClassName| {
            score.candidates.iter().find(|scores| scores.candidate == name && scores.class == *class)
        };
        let mut row = vec![name.to_string()];
        row.push(ranked.map_or("–".into(), |ranked| format!("{:.2}", ranked.mean_rank)));
        row.push(share(ranked.map(|ranked| ranked.first_share)));
        row.extend(classes.iter().map(|class| or_dash(of(class).map(mean))));
        if has_repeats {
            let first = classes.first().and_then(|class| of(class)?.over_repeats.as_ref()?.sd);
            row.push(number(first));
        }
        table.row(row);
    }
    table.print();
}

/// The mean of a candidate with the cases behind it. Where missing scores count, the mean over the others stands beside it.
fn mean(scores: &CandidateScores) -> String {
    let shown = |mean: f64| format!("{mean:.4}");
    match scores.mean_of_defined.filter(|defined| scores.mean != Some(*defined)) {
        None => scores.counts.beside(scores.mean, shown),
        Some(defined) => {
            let all = CaseCounts::default().beside(scores.mean, shown);
            format!("{all} ({} in {})", shown(defined), scores.counts)
        }
    }
}

/// The choice by the first score, and what to do with it.
fn print_choice(report: &LabelReport) {
    let comparison = report.with_ensembles.as_ref().unwrap_or(&report.comparison);
    let Some(score) = comparison.scores.first() else { return };
    let Some(choice) = &score.choice else { return };
    println!("by {}: {}", score.metric.name(), choice.words);
    match &runs(report.folders.get(&choice.candidate))[..] {
        [] => {}
        [run] => println!("`plimsoll postprocess {run} --choose` chooses steps for it"),
        runs => print_prediction(runs, repeats(&comparison.candidates, &choice.candidate), "LABELS"),
    }
}
