//! Scores of the validation cases: by class with intervals, by fold, and case by case.

use std::fmt::Write;

use plimsoll_memory::Budget;
use plimsoll_metrics::classification::{Bootstrap, Interval};
use plimsoll_metrics::{
    CaseCounts, CaseScores, CrossValidation, MeanScore, Metric, OverFolds, Summary, mean_interval,
};

use super::read::Fold;
use super::table::{Cell, Table};
use crate::box_plots::box_plots;
use crate::class_names::{ClassNames, missing_words};
use crate::error::Outcome;

/// The most rows of the table of cases.
const MOST_ROWS: usize = 1500;

/// The validation cases of all folds that are predicted.
pub struct Cases<'a> {
    /// Each with the place of its fold.
    pub cases: Vec<(usize, &'a CaseScores)>,
    pub names: ClassNames,
}

impl<'a> Cases<'a> {
    /// Collects the cases of folds.
    pub fn new(folds: &'a [Fold]) -> Cases<'a> {
        let of_fold = |(place, fold): (usize, &'a Fold)| {
            fold.summary
                .iter()
                .flat_map(move |summary| summary.metric_per_case.iter().map(move |case| (place, case)))
        };
        let names = folds.first().map(|fold| ClassNames::from(fold.classes())).unwrap_or_default();
        Cases { cases: folds.iter().enumerate().flat_map(of_fold).collect(), names }
    }

    /// The name of a case: the name of its prediction without the ending.
    pub fn name(case: &CaseScores) -> String {
        let file = case.prediction_file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ending =
            plimsoll_volume::image_endings().filter(|ending| file.ends_with(*ending)).map(str::len).max();
        file[..file.len() - ending.unwrap_or(0)].to_string()
    }

    /// The mean of a case's Dice over its classes; none if it has none of them.
    pub fn dice(case: &CaseScores) -> Option<f64> {
        let scores: Vec<f64> = case.metrics.values().filter_map(|scores| scores.get(Metric::Dice)).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

/// A score as tables show it.
fn shown(metric: Metric) -> impl Fn(f64) -> String {
    move |score| match metric.is_share() {
        true => format!("{score:.4}"),
        false => format!("{score:.2}"),
    }
}

fn ends(interval: Interval) -> Option<[f64; 2]> {
    interval.low.zip(interval.high).map(|(low, high)| [low, high])
}

/// Scores of all folds.
pub fn section(folds: &[Fold], cases: &Cases<'_>, budget: &Budget) -> Outcome<String> {
    let mut html = String::from("<h2 id=\"scores\">Scores</h2>\n");
    let summaries: Vec<(String, Summary)> = folds
        .iter()
        .filter_map(|fold| Some((fold.folder.name().to_string(), fold.summary.clone()?)))
        .collect();
    let Some((_, first)) = summaries.first() else {
        html.push_str(
            "<p>No validation case is predicted yet: scores of patches are among the curves.</p>\n",
        );
        return Ok(html);
    };
    let pooled: Vec<CaseScores> = cases.cases.iter().map(|(_, case)| (*case).clone()).collect();
    let pooled = Summary::new(pooled, first.settings.clone());
    let metrics: Vec<Metric> = pooled.metrics().into_iter().filter(|metric| !metric.is_count()).collect();
    let settings = Bootstrap::default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        html,
        "<p>{} validation cases of {}. In brackets the {:.0} % interval of the mean over cases, by the percentile bootstrap with {} \
         resamples; a class that is in neither label map of a case has no score there. {}.</p>",
        cases.cases.len(),
        if summaries.len() == 1 { "1 fold".to_string() } else { format!("{} folds", summaries.len()) },
        100.0 * settings.confidence,
        settings.resamples,
        missing_words(pooled.settings.missing)
    );
    html.push_str(&by_class(&pooled, cases, &metrics, budget)?);
    if let Some(found) = CrossValidation::new(&summaries).filter(|found| found.folds.len() > 1) {
        html.push_str(&over_folds(&found, cases));
    }
    if cases.cases.len() > 1 {
        html.push_str(&plots(&pooled, cases));
    }
    html.push_str(&case_table(folds, cases, &metrics));
    Ok(html)
}

/// The means of each class with their intervals, and over classes.
fn by_class(pooled: &Summary, cases: &Cases<'_>, metrics: &[Metric], budget: &Budget) -> Outcome<String> {
    let head = ["class", "cases"].into_iter().chain(metrics.iter().map(|metric| metric.name()));
    let mut table = Table::new(head);
    let all = cases.cases.len() as u64;
    for class in pooled.mean.keys() {
        let mut row = vec![Cell::text(&cases.names.name(*class)), Cell::count(all)];
        for metric in metrics {
            let mean = pooled.mean_of(Some(*class), *metric);
            let found = mean_interval(&pooled.values(*class, *metric), &Bootstrap::default(), budget)?;
            let ends = ends(found).filter(|ends| ends.iter().all(|end| end.is_finite()));
            row.push(Cell::mean(mean, ends, shown(*metric)));
        }
        table.row(row);
    }
    if pooled.mean.len() > 1 {
        let means =
            metrics.iter().map(|metric| Cell::mean(pooled.mean_of(None, *metric), None, shown(*metric)));
        table.row([Cell::text("mean over classes"), Cell::count(all)].into_iter().chain(means));
    }
    Ok(table.html())
}

/// The Dice of each class in each fold.
fn over_folds(found: &CrossValidation, cases: &Cases<'_>) -> String {
    let folds: Vec<String> =
        found.folds.iter().map(|fold| format!("fold {}, {} cases", fold.fold, fold.cases)).collect();
    let head = ["Dice"]
        .into_iter()
        .chain(folds.iter().map(String::as_str))
        .chain(["mean over folds", "sd over folds"]);
    let mut table = Table::new(head);
    let mut row = |name: &str, class: Option<u8>, over: Option<&OverFolds>| {
        let folds = found
            .folds
            .iter()
            .map(|fold| Cell::mean(fold.mean_of(class, Metric::Dice), None, shown(Metric::Dice)));
        let mean = over.map(|over| MeanScore {
            value: Some(over.mean),
            cases: CaseCounts { defined: over.folds, missing: 0, of: over.of },
        });
        let sd = over.map(|over| over.sd).filter(|sd| sd.is_finite());
        let over = [
            Cell::mean(mean.unwrap_or_default(), None, shown(Metric::Dice)),
            Cell::number(sd, shown(Metric::Dice)),
        ];
        table.row([Cell::text(name)].into_iter().chain(folds).chain(over));
    };
    for (class, scores) in &found.classes {
        row(&cases.names.name(*class), Some(*class), scores.get(&Metric::Dice));
    }
    row("mean over classes", None, found.foreground.get(&Metric::Dice));
    table.html()
}

fn plots(pooled: &Summary, cases: &Cases<'_>) -> String {
    let svg = box_plots(pooled, &|class| cases.names.name(class)).in_page();
    format!("<details open><summary>Over cases</summary><figure>{svg}</figure></details>\n")
}

/// All cases with their scores.
fn case_table(folds: &[Fold], cases: &Cases<'_>, metrics: &[Metric]) -> String {
    let names = metrics.iter().map(|metric| metric.name());
    let mut table =
        Table::new(["case", "fold", "class"].into_iter().chain(names).chain(["reference voxels"]));
    let rows = || {
        let of_case = |(place, case): &(usize, &'_ CaseScores)| (*place, Cases::name(case));
        cases.cases.iter().flat_map(move |of| {
            let (place, name) = of_case(of);
            of.1.metrics.iter().map(move |(class, scores)| (place, name.clone(), *class, scores))
        })
    };
    for (place, name, class, scores) in rows().take(MOST_ROWS) {
        let fold = folds.get(place).map_or(String::new(), |fold| fold.folder.name().to_string());
        let numbers = metrics.iter().map(|metric| Cell::number(scores.get(*metric), shown(*metric)));
        let reference = Cell::number(scores.get(Metric::Reference), |voxels| format!("{voxels:.0}"));
        let first = [Cell::text(&name), Cell::text(&fold), Cell::text(&cases.names.name(class))];
        table.row(first.into_iter().chain(numbers).chain([reference]));
    }
    let more = rows().count().saturating_sub(MOST_ROWS);
    let rest = match more {
        0 => String::new(),
        more => format!("<p>{more} more rows are in the folds' validation/summary.json.</p>\n"),
    };
    format!(
        "<details open><summary>Case by case: click a column head to sort</summary>{}{rest}</details>\n",
        table.html()
    )
}
