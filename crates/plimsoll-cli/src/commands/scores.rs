//! Tables of scores.

use plimsoll_metrics::{CrossValidation, Metric, OverFolds, Summary};
use plimsoll_report::{ClassNames, missing_words};

use crate::report::{Table, or_dash};

/// The scores that are printed, of all requested ones.
const PRINTED: [Metric; 13] = [
    Metric::Dice,
    Metric::IoU,
    Metric::Sensitivity,
    Metric::Precision,
    Metric::HD95,
    Metric::ASSD,
    Metric::NSD,
    Metric::ClDice,
    Metric::TopologyScore,
    Metric::LesionF1,
    Metric::PQ,
    Metric::Predicted,
    Metric::Reference,
];

/// Prints scores as a table.
pub fn print_scores(summary: &Summary, names: &ClassNames) {
    let asked = summary.metrics();
    let metrics: Vec<Metric> = PRINTED.into_iter().filter(|metric| asked.contains(metric)).collect();
    let columns = metrics.iter().map(|metric| metric.name());
    let mut table = Table::new(["case", "class"].into_iter().chain(columns));
    let shown = |metric: Metric| {
        move |score: f64| match metric.is_count() {
            true => format!("{score:.0}"),
            false => format!("{score:.4}"),
        }
    };
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (class, scores) in &case.metrics {
            let numbers = metrics.iter().map(|metric| or_dash(scores.get(*metric).map(shown(*metric))));
            table.row([name.clone(), names.name(*class)].into_iter().chain(numbers));
        }
    }
    let over = match summary.metric_per_case.len() {
        1 => "mean of 1 case".to_string(),
        cases => format!("mean of {cases} cases"),
    };
    let classes = summary.mean.keys().map(|class| (Some(*class), names.name(*class)));
    for (class, name) in classes.chain([(None, "all".into())]) {
        let means = metrics.iter().map(|metric| {
            let mean = summary.mean_of(class, *metric);
            mean.cases.beside(mean.value, shown(*metric))
        });
        table.row([over.clone(), name].into_iter().chain(means));
    }
    table.print();
    if metrics.iter().any(|metric| summary.mean_of(None, *metric).cases.missing > 0) {
        println!("{}", missing_words(summary.settings.missing));
    }
}

/// Prints the Dice of each class over folds. A mean that not all cases have stands with how many do.
pub fn print_folds(found: &CrossValidation, classes: &ClassNames) {
    let names: Vec<String> =
        found.folds.iter().map(|fold| format!("fold {}, {} cases", fold.fold, fold.cases)).collect();
    let over_folds = format!("mean of {} folds", found.folds.len());
    let columns = names.iter().map(String::as_str).chain([over_folds.as_str(), "sd"]);
    let mut table = Table::new(["Dice"].into_iter().chain(columns));
    let number = |value: f64| format!("{value:.4}");
    let mut row = |what: String, class: Option<u8>, over: Option<&OverFolds>| {
        let folds = found.folds.iter().map(|fold| {
            let mean = fold.mean_of(class, Metric::Dice);
            mean.cases.beside(mean.value, number)
        });
        let over = [
            or_dash(over.map(|over| over.shown(number))),
            or_dash(over.map(|over| over.sd).filter(|sd| sd.is_finite()).map(number)),
        ];
        table.row([what].into_iter().chain(folds).chain(over));
    };
    for (class, scores) in &found.classes {
        row(classes.name(*class), Some(*class), scores.get(&Metric::Dice));
    }
    row("all".into(), None, found.foreground.get(&Metric::Dice));
    table.print();
}
