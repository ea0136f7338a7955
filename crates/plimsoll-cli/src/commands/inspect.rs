//! `plimsoll inspect`

use std::io;
use std::path::Path;

use plimsoll_data::{
    Dataset, Fingerprint, FoundData, Inspection, Labels, Problem, Region, Severity, resampled_shape,
};
use plimsoll_image::{ImageDataset, SampleRange, Split};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_report::inspect_page::{page, region_line};
use plimsoll_run::Settings;
use plimsoll_train::RunData;
use serde::Serialize;

use crate::args::Inspect;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json, write, write_json};
use crate::terminal;
use plimsoll::Context;
use plimsoll::jobs::inspect::{census, inspect, inspect_images};
use plimsoll::jobs::line::Line;
use plimsoll::jobs::listed::{Listed, Opening};
use plimsoll::jobs::plan::settings;

/// The file that describes a data set.
const DESCRIPTION: &str = "dataset.json";

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    layout: String,
    cases: usize,
    /// Classes with their values in label maps.
    labels: Vec<(&'a str, u8)>,
    /// Where regions are predicted, these with their labels.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    regions: &'a [Region],
    problems: &'a [Problem],
    /// Classes that no case has.
    absent_classes: Vec<&'a str>,
    fingerprint: Option<&'a Fingerprint>,
    index_bytes: Bytes,
    warnings: &'a [String],
}

impl<'a> Report<'a> {
    fn of(dataset: &'a Dataset, inspection: &'a Inspection) -> Report<'a> {
        let labels = &dataset.labels;
        let named = labels.names().iter().zip(0..=u8::MAX);
        Report {
            name: &dataset.name,
            layout: dataset.layout.to_string(),
            cases: dataset.cases.len(),
            labels: named.map(|(name, class)| (name.as_str(), labels.value_in_files(class))).collect(),
            regions: labels.regions(),
            problems: &inspection.problems,
            absent_classes: absent_classes(dataset, inspection),
            fingerprint: inspection.fingerprint.as_ref(),
            index_bytes: inspection.index_bytes(),
            warnings: &dataset.warnings,
        }
    }
}

#[derive(Serialize)]
struct ImageReport<'a> {
    name: &'a str,
    cases: usize,
    classes: Vec<(&'a str, usize)>,
    problems: Vec<String>,
    largest_pixels: usize,
    /// The samples of 16 bits that become 0 and 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    range_16_bit: Option<SampleRange>,
    warnings: &'a [String],
}

/// Inspects a data set; fails if a case cannot be used.
pub fn run(args: &Inspect, as_json: bool) -> Outcome {
    let context = terminal::observed(as_json);
    let threads = args.threads.count();
    args.page.as_deref().map_or(Ok(()), check_page)?;
    let line = Line::draw(args.ram.ram, threads)?;
    let flags = Settings { data: args.files.settings(), ..Settings::default() };
    let settings = settings(args.config.as_deref(), flags)?;
    let opening =
        Opening { settings: &settings, allow_outside: args.files.allow_outside, threads, context: &context };
    let listed = match args.write {
        true => Listed::Volumes(describe(&args.dataset, &opening, &line.budget)?),
        false => Listed::open(&args.dataset, &opening, &line.budget)?,
    };
    if let (Listed::Images { .. }, Some(_)) = (&listed, &args.page) {
        let message = format!("--page is of volumes, and {} has images with classes", args.dataset.display());
        return Err(Failure::new(message, "leave --page out"));
    }
    let errors: Vec<String> = match listed {
        Listed::Volumes(dataset) => {
            let inspection = inspect(&dataset, threads, &line.budget, &context)?;
            if as_json {
                json(&Report::of(&dataset, &inspection))?;
            } else {
                print(&dataset, &inspection);
            }
            if let Some(path) = &args.page {
                write_page(path, &dataset, &inspection, &line.budget, &context)?;
            }
            let errors = inspection.problems.iter().filter(|problem| problem.severity == Severity::Error);
            errors.map(ToString::to_string).collect()
        }
        Listed::Images { name, place, dataset } => {
            let images = settings.images.clone().unwrap_or_default();
            let inspection =
                inspect_images(&place, &dataset, (&images, threads), &line.budget, &context.silent())?;
            if as_json {
                json(&ImageReport {
                    name: &name,
                    cases: dataset.cases.len(),
                    classes: class_counts(&dataset),
                    problems: inspection.problems.iter().map(ToString::to_string).collect(),
                    largest_pixels: inspection.largest.pixels,
                    range_16_bit: inspection.range_16_bit,
                    warnings: &dataset.warnings,
                })?;
            } else {
                print_images(&name, &dataset, &inspection);
            }
            let errors = inspection.problems.iter().filter(|problem| problem.kind.is_error());
            errors.map(ToString::to_string).collect()
        }
    };
    let Some(first) = errors.first() else { return Ok(()) };
    let plural = if errors.len() == 1 { "error" } else { "errors" };
    let message = format!("{} {plural} in {}: {first}", errors.len(), args.dataset.display());
    Err(Failure::new(message, "mend or remove the cases that are named above"))
}

