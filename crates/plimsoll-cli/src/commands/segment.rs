//! `plimsoll segment`

use plimsoll::{plan_segmentation, segment};
use plimsoll_models::total_segmentator::{ModelSize, SegmentatorTask};
use serde::Serialize;

use super::prediction_plan;
use crate::args::Segment;
use crate::failure::{Failure, Outcome};
use crate::report::json;
use crate::terminal;

/// A task, as it is listed.
#[derive(Serialize)]
struct Listed {
    task: &'static str,
    license: &'static str,
    labels: &'static [String],
    /// The numbers of data sets whose weights exist, and of those whose weights are missing, for all ways to run the task.
    weights: Vec<u32>,
    missing: Vec<u32>,
}

/// Segments images.
pub fn run(args: &Segment, as_json: bool) -> Outcome {
    if args.list {
        return list(args, as_json);
    }
    if args.inference.plan {
        return prediction_plan::show(
            &plan_segmentation(&args.request()?, &terminal::observed(as_json))?,
            as_json,
        );
    }
    let context = terminal::context(as_json)?;
    context.keep_results();
    let report = segment(&args.request()?, &context)?;
    if as_json {
        json(&report)?;
    } else {
        for used in &report.tasks {
            println!("weights of {}: {}", used.task, used.license);
        }
        for image in &report.images {
            println!("{} in {:.1} s, holding {}", image.output.display(), image.seconds, image.planned_bytes);
        }
        for kept in &report.kept {
            println!("{} already existed and was kept; --overwrite replaces it", kept.display());
        }
        println!("peak resident {}", report.peak_rss_bytes);
    }
    match report.failed.first() {
        None => Ok(()),
        Some(first) => {
            let of = report.failed.len() + report.images.len() + report.kept.len();
            let task = first.task.as_ref().filter(|_| report.tasks.len() > 1);
            let task = task.map(|task| format!("{task}: ")).unwrap_or_default();
            let message = format!(
                "{} of {of} {} could not be segmented, the first: {}: {task}{}",
                report.failed.len(),
                if report.tasks.len() > 1 { "tasks of images" } else { "images" },
                first.image.display(),
                first.error
            );
            Err(Failure::new(message, first.hint.as_str()))
        }
    }
}

fn list(args: &Segment, as_json: bool) -> Outcome {
    let folder = args.weights_folder()?;
    let mut listed = Vec::new();
    for (name, task) in SegmentatorTask::all()? {
        let (mut weights, mut missing) = (Vec::new(), Vec::new());
        for models in task.all_models() {
            for part in &models.parts {
                let found = models.folder(part, ModelSize::Big, &folder).is_ok();
                if found { &mut weights } else { &mut missing }.push(part.dataset);
            }
        }
        listed.push(Listed { task: name, license: &task.license, labels: &task.classes, weights, missing });
    }
    if as_json {
        return json(&listed);
    }
    println!("weights in {}", folder.display());
    for task in listed {
        let numbers = |of: &[u32]| of.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let state = match (task.weights.as_slice(), task.missing.as_slice()) {
            (_, []) => "all there".to_string(),
            ([], missing) => format!("missing: {}", numbers(missing)),
            (there, missing) => format!("there: {}; missing: {}", numbers(there), numbers(missing)),
        };
        println!(
            "\n{} ({}, {} labels; {state})\n  {}",
            task.task,
            task.license,
            task.labels.len(),
            task.labels.join(" ")
        );
    }
    Ok(())
}
