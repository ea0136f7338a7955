//! `plimsoll compare`

use plimsoll_metrics::Better;
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::comparison::{ClassName, Comparison, Difference, Outcome as Told, ScoreComparison};

use crate::args::Compare;
use crate::failure::Outcome;
use crate::jobs::compare::{CompareRequest, LabelReport, Report, compare};
use crate::report::{Table, json, quoted};
use crate::signals::Stop;

/// Columns of classes that are printed; of more only the mean.
const MOST_COLUMNS: usize = 8;

/// Rows of a table that are read; of more only the means over classes, and what is separated.
pub(super) const MOST_ROWS: usize = 60;

/// Says which candidates are better.
pub fn run(args: &Compare, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    let ensembles = args.ensembles()?;
    if ensembles.is_some() {
        stop.end_in_order();
    }
    let bootstrap = Bootstrap { resamples: args.resamples.get(), seed: args.seed, ..Bootstrap::default() };
    let request = CompareRequest {
        candidates: args.candidates.clone(),
        scores: args.metric.clone(),
        classes: args.classes.clone(),
        common_cases: args.common_cases,
        several_labels: args.several_labels,
        bootstrap,
        csv: args.csv.clone(),
        picture: args.picture.clone(),
        ensembles,
        ram: args.ram.ram,
    };
    let report = compare(&request, &stop, as_json).map_err(|failure| stop.cause_of(failure))?;
    if as_json {
        return json(&report);
    }
    match &report {
        Report::LabelMaps(report) => print(report),
        Report::Images(report) => super::compare_images::print(report),
    }
    Ok(())
}

/// Prints what came of candidates that label voxels.
fn print(report: &LabelReport) {
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
    let better = match score.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    let unit = score.unit.map(|unit| format!(" in {unit}")).unwrap_or_default();
    println!("{}{unit} of {} cases, {better} is better", score.metric.name(), comparison.cases.len());
    print_candidates(comparison, score);
    print_differences(score);
    let overall = score.overall();
    for difference in &overall {
        println!("{}", difference.verdict.words);
    }
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
    if let Some(ranking) = &score.ranking
        && let (Some(mean), Some(low)) = (ranking.mean_tau, ranking.low_tau)
    {
        let percent = 50.0 * (1.0 + comparison.bootstrap.confidence);
        println!(
            "Kendall's tau of this order and those of resamples: {mean:.2} on average, {low:.2} or more in {percent:.1} %"
        );
    }
    println!();
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
        row.push(ranked.map_or("–".into(), |ranked| format!("{:.0} %", 100.0 * ranked.first_share)));
        row.extend(classes.iter().map(|class| number(of(class).and_then(|scores| scores.mean))));
        if has_repeats {
            let first = classes.first().and_then(|class| of(class)?.over_repeats.as_ref()?.sd);
            row.push(number(first));
        }
        table.row(row);
    }
    table.print();
}

fn print_differences(score: &ScoreComparison) {
    let mut table = Table::new([
        "class",
        "first",
        "second",
        "cases",
        "first − second",
        "from",
        "to",
        "median",
        "p",
        "Holm",
        "",
    ]);
    let is_long = score.differences.len() > MOST_ROWS;
    let is_shown = |difference: &&Difference| {
        !is_long || difference.class.number.is_none() || difference.verdict.outcome == Told::Separated
    };
    for difference in score.differences.iter().filter(is_shown) {
        let [low, high] =
            [0, 1].map(|bound| number(difference.mean_interval.map(|interval| interval[bound])));
        table.row([
            difference.class.name.clone(),
            difference.first.clone(),
            difference.second.clone(),
            difference.cases.to_string(),
            number(difference.mean),
            low,
            high,
            number(difference.median),
            probability(difference.test.map(|test| test.p)),
            probability(difference.p_holm),
            told(difference.verdict.outcome).into(),
        ]);
    }
    table.print();
    let hidden = score.differences.iter().filter(|difference| !is_shown(difference)).count();
    if hidden > 0 {
        println!("{hidden} more comparisons of classes are not separated: --csv and --json have them");
    }
}

/// What is told of a pair, in a column.
pub(super) fn told(outcome: Told) -> &'static str {
    match outcome {
        Told::Separated => "separated",
        Told::NotSeparated => "",
        Told::TooFewCases => "too few cases",
        Told::Same => "the same",
        Told::NoCases => "no cases",
    }
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.4}"))
}

pub(super) fn probability(value: Option<f64>) -> String {
    match value {
        Some(value) if value < 1e-4 => "<0.0001".into(),
        value => number(value),
    }
}

/// The choice by the first score, and what to do with it.
fn print_choice(report: &LabelReport) {
    let comparison = report.with_ensembles.as_ref().unwrap_or(&report.comparison);
    let Some(score) = comparison.scores.first() else { return };
    let Some(choice) = &score.choice else { return };
    println!("by {}: {}", score.metric.name(), choice.words);
    let Some(folders) = report.folders.get(&choice.candidate) else { return };
    let runs: Vec<String> = folders
        .iter()
        .filter(|folder| folder.join("fold_0").is_dir())
        .map(|folder| quoted(&folder.display().to_string()))
        .collect();
    match &runs[..] {
        [] => {}
        [run] => println!("`plimsoll postprocess {run} --choose` chooses steps for it"),
        runs => println!("predict with it: plimsoll predict -m {} -i IMAGES -o LABELS", runs.join(" -m ")),
    }
}