/// Writes a description of what is found, and opens it.
fn describe(place: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Dataset> {
    let options = opening.settings.data_options(opening.allow_outside);
    let Some(found) = FoundData::find(place, &options, budget)? else {
        let message = format!("{} has nothing that looks like images with label maps", place.display());
        return Err(Failure::new(
            message,
            "--write is for these; say under [data] of plimsoll.toml where they are",
        ));
    };
    let path = found.folder.join(DESCRIPTION);
    if path.exists() {
        let hint = "leave --write out to inspect what it describes, or move it away to have it written anew";
        return Err(Failure::new(format!("{} is there already", path.display()), hint));
    }
    let labels = match &found.labels {
        Some(labels) => labels.clone(),
        None => {
            let classes = census(&found, opening, budget)?.classes();
            let values = classes.iter().map(|(name, value)| (name.clone(), u64::from(*value))).collect();
            Labels::of_values(&path, &values)?
        }
    };
    let described = found.description(&labels);
    write(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, &described)?;
        file.write_all(b"\n")
    })?;
    let (listed, _) = labels.described(true);
    let said: Vec<String> = listed.0.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    eprintln!(
        "wrote {}: {}, {} cases, labels {}",
        path.display(),
        found.layout,
        found.cases.len(),
        said.join(", ")
    );
    Ok(found.with_labels(labels))
}

/// Writes the page, and its numbers beside it.
fn write_page(
    path: &Path,
    dataset: &Dataset,
    inspection: &Inspection,
    budget: &Budget,
    context: &Context,
) -> Outcome {
    let progress = context.work("drawing", dataset.cases.len() as u64);
    let observe = |done: usize| progress.set(done as u64, String::new());
    let mut fault = None;
    let written = write(path, |file| {
        page((path, file), dataset, inspection, budget, &observe).map_err(|failure| {
            fault = Some(failure);
            io::Error::other("the page is not whole")
        })
    });
    drop(progress);
    fault.map_or(written, |error| Err(error.into()))?;
    write(&path.with_extension("json"), |file| write_json(file, &Report::of(dataset, inspection)))
}

/// That neither the page nor the numbers beside it take the place of a description.
fn check_page(path: &Path) -> Outcome {
    let beside = path.with_extension("json");
    if beside == path || beside.file_name().is_some_and(|name| name == DESCRIPTION) {
        let message =
            format!("--page {} has no room for the numbers, in {}", path.display(), beside.display());
        return Err(Failure::new(message, "call it otherwise, like report.html"));
    }
    Ok(())
}

/// Classes with their numbers of images.
fn class_counts(dataset: &ImageDataset) -> Vec<(&str, usize)> {
    let counts = dataset.class_counts(&dataset.of_split(None));
    dataset.classes.iter().map(String::as_str).zip(counts).collect()
}

/// Prints what was found of any data set.
pub fn print_data(data: &RunData) {
    match data {
        RunData::Volumes { dataset, inspection } => print(dataset, inspection),
        RunData::Images { dataset, inspection } => print_images("images", dataset, inspection),
    }
}

