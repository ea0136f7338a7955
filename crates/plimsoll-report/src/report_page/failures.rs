//! Failures: skipped steps, cases without scores, warnings, restarts.

use std::fmt::Write;

use plimsoll_run::Task;

use super::history::Notice;
use super::read::Fold;
use super::table::{Cell, Table};
use crate::markup::escaped;

/// Warnings of a fold that are told in full.
const SHOWN: usize = 5;

/// Returns the section on failures of folds.
pub fn section(folds: &[Fold]) -> String {
    let mut html = String::from("<h2 id=\"failures\">Failures and events</h2>\n");
    let mut found = Vec::new();
    for fold in folds {
        let name = fold.name();
        if let Some(record) = fold.record.as_ref().filter(|record| record.skipped_steps > 0) {
            found.push(format!(
                "{name}: {} steps were skipped because a loss or gradient was not finite",
                record.skipped_steps
            ));
        }
        let epochs = fold.specification.config.epochs;
        let done = fold.epochs.last().map_or(0, |point| point.epoch.saturating_add(1));
        if fold.weights.is_none() {
            found.push(format!(
                "{name} is not finished: {done} of {epochs} epochs; {}",
                fold.state.describe()
            ));
        }
        let is_of_volumes = matches!(fold.specification.config.task, Task::Segmentation(_));
        match &fold.summary {
            None if is_of_volumes && fold.weights.is_some() => {
                found.push(format!("{name}: its validation cases are not predicted whole and scored"));
            }
            Some(summary) => {
                let missing =
                    fold.specification.cases.val.len().saturating_sub(summary.metric_per_case.len());
                if missing > 0 {
                    found.push(format!("{name}: {missing} validation cases have no scores"));
                }
            }
            None => {}
        }
        let history = &fold.history;
        let warned: Vec<&Notice> =
            history.told.iter().filter(|told| told.kind == "warning").take(SHOWN).collect();
        found.extend(warned.iter().map(|told| format!("{name}: {}", told.what)));
        let not_0 = [
            (history.restarts, "restarts"),
            (history.warnings.saturating_sub(warned.len() as u64), "more warnings"),
            (history.evicted_volumes, "volumes evicted from the cache, which are decoded again"),
        ];
        let counts: Vec<String> = not_0
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !counts.is_empty() {
            found.push(format!("{name}: {}", counts.join(", ")));
        }
    }
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
    let mut table = Table::new(["when", "fold", "what", "more"]);
    for fold in folds {
        for told in &fold.history.told {
            let name = fold.folder.name().to_string();
            table.row([
                Cell::text(&told.time),
                Cell::text(&name),
                Cell::text(told.kind),
                Cell::text(&told.what),
            ]);
        }
        if fold.history.left_out > 0 {
            let more = format!("{} more, in {}", fold.history.left_out, fold.folder.events().display());
            table.row([
                Cell::text("–"),
                Cell::text(&fold.folder.name().to_string()),
                Cell::text("…"),
                Cell::text(&more),
            ]);
        }
    }
    let _ = writeln!(html, "<details><summary>Events</summary>{}</details>", table.html());
    html
}
