//! `plimsoll predict`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_run::nnunet::is_nnunet;

use crate::args::Predict;
use crate::failure::{Failure, Outcome};
use crate::jobs::classify::{ClassifyOptions, classify, is_classifier};
use crate::jobs::ensemble::predict_ensemble;
use crate::jobs::pairs::pairs_of;
use crate::jobs::predict::{PredictRequest, predict_all};
use crate::report::json;
use crate::signals::Stop;

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    stop.end_in_order();
    let (model, others) = args.models()?;
    let is_classifier = is_classifier(&model)?;
    expect_averaged(&model, &others)?;
    expect_effect(args, (&model, &others), is_classifier)?;
    let backend = args.compute.open()?;
    let request = args.request(model, Arc::clone(&backend))?;
    if is_classifier {
        let options = ClassifyOptions {
            rule: args.votes.unwrap_or_default().into(),
            pair_columns: args.pair_columns,
            mistakes: args.mistakes,
        };
        let classified = classify(&request, options, stop.flag(), as_json);
        let classified = classified.map_err(|failure| stop.cause_of(failure))?;
        if as_json {
            return json(&classified);
        }
        let voted = match classified.classifiers {
            1 => String::new(),
            count => format!(" by the votes of {count} classifiers"),
        };
        println!("{} images{voted} in {}", classified.images, classified.file.display());
        if let Some(mistakes) = &classified.mistakes {
            match &mistakes.file {
                Some(file) => println!("{} are wrong: the worst in {}", mistakes.found, file.display()),
                None => println!("none is wrong: there is nothing to draw"),
            }
        }
        println!("planned {}, peak resident {}", classified.planned_bytes, classified.peak_rss_bytes);
        return match classified.failed.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!("{} images could not be read: {first}", classified.failed.len());
                Err(Failure::new(message, "mend them, or leave them out"))
            }
        };
    }
    let report = match others.is_empty() {
        true => predict_all(&request, stop.flag(), as_json),
        false => {
            let others = others.into_iter().map(|model| args.request(model, Arc::clone(&backend)));
            let requests: Outcome<Vec<PredictRequest>> = std::iter::once(Ok(request)).chain(others).collect();
            let requests = requests?;
            predict_ensemble(&requests, stop.flag(), as_json)
        }
    };
    let report = report.map_err(|failure| stop.cause_of(failure))?;
    if as_json {
        json(&report)?;
        return report.check();
    }
    for case in &report.cases {
        let held = case.plan.as_ref().map(|plan| format!(", holding {}", plan.total_bytes));
        println!("{} in {:.1} s{}", case.file.display(), case.seconds, held.unwrap_or_default());
    }
    if let Some(planned) = report.planned_bytes {
        println!("planned {planned}, peak resident {}", report.peak_rss_bytes);
    }
    if let Some(held) = report.cases.iter().filter_map(|case| case.plan.as_ref()?.device_bytes).max() {
        println!("planned {held} of the memory of {}", report.engine);
    }
    report.check()
}

/// Refuses several models of which one has no probabilities of voxels.
fn expect_averaged(model: &Path, others: &[PathBuf]) -> Outcome {
    if others.is_empty() {
        return Ok(());
    }
    for model in std::iter::once(model).chain(others.iter().map(PathBuf::as_path)) {
        if is_classifier(model)? {
            let message = format!("{} gives each image a class as a whole", model.display());
            return Err(Failure::new(
                message,
                "of several models all must label voxels: predict with it alone",
            ));
        }
    }
    Ok(())
}

/// Refuses flags that would have no effect with the models.
fn expect_effect(args: &Predict, (model, others): (&Path, &[PathBuf]), is_classifier: bool) -> Outcome {
    let has_pairs = !pairs_of(model)?.is_empty();
    let of_volumes = "the model gives each image a class as a whole";
    let of_others = others.iter().map(|other| is_nnunet(other)).collect::<Result<Vec<bool>, _>>()?;
    let is_first_nnunet = is_nnunet(model)?;
    let is_any_nnunet = is_first_nnunet || of_others.contains(&true);
    let without_effect =
        |flag: &str, why: &str| Err(Failure::new(format!("{flag} has no effect: {why}"), "leave it out"));
    if let Some(flag) = args.nnunet.first_given().filter(|_| !is_any_nnunet) {
        return without_effect(flag, "the model is none of nnU-Net");
    }
    let of_pairs = "the model has no classifiers of pairs, which `train --one-vs-one` trains";
    let named_by_chk = "the model is one of nnU-Net, of which -chk names the file of weights";
    let refused = [
        ("--checkpoint", args.checkpoint.is_some() && is_first_nnunet, named_by_chk),
        ("-step_size", args.nnunet.step_size.is_some() && is_classifier, of_volumes),
        ("--save_probabilities", args.nnunet.save_probabilities && is_classifier, "a table has them always"),
        ("--postprocessing", args.nnunet.postprocessing.is_some() && is_classifier, of_volumes),
        ("--overlap", args.overlap.is_some() && is_classifier, of_volumes),
        ("--votes", args.votes.is_some() && !has_pairs, of_pairs),
        ("--pair-columns", args.pair_columns && !has_pairs, of_pairs),
        ("--mistakes", args.mistakes.is_some() && !is_classifier, "the model labels voxels, not images"),
        ("--mistakes", args.mistakes.is_some() && has_pairs, "each pair of classes has a network of its own"),
    ];
    match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
        Some((flag, _, why)) => without_effect(flag, why),
        None => Ok(()),
    }
}
