//! `plimsoll evaluate`

use std::path::Path;

use plimsoll_data::Dataset;
use plimsoll_memory::Budget;
use plimsoll_metrics::{CasePaths, Group, Metric, Scores, Settings, Summary, Surface, evaluate, pair_cases};

use super::classification;
use super::prepare::Line;
use crate::args::{Evaluate, Metrics, SurfaceKind};
use crate::failure::{Failure, Outcome};
use crate::picture::{self, Files};
use crate::progress::Progress;
use crate::report::{Table, json, write, write_json};

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

/// Compares predictions with references.
pub fn run(args: &Evaluate, as_json: bool) -> Outcome {
    if let Some(table) = &args.classification.table {
        return classification::run(table, args, as_json);
    }
    let summary = compare(args, as_json)?;
    if as_json {
        return json(&summary);
    }
    print(&summary);
    Ok(())
}

/// Compares, and writes the scores.
pub fn compare(args: &Evaluate, quiet: bool) -> Outcome<Summary> {
    let (Some(predictions), Some(references)) = (&args.predictions, &args.references) else {
        let message = "predictions and references are needed";
        return Err(Failure::new(
            message,
            "`plimsoll evaluate PREDICTIONS REFERENCES`, two folders or two files",
        ));
    };
    let is_file = references.is_file();
    let above = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let dataset = if is_file { above(&above(references)) } else { above(references) };
    let described = dataset.join("dataset.json").is_file().then(|| Dataset::open(&dataset)).transpose()?;
    let settings = settings(args, &dataset, described.as_ref())?;
    let ending = described.map_or(".nii.gz".into(), |dataset| dataset.file_ending);
    let cases = match is_file {
        true => vec![CasePaths { prediction: predictions.clone(), reference: references.clone() }],
        false => pair_cases(predictions, references, &ending, args.partial)?,
    };
    let threads = args.threads.count();
    let line = Line::draw(&args.ram, threads)?;
    let progress = Progress::new("evaluating", cases.len() as u64, quiet);
    let done = |done: usize| progress.set(done as u64, String::new());
    let summary = evaluate(&cases, &settings, &line.budget, threads, &done)?;
    progress.finish();
    if let (Some(images), Some(pictures)) = (&args.images, &args.pictures) {
        draw_all(&summary, images, &ending, pictures, &line.budget)?;
    }
    let folder = if is_file { above(predictions) } else { predictions.clone() };
    let beside = |ending: &str| match &args.output {
        Some(path) => path.with_extension(ending),
        None => folder.join("scores").with_extension(ending),
    };
    let path = args.output.clone().unwrap_or_else(|| folder.join("summary.json"));
    write(&path, |file| write_json(file, &summary))?;
    write(&beside("csv"), |file| summary.write_csv(file))?;
    write(&beside("svg"), |file| summary.write_box_plots(file))?;
    Ok(summary)
}

/// What the flags say, with the classes of the data set.
fn settings(args: &Evaluate, folder: &Path, described: Option<&Dataset>) -> Outcome<Settings> {
    let classes: Vec<u8> = match (&args.labels, described) {
        (Some(labels), _) => labels.clone(),
        (None, Some(dataset)) => (1..dataset.labels.classes()).filter_map(|c| u8::try_from(c).ok()).collect(),
        (None, None) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let message =
                format!("which classes to score is not known: {} has no dataset.json", folder.display());
            return Err(Failure::new(message, "name them, like --labels 1,2"));
        }
    };
    let mut settings = Settings::new(classes);
    let groups = args.scores.metrics.iter().flat_map(|metrics| match metrics {
        Metrics::All => Group::ALL.to_vec(),
        Metrics::Overlap => vec![Group::Overlap],
        Metrics::Surface => vec![Group::Surface],
        Metrics::Topology => vec![Group::Topology],
        Metrics::Lesion => vec![Group::Lesion],
    });
    settings.groups = groups.collect();
    settings.surface = match args.scores.surface {
        SurfaceKind::Elements => Surface::Elements,
        SurfaceKind::Voxels => Surface::Voxels,
    };
    if let Some(tolerance) = args.scores.tolerance {
        if !(tolerance >= 0.0 && tolerance.is_finite()) {
            let message = format!("--tolerance {tolerance} is not a distance in mm");
            return Err(Failure::new(message, "0 or more, like --tolerance 1.5"));
        }
        settings.tolerance = tolerance;
    }
    if let Some(overlap) = args.scores.lesion_overlap {
        if !(0.0..=1.0).contains(&overlap) {
            let message = format!("--lesion-overlap {overlap} is not a share from 0 to 1");
            return Err(Failure::new(
                message,
                "0 if one voxel is enough, like --lesion-overlap 0.1 if a tenth is",
            ));
        }
        settings.lesion_overlap = overlap;
    }
    Ok(settings)
}

/// Draws every case of a summary.
fn draw_all(summary: &Summary, images: &Path, ending: &str, folder: &Path, budget: &Budget) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| Failure::of_path(folder, &error))?;
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy();
        let id = name.trim_end_matches(ending);
        let channel = images.join(format!("{id}_0000{ending}"));
        let image = if channel.is_file() { channel } else { images.join(&*name) };
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
