//! Events of jobs as JSON.

use plimsoll::{Event, Work};
use plimsoll_remedy::render;
use serde_json::{Value, json};

use crate::Keywords;

/// Returns an event as Python reads it, or `None` for events that concern front ends with signals.
pub(super) fn written(event: &Event<'_>) -> Option<Value> {
    let worded = |text: &str| render(text, &Keywords);
    Some(match event {
        Event::Warning { text } => json!({ "event": "warning", "text": worded(text) }),
        Event::Note { text } => json!({ "event": "note", "text": worded(text) }),
        Event::Part { title } => json!({ "event": "part", "title": title }),
        Event::WorkBegan { work } => progress("began", work, 0, "", None),
        Event::WorkAdvanced { work, done, note, seconds_left } => {
            progress("advanced", work, *done, &worded(note), *seconds_left)
        }
        Event::WorkEnded { work } => progress("ended", work, 0, "", None),
        Event::WorkLine { work, text, repeats_progress } => json!({
            "event": "line", "work": work.id, "text": worded(text), "repeats_progress": repeats_progress,
        }),
        Event::Planned { planned, at_once } => json!({
            "event": "planned", "plan": planned.numbers, "at_once": at_once,
        }),
        Event::Epoch { fold, record, cost } => json!({
            "event": "epoch", "fold": fold.to_string(), "record": record, "cost": cost,
        }),
        // Exceptions of callbacks and Ctrl-C always end a job in order.
        _ => return None,
    })
}

/// A change of a piece of work.
fn progress(change: &str, work: &Work, done: u64, note: &str, seconds_left: Option<f64>) -> Value {
    json!({
        "event": change, "work": work.id, "title": work.title, "pieces": work.pieces,
        "is_beside_others": work.is_beside_others, "done": done, "note": note, "seconds_left": seconds_left,
    })
}
