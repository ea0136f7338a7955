//! The overview of a run: the data set, the folds, the command, the settings.

use std::fmt::Write;
use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_metrics::classification::Bootstrap;
use plimsoll_metrics::{Metric, mean_interval};
use plimsoll_run::{Settings, Specification, Task, as_written};
use serde_json::Value;

use super::methods::network;
use super::read::Fold;
use super::scores::Cases;
use super::table::{Cell, Table};
use crate::duration::duration;
use crate::error::Outcome;
use crate::markup::escaped;

/// The letters of a value that are shown.
const LONGEST: usize = 300;

/// The top of the page: in a few numbers what came of it.
pub fn heading(path: &Path, folds: &[Fold], cases: &Cases<'_>, budget: &Budget) -> Outcome<String> {
    let Some(first) = folds.first() else { return Ok(String::new()) };
    let specification = &first.specification;
    let mut html = format!("<h1>{}</h1>\n", escaped(&path.display().to_string()));
    // Writing to a string cannot fail.
    let _ = writeln!(
        html,
        "<p class=\"lead\">{}</p>\n<div class=\"numbers\">",
        escaped(&in_a_line(specification))
    );
    let mut number = |value: &str, what: &str| {
        let _ = writeln!(html, "<div><b>{}</b>{}</div>", escaped(value), escaped(what));
    };
    let finished = folds.iter().filter(|fold| fold.weights.is_some()).count();
    number(&format!("{finished} of {}", folds.len()), "folds finished");
    let dice: Vec<f64> = cases.cases.iter().filter_map(|(_, case)| Cases::dice(case)).collect();
    let found = mean_interval(&dice, &Bootstrap::default(), budget)?;
    if let Some(mean) = found.value {
        let interval =
            found.low.zip(found.high).map_or(String::new(), |(low, high)| format!(" [{low:.3}, {high:.3}]"));
        let all = cases.cases.len();
        let behind = if dice.len() < all { format!("{} of {all}", dice.len()) } else { all.to_string() };
        let what = format!("{}, mean of {behind} cases{interval}", Metric::Dice.name());
        number(&format!("{mean:.4}"), &what);
    } else if let Some(accuracy) = best(folds, |point| point.accuracy) {
        number(&format!("{accuracy:.4}"), "best balanced accuracy, mean over folds");
    } else if let Some(score) = best(folds, |point| point.ema_pseudo_dice) {
        number(&format!("{score:.4}"), "best average pseudo-Dice, mean over folds");
    }
    let records = || folds.iter().filter_map(|fold| fold.record.as_ref());
    let written = records().filter_map(|record| record.peak_rss_bytes).max();
    let sampled = folds.iter().filter_map(|fold| fold.history.samples.peak).max();
    if let Some(peak) = written.max(sampled) {
        let planned = folds.iter().filter_map(|fold| fold.history.plan).map(|[limit, _]| limit);
        let limit = records().map(|record| record.ram_budget_bytes).chain(planned).max();
        number(
            &peak.to_string(),
            &format!("resident at most{}", limit.map_or(String::new(), |limit| format!(", limit {limit}"))),
        );
    }
    let seconds: f64 = folds.iter().map(|fold| fold.history.seconds()[0]).sum();
    number(&duration(seconds), "of training");
    html.push_str("</div>\n");
    Ok(html)
}