/// Prints what was found of images.
fn print_images(name: &str, dataset: &ImageDataset, inspection: &plimsoll_image::Inspection) {
    println!("{name}: {} images of {} classes", dataset.cases.len(), dataset.classes.len());
    for warning in &dataset.warnings {
        println!("warning: {warning}");
    }
    let splits: Vec<Option<Split>> = [Split::Train, Split::Val, Split::Test]
        .into_iter()
        .map(Some)
        .filter(|split| !dataset.of_split(*split).is_empty() && split.is_some())
        .collect();
    let splits = if splits.iter().all(|split| dataset.of_split(*split).len() == dataset.cases.len()) {
        Vec::new()
    } else {
        splits
    };
    let names = splits.iter().flatten().map(|split| split.name());
    let mut table = Table::new(["class", "images"].into_iter().chain(names));
    let of = |split: &Option<Split>| dataset.class_counts(&dataset.of_split(*split));
    let counts: Vec<Vec<usize>> = std::iter::once(&None).chain(&splits).map(of).collect();
    for (class, name) in dataset.classes.iter().enumerate() {
        let of_class = counts.iter().filter_map(|counts| counts.get(class)).map(usize::to_string);
        table.row(std::iter::once(name.clone()).chain(of_class));
    }
    table.print();
    println!("the largest image has {} pixels", inspection.largest.pixels);
    if let Some(range) = inspection.range_16_bit {
        println!("16-bit samples: {range} become 0 to 255");
    }
    for problem in &inspection.problems {
        let severity = if problem.kind.is_error() { "error" } else { "warning" };
        println!("{severity}: {problem}");
        println!("  hint: {}", problem.hint());
    }
}

/// Prints what was found as text.
pub fn print(dataset: &Dataset, inspection: &Inspection) {
    let labels = dataset.labels.names().iter().skip(1).cloned().collect::<Vec<_>>().join(", ");
    let channels = dataset.channels.iter().map(|channel| channel.name.clone()).collect::<Vec<_>>().join(", ");
    println!("{}: {} cases, channels: {channels}; classes: {labels}", dataset.name, dataset.cases.len());
    println!("layout: {}", dataset.layout);
    let others = dataset.labels.other_values();
    if !others.is_empty() {
        let said: Vec<String> = others.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        println!("values of label maps: {}; classes are numbered from 0 in predictions", said.join(", "));
    }
    if !dataset.labels.regions().is_empty() {
        println!("{}", region_line(&dataset.labels));
    }
    for warning in &dataset.warnings {
        println!("warning: {warning}");
    }
    if let Some(fingerprint) = &inspection.fingerprint {
        let mut table =
            Table::new(["case", "shape", "spacing mm", "stored", "foreground", "resampled whole"]);
        for case in &fingerprint.cases {
            let [d, h, w] = case.shape();
            let voxels: u64 = case.label_voxels.iter().sum();
            let foreground: u64 = case.label_voxels.iter().skip(1).sum();
            let share = 100.0 * foreground as f64 / voxels.max(1) as f64;
            let whole = resampled_shape(case.shape(), case.spacing(), fingerprint.target_spacing);
            let voxels_at_target: u64 = whole.iter().map(|extent| *extent as u64).product();
            let whole = Bytes(voxels_at_target * 4 * case.channels.len() as u64);
            table.row([
                case.id.clone(),
                format!("{d}×{h}×{w}"),
                spacing(case.spacing().0),
                case.stored_bytes.to_string(),
                format!("{share:.2} %"),
                whole.to_string(),
            ]);
        }
        table.print();
        let [d, h, w] = fingerprint.median_shape;
        println!(
            "target spacing {} mm, median shape {d:.0}×{h:.0}×{w:.0}, axes depth, height, width = S, A, R",
            spacing(fingerprint.target_spacing.0)
        );
    }
    for class in absent_classes(dataset, inspection) {
        println!("warning: class {class} is in no label map");
        println!("  hint: take the class out of the description, or add cases that have it");
    }
    for problem in &inspection.problems {
        println!("{}: {problem}", problem.severity);
        if let Some(hint) = &problem.hint {
            println!("  hint: {hint}");
        }
    }
}

/// The names of classes that no case has; none where no case can be used.
fn absent_classes<'a>(dataset: &'a Dataset, inspection: &Inspection) -> Vec<&'a str> {
    let Some(fingerprint) = &inspection.fingerprint else { return Vec::new() };
    let is_absent = |class: usize| {
        fingerprint.cases.iter().all(|case| case.label_voxels.get(class).is_none_or(|voxels| *voxels == 0))
    };
    let named = dataset.labels.names().iter().enumerate().skip(1);
    named.filter(|(class, _)| is_absent(*class)).map(|(_, name)| name.as_str()).collect()
}

/// A spacing as people write it: as many digits as it needs to be told from others, no more.
fn spacing(mm: [f64; 3]) -> String {
    let digits = |mm: f64| {
        let digits = (3 - mm.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{mm:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    mm.map(digits).join(" × ")
}
