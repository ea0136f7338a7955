//! Comparing predictions with references.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Dataset, label_ending, prediction_ending};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::{CasePaths, Metric, Scores, Settings, Summary, evaluate, pair_cases};
use plimsoll_volume::image_endings;

use super::line::Line;
use crate::failure::{Failure, Outcome};
use crate::picture::{self, Files};
use crate::progress::Progress;
use crate::report::{Table, write, write_json};

/// Scores that are printed, of those that were asked for.
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

/// Predictions to be compared with references: two folders, or two files.
pub struct EvaluateRequest {
    /// The folder of predictions, or one label map.
    pub predictions: PathBuf,
    /// The folder of references, or one label map.
    pub references: PathBuf,
    /// Classes to score; those of the data set around the references, if none are named.
    pub classes: Option<Vec<u8>>,
    /// Which scores, and how. Its classes are replaced by those above.
    pub settings: Settings,
    /// Whether references without a prediction are left out.
    pub partial: bool,
    /// Images, and where pictures of the cases go.
    pub pictures: Option<(PathBuf, PathBuf)>,
    /// Where the scores are written, if not beside the predictions.
    pub output: Option<PathBuf>,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
    /// Threads.
    pub threads: usize,
}

/// Compares, and writes the scores. Returns also the most that was reserved for it at a time: code, heap and stacks included.
pub fn compare(request: &EvaluateRequest, quiet: bool) -> Outcome<(Summary, Bytes)> {
    let EvaluateRequest { predictions, references, threads, .. } = request;
    let is_file = references.is_file();
    let above = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let dataset = if is_file { above(&above(references)) } else { above(references) };
    let described = dataset.join("dataset.json").is_file().then(|| Dataset::open(&dataset)).transpose()?;
    let classes = classes(request, &dataset, described.as_ref())?;
    let settings = Settings { classes, ..request.settings.clone() };
    let reference_values = described.as_ref().and_then(|dataset| dataset.labels.file_values()).map(Arc::new);
    let ending = match described {
        Some(dataset) => dataset.file_ending,
        None => usual_ending(references)?,
    };
    let mut cases = match is_file {
        true => vec![CasePaths {
            prediction: predictions.clone(),
            reference: references.clone(),
            reference_values: None,
        }],
        false => {
            let endings = [prediction_ending(&ending), label_ending(&ending)];
            pair_cases(predictions, references, endings, request.partial)?
        }
    };
    cases.iter_mut().for_each(|case| case.reference_values.clone_from(&reference_values));
    let line = Line::draw(request.ram, *threads)?;
    let summary = score(&cases, &settings, &line.budget, *threads, quiet)?;
    if let Some((images, pictures)) = &request.pictures {
        draw_all(&summary, images, &ending, pictures, &line.budget)?;
    }
    let folder = if is_file { above(predictions) } else { predictions.clone() };
    let beside = |ending: &str| match &request.output {
        Some(path) => path.with_extension(ending),
        None => folder.join("scores").with_extension(ending),
    };
    let path = request.output.clone().unwrap_or_else(|| folder.join("summary.json"));
    write(&path, |file| write_json(file, &summary))?;
    write(&beside("csv"), |file| summary.write_csv(file))?;
    write(&beside("svg"), |file| summary.write_box_plots(file))?;
    Ok((summary, line.budget.peak()))
}

/// What the names of label maps end in where no data set says so: that of a file, and of a folder that of NIfTI if it has any, else the
/// ending that most of its images have.
fn usual_ending(references: &Path) -> Outcome<String> {
    let names = match references.is_file() {
        true => vec![references.to_path_buf()],
        false => plimsoll_disk::read_dir(references).map_err(|error| Failure::of_path(references, &error))?,
    };
    let count = |ending: &&str| names.iter().filter(|path| path.to_string_lossy().ends_with(*ending)).count();
    let usual = ".nii.gz";
    if count(&usual) > 0 {
        return Ok(usual.into());
    }
    // Of equally many the first that is listed.
    let most = image_endings().map(|ending| (count(&ending), ending)).rev().max_by_key(|(count, _)| *count);
    Ok(most.filter(|(count, _)| *count > 0).map_or(usual, |(_, ending)| ending).into())
}

/// Scores cases within a budget.
pub fn score(
    cases: &[CasePaths],
    settings: &Settings,
    budget: &Budget,
    threads: usize,
    quiet: bool,
) -> Outcome<Summary> {
    let progress = Progress::new("evaluating", cases.len() as u64, quiet);
    let done = |done: usize| progress.set(done as u64, String::new());
    let summary = evaluate(cases, settings, budget, threads, &done);
    progress.finish();
    Ok(summary?)
}

/// The classes that are asked for, or of the data set.
fn classes(request: &EvaluateRequest, folder: &Path, described: Option<&Dataset>) -> Outcome<Vec<u8>> {
    match (&request.classes, described) {
        (Some(classes), _) => Ok(classes.clone()),
        (None, Some(dataset)) => Ok(foreground(dataset)),
        (None, None) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let message =
                format!("which classes to score is not known: {} has no dataset.json", folder.display());
            Err(Failure::new(message, "name them, like --labels 1,2"))
        }
    }
}

/// The classes of a data set but the background.
pub fn foreground(dataset: &Dataset) -> Vec<u8> {
    (1..dataset.labels.classes()).filter_map(|class| u8::try_from(class).ok()).collect()
}

/// Draws every case of a summary.
fn draw_all(summary: &Summary, images: &Path, ending: &str, folder: &Path, budget: &Budget) -> Outcome {
    plimsoll_disk::create_dir_all(folder).map_err(|error| Failure::of_path(folder, &error))?;
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy();
        let id = name.trim_end_matches(label_ending(ending));
        let channel = images.join(format!("{id}_0000{ending}"));
        let image = if channel.is_file() { channel } else { images.join(format!("{id}{ending}")) };
        let files =
            Files { image: &image, reference: &case.reference_file, prediction: &case.prediction_file };
        picture::draw(&files, &folder.join(format!("{id}.png")), budget)?;
    }
    Ok(())
}

/// Prints scores as a table.
pub fn print(summary: &Summary) {
    let asked = summary.metrics();
    let metrics: Vec<Metric> = PRINTED.into_iter().filter(|metric| asked.contains(metric)).collect();
    let names = metrics.iter().map(|metric| metric.name());
    let mut table = Table::new(["case", "class"].into_iter().chain(names));
    let mut row = |case: &str, class: &str, scores: &Scores| {
        let numbers = metrics.iter().map(|metric| match scores.get(*metric) {
            None => "–".into(),
            Some(score) if metric.is_count() => format!("{score:.0}"),
            Some(score) => format!("{score:.4}"),
        });
        table.row([case.to_string(), class.to_string()].into_iter().chain(numbers));
    };
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (class, scores) in &case.metrics {
            row(&name, &class.to_string(), scores);
        }
    }
    for (class, scores) in &summary.mean {
        row("mean", &class.to_string(), scores);
    }
    row("mean", "all", &summary.foreground_mean);
    table.print();
}
