//! Failures: skipped steps, cases without scores, warnings, restarts.

use std::fmt::Write;

use plimsoll_run::Task;

use super::history::Notice;
use super::read::Fold;
use super::table::{Cell, Table};
use crate::markup::escaped;

/// The number of warnings of a fold that are printed in full.
const SHOWN: usize = 5;

/// Returns the section on failures of folds.
pub fn section(folds: &[Fold]) -> String {
    let mut html = String::from("<h2 id=\"failures\">Failures and events</h2>\n");
    let found: Vec<String> = folds.iter().flat_map(failures).collect();
    match found.is_empty() {
        true => html.push_str("<p>None: no skipped step, no case left out, no restart, no warning.</p>\n"),
        false => {
            html.push_str("<ul>\n");
            for line in found {
                // Writing to a string cannot fail.
                let _ = writeln!(html, "<li>{}</li>", escaped(&line));
            }
            html.push_str("</ul>\n");
        }
    }
    let _ = writeln!(html, "<details><summary>Events</summary>{}</details>", events(folds).html());
    html
}

/// The failures of a fold, a sentence each.
fn failures(fold: &Fold) -> Vec<String> {
    let name = fold.name();
    let mut found = Vec::new();
    if let Some(record) = fold.record.as_ref().filter(|record| record.skipped_steps > 0) {
        found.push(format!(
            "{name}: {} steps were skipped because a loss or gradient was not finite",
            record.skipped_steps
        ));
    }
    let epochs = fold.specification.config.epochs;
    let done = fold.epochs.last().map_or(0, |point| point.epoch.saturating_add(1));
    if fold.weights.is_none() {
        found.push(format!("{name} is not finished: {done} of {epochs} epochs; {}", fold.state.describe()));
    }
    found.extend(missing_scores(fold));
    let history = &fold.history;
    let warned: Vec<&Notice> =
        history.told.iter().filter(|told| told.kind == "warning").take(SHOWN).collect();
    found.extend(warned.iter().map(|told| format!("{name}: {}", told.what)));
    let not_0 = [
        (history.restarts, "restarts"),
        (history.warnings.saturating_sub(warned.len() as u64), "more warnings"),
        (history.evicted_volumes, "volumes evicted from the cache, which are decoded again"),
    ];
    let counts: Vec<String> =
        not_0.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !counts.is_empty() {
        found.push(format!("{name}: {}", counts.join(", ")));
    }
    found
}

/// The validation cases of a fold that have no scores, in words; `None` if all have.
fn missing_scores(fold: &Fold) -> Option<String> {
    let name = fold.name();
    let is_of_volumes = matches!(fold.specification.config.task, Task::Segmentation(_));
    match &fold.summary {
        None if is_of_volumes && fold.weights.is_some() => {
            Some(format!("{name}: its validation cases are not predicted whole and scored"))
        }
        None => None,
        Some(summary) => {
            let cases = fold.specification.cases.val.len();
            let missing = cases.saturating_sub(summary.metric_per_case.len());
            (missing > 0).then(|| format!("{name}: {missing} validation cases have no scores"))
        }
    }
}

/// The table of the recorded events of all folds.
fn events(folds: &[Fold]) -> Table {
    let mut table = Table::new(["when", "fold", "what", "more"]);
    for fold in folds {
        let name = fold.folder.name().to_string();
        for told in &fold.history.told {
            table.row([
                Cell::text(&told.time),
                Cell::text(&name),
                Cell::text(told.kind),
                Cell::text(&told.what),
            ]);
        }
        if fold.history.left_out > 0 {
            let more = format!("{} more, in {}", fold.history.left_out, fold.folder.events().display());
            table.row([Cell::text("–"), Cell::text(&name), Cell::text("…"), Cell::text(&more)]);
        }
    }
    table
}
