//! `plimsoll evaluate`

use plimsoll::read_settings as data_settings;
use plimsoll::{EvaluateRequest, Evaluated, evaluate};
use plimsoll_memory::{mapped_files, resident};
use plimsoll_metrics::{Group, Settings, Surface};

use super::classification;
use super::scores::print_scores;
use crate::args::{Evaluate, Metrics, SurfaceKind};
use crate::failure::{Failure, Outcome};
use crate::report::json;
use crate::terminal;

/// Compares predictions with references.
pub fn run(args: &Evaluate, as_json: bool) -> Outcome {
    if let Some(table) = &args.classification.table {
        return classification::run(table, args, as_json);
    }
    let Evaluated { summary, names, reserved, .. } = evaluate(&request(args)?, &terminal::observed(as_json))?;
    if as_json {
        return json(&summary);
    }
    print_scores(&summary, &names);
    let (peak, code) = (resident()?.peak, mapped_files()?);
    println!(
        "reserved {reserved} at most, {} of it code; peak resident {peak}, {} of it code",
        code.mapped, code.resident
    );
    Ok(())
}

/// The request.
fn request(args: &Evaluate) -> Outcome<EvaluateRequest> {
    let (Some(predictions), Some(references)) = (&args.predictions, &args.references) else {
        let message = "predictions and references are needed";
        return Err(Failure::new(
            message,
            "`plimsoll evaluate PREDICTIONS REFERENCES`: two folders, a folder and a data set, or two files",
        ));
    };
    Ok(EvaluateRequest {
        predictions: predictions.clone(),
        references: references.clone(),
        data: data_settings(args.config.as_deref(), plimsoll_run::Settings::default())?,
        classes: args.labels.clone(),
        ignore: args.ignore,
        settings: settings(args)?,
        unit: args.unit,
        allow_outside: args.allow_outside,
        partial: args.partial,
        part: args.part.part,
        pictures: args.images.clone().zip(args.pictures.clone()),
        output: args.output.clone(),
        ram: args.ram.ram,
        threads: args.threads.count(),
    })
}

/// The settings of scores in flags.
fn settings(args: &Evaluate) -> Outcome<Settings> {
    let mut settings = Settings::new(Vec::new());
    let groups = args.scores.metrics.iter().flat_map(|metrics| match metrics {
        Metrics::All => Group::ALL.to_vec(),
        Metrics::Overlap => vec![Group::Overlap],
        Metrics::Surface => vec![Group::Surface],
        Metrics::Topology => vec![Group::Topology],
        Metrics::Lesion => vec![Group::Lesion],
    });
    settings.groups = groups.collect();
    settings.missing = args.scores.missing.into();
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
