//! The common output of `plimsoll compare` for networks that label voxels and for classifiers.

use std::path::PathBuf;

use plimsoll::quoted;
use plimsoll_metrics::comparison::{CandidateName, Outcome as Verdicts, Verdict};
use plimsoll_metrics::{Better, CaseCounts};

use crate::report::Table;

/// The most rows that a person reads; of longer tables only separated rows and rows of all classes together are printed.
pub(super) const MOST_ROWS: usize = 60;

/// The difference of two candidates, as a row.
pub(super) struct Row<'a> {
    pub(super) class: &'a str,
    /// `true` if it is of all classes together, or of the only one; its verdict is always printed.
    pub(super) is_overall: bool,
    pub(super) first: &'a str,
    pub(super) second: &'a str,
    /// Cases, or images.
    pub(super) count: usize,
    pub(super) difference: Option<f64>,
    pub(super) interval: Option<[f64; 2]>,
    /// The column that only one kind of comparison has.
    pub(super) own: String,
    pub(super) p: Option<f64>,
    pub(super) p_holm: Option<f64>,
    pub(super) verdict: &'a Verdict,
}

/// Prints differences under the names of what is counted, and of the column that one kind of comparison has of its own.
pub(super) fn print_differences([counted, own]: [&str; 2], rows: &[Row<'_>]) {
    let mut table = Table::new([
        "class",
        "first",
        "second",
        counted,
        "first − second",
        "from",
        "to",
        own,
        "p",
        "Holm",
        "",
    ]);
    let is_long = rows.len() > MOST_ROWS;
    let is_shown = |row: &&Row<'_>| !is_long || row.is_overall || row.verdict.outcome == Verdicts::Separated;
    for row in rows.iter().filter(is_shown) {
        let [low, high] = ends(row.interval);
        table.row([
            row.class.to_string(),
            row.first.into(),
            row.second.into(),
            row.count.to_string(),
            number(row.difference),
            low,
            high,
            row.own.clone(),
            probability(row.p),
            probability(row.p_holm),
            verdict(row.verdict.outcome).into(),
        ]);
    }
    table.print();
    let hidden = rows.iter().filter(|row| !is_shown(row)).count();
    if hidden > 0 {
        println!("{hidden} more comparisons of classes are not separated: --csv and --json have them");
    }
    for row in rows.iter().filter(|row| row.is_overall) {
        println!("{}", row.verdict.words);
    }
}

/// Prints how stable an order is, if that is known.
pub(super) fn print_stability([mean, low]: [Option<f64>; 2], confidence: f64) {
    if let (Some(mean), Some(low)) = (mean, low) {
        let percent = 50.0 * (1.0 + confidence);
        println!(
            "Kendall's tau between this order and the orders of resamples: {mean:.2} on average, {low:.2} or more in {percent:.1} %"
        );
    }
}

/// Prints which cases, or images, not all candidates have.
pub(super) fn print_left_out(left_out: &[String]) {
    if !left_out.is_empty() {
        println!("left out, because not all candidates have them: {}", left_out.join(", "));
    }
}

/// Prints what a single training of each means.
pub(super) fn print_repeats(candidates: &[CandidateName]) {
    if candidates.iter().all(|candidate| candidate.repeats.len() == 1) {
        println!(
            "each was trained once: differences are of these networks, and seeds of the same settings may differ as much"
        );
    }
}

/// The runs of a choice as words of a shell; empty if one of its folders is no run, since the others alone would be another choice.
pub(super) fn runs(folders: Option<&Vec<PathBuf>>) -> Vec<String> {
    let is_run = |folder: &PathBuf| folder.join("fold_0").is_dir();
    let folders = folders.filter(|folders| folders.iter().all(is_run));
    folders.into_iter().flatten().map(|folder| quoted(&folder.display().to_string())).collect()
}

/// Prints how several runs of a choice predict together.
pub(super) fn print_prediction(runs: &[String], repeats: usize, output: &str) {
    let with = match repeats {
        1 => "it",
        // Scores of repeats were averaged, not their predictions.
        _ => "the mean of all its trainings",
    };
    println!("predict with {with}: plimsoll predict -m {} -i IMAGES -o {output}", runs.join(" -m "));
}

/// The number of trainings of a candidate.
pub(super) fn repeats(candidates: &[CandidateName], name: &str) -> usize {
    candidates.iter().find(|candidate| candidate.name == name).map_or(1, |found| found.repeats.len())
}

/// The direction in which a score is better.
pub(super) fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}

/// The ends of an interval.
pub(super) fn ends(interval: Option<[f64; 2]>) -> [String; 2] {
    [0, 1].map(|end| number(interval.map(|interval| interval[end])))
}

pub(super) fn number(value: Option<f64>) -> String {
    CaseCounts::default().beside(value, |value| format!("{value:.4}"))
}

/// A share of resamples.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or("–".into(), |share| format!("{:.0} %", 100.0 * share))
}

fn probability(value: Option<f64>) -> String {
    match value {
        Some(value) if value < 1e-4 => "<0.0001".into(),
        value => number(value),
    }
}

/// The verdict about a pair, as a column.
fn verdict(outcome: Verdicts) -> &'static str {
    match outcome {
        Verdicts::Separated => "separated",
        Verdicts::NotSeparated => "",
        Verdicts::TooFewCases => "too few cases",
        Verdicts::Same => "the same",
        Verdicts::NoCases => "no cases",
    }
}
