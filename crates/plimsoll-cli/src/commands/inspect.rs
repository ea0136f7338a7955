//! `plimsoll inspect`

use plimsoll::{InspectRequest, Inspected, absent_classes, inspect, read_settings};
use plimsoll_data::pictures::{ImageDataset, Split};
use plimsoll_data::{Dataset, Inspection, resampled_shape};
use plimsoll_memory::Bytes;
use plimsoll_report::inspect_page::region_line;
use plimsoll_run::Settings;
use plimsoll_train::RunData;

use crate::args::{Inspect, warn_of_unread};
use crate::failure::Outcome;
use crate::report::{Table, json};
use crate::terminal;

/// Inspects a data set; fails if a case cannot be used.
pub fn run(args: &Inspect, as_json: bool) -> Outcome {
    let flags = Settings { data: args.files.settings(), ..Settings::default() };
    let request = InspectRequest {
        dataset: args.dataset.clone(),
        settings: read_settings(args.config.as_deref(), flags)?,
        allow_outside: args.files.allow_outside,
        describe: args.write,
        page: args.page.clone(),
        ram: args.ram.ram,
        threads: args.threads.count(),
        part: args.part.part,
    };
    let context = terminal::observed(as_json);
    warn_of_unread(&args.dataset, args.config.as_deref(), &context);
    let inspected = inspect(&request, &context)?;
    match &inspected {
        _ if as_json => json(&inspected)?,
        Inspected::Volumes { dataset, inspection } => print(dataset, inspection),
        Inspected::Images { name, dataset, inspection } => print_images(name, dataset, inspection),
        Inspected::Part(part) => println!("part {part} is inspected"),
    }
    Ok(inspected.check(&args.dataset)?)
}

/// Prints what was found of any data set.
pub fn print_data(data: &RunData) {
    match data {
        RunData::Volumes { dataset, inspection } => print(dataset, inspection),
        RunData::Images { dataset, inspection, .. } => print_images("images", dataset, inspection),
    }
}

/// Prints what was found of images.
fn print_images(name: &str, dataset: &ImageDataset, inspection: &plimsoll_data::pictures::Inspection) {
    println!("{name}: {} images of {} classes", dataset.cases.len(), dataset.classes.len());
    for warning in &dataset.warnings {
        println!("warning: {warning}");
    }
    let splits: Vec<Option<Split>> = [Split::Train, Split::Val, Split::Test]
        .into_iter()
        .map(Some)
        .filter(|split| !dataset.in_split(*split).is_empty() && split.is_some())
        .collect();
    let splits = if splits.iter().all(|split| dataset.in_split(*split).len() == dataset.cases.len()) {
        Vec::new()
    } else {
        splits
    };
    let names = splits.iter().flatten().map(|split| split.name());
    let mut table = Table::new(["class", "images"].into_iter().chain(names));
    let of = |split: &Option<Split>| dataset.class_counts(&dataset.in_split(*split));
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
        println!("  hint: {}", problem.remedy());
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

/// A spacing with as many digits as it needs.
fn spacing(mm: [f64; 3]) -> String {
    let digits = |mm: f64| {
        let digits = (3 - mm.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{mm:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    mm.map(digits).join(" × ")
}
