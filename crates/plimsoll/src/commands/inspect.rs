//! `plimsoll inspect`

use plimsoll_data::{Dataset, Fingerprint, Inspection, Problem, Severity, resampled_shape};
use plimsoll_memory::Bytes;
use serde::Serialize;

use crate::args::Inspect;
use crate::failure::{Failure, Outcome};
use crate::jobs::inspect::inspect;
use crate::jobs::line::Line;
use crate::report::{Table, json};

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    cases: usize,
    problems: &'a [Problem],
    fingerprint: Option<&'a Fingerprint>,
    index_bytes: Bytes,
    warnings: &'a [String],
}

/// Inspects a data set; fails if a case cannot be used.
pub fn run(args: &Inspect, as_json: bool) -> Outcome {
    let threads = args.threads.count();
    let line = Line::draw(args.ram.ram, threads)?;
    let dataset = Dataset::open(&args.dataset)?;
    let inspection = inspect(&dataset, threads, &line.budget, as_json)?;
    if as_json {
        json(&Report {
            name: &dataset.name,
            cases: dataset.cases.len(),
            problems: &inspection.problems,
            fingerprint: inspection.fingerprint.as_ref(),
            index_bytes: inspection.index_bytes(),
            warnings: &dataset.warnings,
        })?;
    } else {
        print(&dataset, &inspection);
    }
    let errors = inspection.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    match errors {
        0 => Ok(()),
        _ => {
            let all = inspection.problems.iter();
            let first = all.clone().find(|problem| problem.severity == Severity::Error);
            let named = first.map_or(String::new(), |first| format!(": {first}"));
            let plural = if errors == 1 { "error" } else { "errors" };
            let message = format!("{} {plural} in {}{named}", errors, args.dataset.display());
            Err(Failure::new(message, "mend or remove the cases that are named above"))
        }
    }
}

/// Prints what was found as text.
pub fn print(dataset: &Dataset, inspection: &Inspection) {
    let labels = dataset.labels.names().iter().skip(1).cloned().collect::<Vec<_>>().join(", ");
    let channels = dataset.channels.iter().map(|channel| channel.name.clone()).collect::<Vec<_>>().join(", ");
    println!("{}: {} cases, channels: {channels}; classes: {labels}", dataset.name, dataset.cases.len());
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
    for problem in &inspection.problems {
        println!("{}: {problem}", problem.severity);
        if let Some(hint) = &problem.hint {
            println!("  hint: {hint}");
        }
    }
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