/// The mean over folds of their best score; none without one.
fn best(folds: &[Fold], value: fn(&crate::progress_picture::EpochPoint) -> Option<f64>) -> Option<f64> {
    let of_fold = |fold: &Fold| fold.epochs.iter().filter_map(value).reduce(f64::max);
    let scores: Vec<f64> = folds.iter().filter_map(of_fold).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

/// Network, patch and data set.
fn in_a_line(specification: &Specification) -> String {
    let config = &specification.config;
    let (network, [d, h, w]) = (network(config.training.net.name()), config.training.patch);
    let (name, classes) = match &config.task {
        Task::Segmentation(task) => (&task.dataset.name, task.dataset.labels.scored_names()[1..].join(", ")),
        Task::Classification(task) => (&task.dataset.name, task.classes().collect::<Vec<_>>().join(", ")),
    };
    let input = if d == 1 { format!("{h} × {w}") } else { format!("{d} × {h} × {w}") };
    format!("{network}, {input}, on {name}: {classes}")
}

/// The data set, the folds, the command and the settings.
pub fn section(folds: &[Fold]) -> Outcome<String> {
    let Some(first) = folds.first() else { return Ok(String::new()) };
    let mut html = String::from("<h2 id=\"run\">Settings</h2>\n");
    let process = first.history.process.as_ref();
    if let Some(process) = process.filter(|process| !process.command.is_empty()) {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<pre>{}</pre>", escaped(&command(&process.command)));
    }
    if let Some(dataset) = process.and_then(|process| process.dataset.as_ref()) {
        let _ = writeln!(html, "<p>Data set: <code>{}</code></p>", escaped(&dataset.display().to_string()));
    }
    let mut table =
        Table::new(["fold", "state", "epochs", "cases to train on", "cases to validate with", "started"]);
    for fold in folds {
        let cases = &fold.specification.cases;
        let epochs = format!("{} of {}", fold.epochs.len(), fold.specification.config.epochs);
        table.row([
            Cell::text(&fold.folder.name().to_string()),
            Cell::text(&fold.state.describe()),
            Cell::text(&epochs),
            Cell::count(cases.train.len() as u64),
            Cell::count(cases.val.len() as u64),
            Cell::text(fold.history.began.as_deref().unwrap_or("–")),
        ]);
    }
    html.push_str(&table.html());
    let mut table = Table::new(["set by the user", "value"]);
    for (key, value) in set(&without_defaults(as_written(&first.specification.settings)?)) {
        table.row([Cell::text(&key), Cell::text(&shortened(&value))]);
    }
    let _ = writeln!(
        html,
        "<details open><summary>Given settings; all others are defaults or follow from the data</summary>{}</details>",
        table.html()
    );
    let lines = first.specification.lines()?;
    let lines: Vec<String> =
        lines.iter().map(|line| escaped(&shortened(&with_statistics(line, &first.specification)))).collect();
    let _ = writeln!(
        html,
        "<details><summary>All settings of {}, resolved</summary><pre>{}</pre></details>",
        escaped(&first.name()),
        lines.join("\n")
    );
    Ok(html)
}

/// A line of the settings, in which an empty list of statistics of images is what it means.
fn with_statistics(line: &str, specification: &Specification) -> String {
    let is_imagenet = match &specification.config.task {
        Task::Classification(task) => task.pipeline.normalisation.is_empty(),
        Task::Segmentation(_) => false,
    };
    match is_imagenet {
        true => line.replace("\"normalisation\":[]", "\"normalisation\":\"ImageNet\""),
        false => line.into(),
    }
}

/// A command as it is typed: words with spaces or quotes in quotes.
fn command(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Settings without the values that follow from the others: what reads the same without a key was not decided by it. A component of which a
/// user names one value has defaults for all others, which are written down with it.
fn without_defaults(settings: Value) -> Value {
    let read = |settings: &Value| serde_json::from_value::<Settings>(settings.clone()).ok();
    let Some(expected) = read(&settings) else { return settings };
    let mut kept = settings;
    for pointer in pointers(&kept) {
        let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
        let mut without = kept.clone();
        if let Some(Value::Object(parts)) = without.pointer_mut(parent) {
            parts.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        if read(&without).as_ref() == Some(&expected) {
            kept = without;
        }
    }
    kept
}

/// JSON pointers to the values of all objects, the outer ones first.
fn pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |key: &str, value: &Value, is_key: bool| {
        let key = key.replace('~', "~0").replace('/', "~1");
        found.extend(is_key.then(|| format!("/{key}")));
        found.extend(pointers(value).into_iter().map(|pointer| format!("/{key}{pointer}")));
    };
    match value {
        Value::Object(parts) => parts.iter().for_each(|(key, value)| add(key, value, true)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, value)| add(&place.to_string(), value, false));
        }
        _ => {}
    }
    found
}

/// All values that are there, with their dotted keys.
pub fn set(value: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    flatten(value, String::new(), &mut found);
    found
}

fn flatten(value: &Value, key: String, found: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(parts) => {
            for (part, value) in parts {
                let key = if key.is_empty() { part.clone() } else { format!("{key}.{part}") };
                flatten(value, key, found);
            }
        }
        Value::String(text) => found.push((key, text.clone())),
        value => found.push((key, value.to_string())),
    }
}

/// Text that is not too long to be read.
fn shortened(text: &str) -> String {
    match text.chars().count() > LONGEST {
        true => text.chars().take(LONGEST - 1).chain(['…']).collect(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["plimsoll", "train", "my data", "it's", ""].map(String::from);
        assert_eq!(command(&words), "plimsoll train 'my data' 'it'\\''s' ''");
    }

    #[test]
    fn defaults_of_a_component_are_not_listed_as_given() {
        let text = "batch_size = 2\n[optimizer]\nname = \"adamw\"\nweight_decay = 0.5\n";
        let settings: Settings = toml::from_str(text).unwrap();
        let given = set(&without_defaults(as_written(&settings).unwrap()));
        let keys: Vec<&str> = given.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["batch_size", "optimizer.name", "optimizer.weight_decay"]);
    }

    #[test]
    fn what_is_not_set_is_not_listed() {
        let settings =
            serde_json::json!({"seed": 3, "network": {"net": "dynunet", "kernels": null}, "ema": null});
        let expected =
            [("network.net", "dynunet"), ("seed", "3")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(set(&settings), expected);
    }
}
