//! `plimsoll evaluate --classification`

use std::path::Path;

use plimsoll::MemoryLimit;
use plimsoll_metrics::classification::{
    Bootstrap, ClassificationReport, Curves, Interval, Labelling, Table as Cases, classify,
};
use plimsoll_report::classification_picture;

use crate::args::Evaluate;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json, or_dash, write, write_json};
use crate::terminal::observed;

/// Scores a classification, and writes the scores.
pub fn run(table: &Path, args: &Evaluate, as_json: bool) -> Outcome {
    let default = Bootstrap::default();
    let bootstrap = Bootstrap {
        resamples: args.classification.resamples.unwrap_or(default.resamples),
        seed: args.classification.seed.unwrap_or(default.seed),
        ..default
    };
    let path = match &args.output {
        Some(path) => path.clone(),
        None => table.with_file_name("scores.json"),
    };
    let (tables, pictures) = (path.with_extension("csv"), path.with_extension("svg"));
    let same = |written: &Path| std::fs::canonicalize(written).ok() == std::fs::canonicalize(table).ok();
    if same(&path) || same(&tables) || same(&pictures) {
        let message = format!("the scores would be written over {}", table.display());
        return Err(Failure::new(message, "name another file with --output"));
    }
    let earlier = [&path, &tables, &pictures].into_iter().find(|file| file.exists());
    if let Some(file) = earlier.filter(|_| !args.classification.overwrite) {
        let message = format!("{} already exists", file.display());
        return Err(Failure::new(message, "name another file with --output, or replace it with --overwrite"));
    }
    let memory = MemoryLimit::set(args.ram.ram, 1, &observed(as_json))?;
    let labelling = match args.classification.several_labels {
        true => Labelling::SeveralLabels,
        false => Labelling::OneClass,
    };
    let cases = Cases::read(table, labelling, &memory.budget)?;
    let mut report = classify(&cases, &bootstrap, &memory.budget)?;
    report.add_thresholds(&cases, &args.classification.sensitivity, &memory.budget)?;
    let curves = Curves::new(&cases, &memory.budget)?;
    write(&path, |file| write_json(file, &report))?;
    write(&tables, |file| report.write_csv(file))?;
    write(&pictures, |file| classification_picture(&report, &curves).write(file))?;
    if as_json {
        return json(&report);
    }
    print(&report);
    Ok(())
}

fn print(report: &ClassificationReport) {
    let cell = |found: Option<&Interval>| {
        or_dash(found.and_then(|found| {
            let value = format!("{:.4}", found.value?);
            Some(match found.low.zip(found.high) {
                Some((low, high)) => format!("{value} ({low:.4}–{high:.4})"),
                // A score of few cases, or without any spread, has no interval.
                None => value,
            })
        }))
    };
    let mut table =
        Table::new(["score", "all"].into_iter().chain(report.classes.iter().map(|c| c.name.as_str())));
    let mut names: Vec<&String> = report.overall.keys().collect();
    names.extend(report.classes.iter().flat_map(|class| class.scores.keys()));
    names.sort();
    names.dedup();
    for name in names {
        let classes = report.classes.iter().map(|class| cell(class.scores.get(name)));
        table.row([name.clone(), cell(report.overall.get(name))].into_iter().chain(classes));
    }
    table.print();
    print_thresholds(report, &cell);
    println!("  {} cases; 95 % intervals of {} resamples", report.cases, report.bootstrap.resamples);
}

/// Prints the requested thresholds.
fn print_thresholds(report: &ClassificationReport, cell: &dyn Fn(Option<&Interval>) -> String) {
    if report.classes.iter().all(|class| class.thresholds.is_empty()) {
        return;
    }
    let mut table = Table::new(["class", "wanted", "threshold", "sensitivity", "specificity"]);
    for class in &report.classes {
        for found in &class.thresholds {
            table.row([
                class.name.clone(),
                found.wanted.to_string(),
                found.threshold.map_or("–".into(), |threshold| threshold.to_string()),
                cell(Some(&found.sensitivity)),
                cell(Some(&found.specificity)),
            ]);
        }
    }
    table.print();
}
