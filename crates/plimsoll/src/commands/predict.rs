//! `plimsoll predict`

use crate::args::Predict;
use crate::failure::{Failure, Outcome};
use crate::jobs::classify::{ClassifyOptions, classify, is_classifier};
use crate::jobs::pairs::pairs_of;
use crate::jobs::predict::predict_all;
use crate::report::json;
use crate::signals::Stop;

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    stop.end_in_order();
    let is_classifier = is_classifier(&args.model)?;
    expect_effect(args, is_classifier)?;
    if is_classifier {
        let options = ClassifyOptions {
            rule: args.votes.unwrap_or_default().into(),
            pair_columns: args.pair_columns,
            mistakes: args.mistakes,
        };
        let classified = classify(&args.request()?, options, stop.flag(), as_json);
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
    let report =
        predict_all(&args.request()?, stop.flag(), as_json).map_err(|failure| stop.cause_of(failure))?;
    if as_json {
        json(&report)?;
        return report.check();
    }
    for case in &report.cases {
        println!("{} in {:.1} s, holding {}", case.file.display(), case.seconds, case.plan.total_bytes);
    }
    if let Some(planned) = report.planned_bytes {
        println!("planned {planned}, peak resident {}", report.peak_rss_bytes);
    }
    if let Some(held) = report.cases.iter().filter_map(|case| case.plan.device_bytes).max() {
        println!("planned {held} of the memory of {}", report.engine);
    }
    report.check()
}

/// Refuses flags that would have no effect with the model.
fn expect_effect(args: &Predict, is_classifier: bool) -> Outcome {
    let has_pairs = !pairs_of(&args.model)?.is_empty();
    let of_volumes = "the model gives each image a class as a whole";
    let of_pairs = "the model has no classifiers of pairs, which `train --one-vs-one` trains";
    let refused = [
        ("--overlap", args.overlap.is_some() && is_classifier, of_volumes),
        ("--votes", args.votes.is_some() && !has_pairs, of_pairs),
        ("--pair-columns", args.pair_columns && !has_pairs, of_pairs),
        ("--mistakes", args.mistakes.is_some() && !is_classifier, "the model labels voxels, not images"),
        ("--mistakes", args.mistakes.is_some() && has_pairs, "each pair of classes has a network of its own"),
    ];
    match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
        Some((flag, _, why)) => Err(Failure::new(format!("{flag} has no effect: {why}"), "leave it out")),
        None => Ok(()),
    }
}
