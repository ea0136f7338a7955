//! The duration of training, and its parts.

use std::fmt::Write;

use super::read::Fold;
use super::table::{Cell, Table};
use crate::duration::duration;
use crate::markup::escaped;
use crate::svg::{Anchor, Drawing, rect, text};

/// Kinds of operations that have a bar of their own.
const LONGEST: usize = 10;

/// Pixels of a bar at most, and of a row.
const WIDTH: f64 = 420.0;
const ROW: f64 = 20.0;
const LEFT: f64 = 190.0;

/// Time of all folds.
pub fn section(folds: &[Fold]) -> String {
    let mut html = String::from("<h2 id=\"time\">Time</h2>\n");
    let mut table = Table::new([
        "fold",
        "epochs",
        "in epochs",
        "of it validation",
        "seconds per step",
        "predicted",
        "waiting for batches",
        "checkpoints",
        "preparing batches, all threads",
    ]);
    for fold in folds {
        let [all, validation] = fold.history.seconds();
        let record = fold.record.as_ref();
        let seconds = |value: Option<f64>| Cell::number(value, duration);
        let step = |value: Option<f64>| Cell::number(value, |value| format!("{value:.3}"));
        table.row([
            Cell::text(&fold.folder.name().to_string()),
            Cell::count(fold.epochs.len() as u64),
            seconds(Some(all)),
            seconds(Some(validation)),
            step(record.and_then(|record| record.seconds_per_step)),
            step(record.map(|record| record.predicted_seconds_per_step)),
            seconds(record.map(|record| record.waiting_seconds)),
            seconds(Some(fold.history.checkpoint_seconds)),
            seconds(record.map(|record| record.batches.patch_seconds + record.batches.map_seconds)),
        ]);
    }
    html.push_str(&table.html());
    for fold in folds {
        let Some(record) = &fold.record else { continue };
        let all: f64 = record.ops.iter().map(|op| op.seconds).sum();
        if all <= 0.0 {
            continue;
        }
        let (shown, rest) = record.ops.split_at(LONGEST.min(record.ops.len()));
        let rest: f64 = rest.iter().map(|op| op.seconds).sum();
        let bars: Vec<(&str, f64)> = shown
            .iter()
            .map(|op| (op.op.as_str(), op.seconds))
            .chain((rest > 0.0).then_some(("all others", rest)))
            .collect();
        let is_only = folds.len() == 1;
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<details{}><summary>{}: {} of computing by kind of operation, on {}, in the last process</summary><figure>{}</figure></details>",
            if is_only { " open" } else { "" },
            escaped(&fold.name()),
            duration(all),
            escaped(&record.engine),
            drawn(&bars, all)
        );
    }
    html
}

/// A bar for each kind.
fn drawn(bars: &[(&str, f64)], all: f64) -> String {
    let longest = bars.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    let (width, height) = (LEFT + WIDTH + 150.0, ROW * bars.len() as f64 + 4.0);
    let mut drawing = Drawing::new([width, height]);
    for (row, (name, seconds)) in bars.iter().enumerate() {
        let (y, long) = (ROW * row as f64, seconds / longest * WIDTH);
        let took = format!("{} · {:.1} %", duration(*seconds), 100.0 * seconds / all);
        drawing.push(text([LEFT - 8.0, y + 14.0], Anchor::End, name));
        drawing.push(rect([LEFT, y + 3.0], [long, ROW - 6.0]).set("fill", "#0072b2"));
        drawing.push(text([LEFT + long + 6.0, y + 14.0], Anchor::Start, &took));
    }
    drawing.in_page()
}
