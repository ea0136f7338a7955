//! What `plimsoll compare` prints alike of networks that label voxels and of classifiers.

use std::path::PathBuf;

use plimsoll::quoted;
use plimsoll_metrics::comparison::{CandidateName, Outcome as Told, Verdict};
use plimsoll_metrics::{Better, CaseCounts};

use crate::report::Table;

/// Rows of a table that are read; of more only those of all classes together, and what is separated.
pub(super) const MOST_ROWS: usize = 60;

/// How far two candidates lie apart, as a row.
pub(super) struct Row<'a> {
    pub(super) class: &'a str,
    /// Whether it is of all classes together, or of the only one: what is told of it is printed.
    pub(super) is_overall: bool,
    pub(super) first: &'a str,
    pub(super) second: &'a str,
    /// Cases, or images.
    pub(super) count: usize,
    pub(super) difference: Option<f64>,
    pub(super) interval: Option<[f64; 2]>,
    /// What one kind of comparison has and the other does not.
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
    let is_shown = |row: &&Row<'_>| !is_long || row.is_overall || row.verdict.outcome == Told::Separated;
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
            told(row.verdict.outcome).into(),
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
            "Kendall's tau of this order and those of resamples: {mean:.2} on average, {low:.2} or more in {percent:.1} %"
        );
    }
}

/// Prints which cases, or images, not all candidates have.
pub(super) fn print_left_out(left_out: &[String]) {
    if !left_out.is_empty() {
        println!("left out, since not all have them: {}", left_out.join(", "));
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

/// The runs of a choice, as a shell takes them; none where one of its folders is no run, since the others alone would be another choice.
pub(super) fn runs(folders: Option<&Vec<PathBuf>>) -> Vec<String> {
    let is_run = |folder: &PathBuf| folder.join("fold_0").is_dir();
    let folders = folders.filter(|folders| folders.iter().all(is_run));
    folders.into_iter().flatten().map(|folder| quoted(&folder.display().to_string())).collect()
}

/// Prints how several runs of a choice predict together.
pub(super) fn print_prediction(runs: &[String], repeats: usize, output: &str) {
    let with = match repeats {
        1 => "it",
        // Of repeats scores were averaged, and not what each says.
        _ => "the mean of all its trainings",
    };
    println!("predict with {with}: plimsoll predict -m {} -i IMAGES -o {output}", runs.join(" -m "));
}

/// How often a candidate was trained.
pub(super) fn repeats(candidates: &[CandidateName], name: &str) -> usize {
    candidates.iter().find(|candidate| candidate.name == name).map_or(1, |found| found.repeats.len())
}

/// Which of two scores is better.
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

/// What is told of a pair, in a column.
fn told(outcome: Told) -> &'static str {
    match outcome {
        Told::Separated => "separated",
        Told::NotSeparated => "",
        Told::TooFewCases => "too few cases",
        Told::Same => "the same",
        Told::NoCases => "no cases",
    }
}
