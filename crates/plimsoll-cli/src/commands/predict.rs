//! `plimsoll predict`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::{
    ClassifyOptions, Context, OtherSpacing, PredictRequest, Predicted, classify, is_classifier, model_steps,
    predict, predict_ensemble, ring_line, strips_line, sums_line,
};
use plimsoll_infer::{CaseTimes, RingStorage};
use plimsoll_models::ModelSource;
use plimsoll_report::duration::grouped;

use super::prediction_plan;
use crate::args::Predict;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json};
use crate::terminal;

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let context = terminal::context(as_json)?;
    context.keep_results();
    let (model, others) = args.models()?;
    let is_classifier = is_classifier(&model)?;
    expect_averaged(&model, is_classifier, &others)?;
    expect_effect(args, &model, &others, is_classifier)?;
    expect_one_of_bids(args, &others)?;
    let backend = args.inference.backend()?;
    let request = args.request(model, Arc::clone(&backend))?;
    if is_classifier {
        return run_classification(args, &request, &others, &context, as_json);
    }
    if args.inference.plan {
        let others = others.into_iter().map(|model| args.request(model, Arc::clone(&backend)));
        let requests: Outcome<Vec<PredictRequest>> = std::iter::once(Ok(request)).chain(others).collect();
        return prediction_plan::run(&requests?, as_json);
    }
    let report = match others.is_empty() {
        true => predict(&request, &context),
        false => {
            let others = others.into_iter().map(|model| args.request(model, Arc::clone(&backend)));
            let requests: Outcome<Vec<PredictRequest>> = std::iter::once(Ok(request)).chain(others).collect();
            let requests = requests?;
            predict_ensemble(&requests, &context)
        }
    };
    let report = report?;
    if as_json {
        json(&report)?;
        return Ok(report.check()?);
    }
    for case in &report.cases {
        let held = case.plan.as_ref().map(|plan| format!(", holding {}", plan.total_bytes));
        println!("{} in {:.1} s{}", case.file.display(), case.seconds, held.unwrap_or_default());
    }
    print_times(&report.cases);
    for case in &report.cases {
        for other in &case.other_spacings {
            let OtherSpacing { trained_mm, seen_mm, .. } = other;
            println!("{} was seen at {seen_mm}, and the network was trained at {trained_mm}", case.case);
        }
    }
    let plans = report.cases.iter().filter_map(|case| case.plan.as_ref());
    let halves = plans.filter(|plan| plan.ring == RingStorage::F16);
    let line = halves.max_by_key(|plan| plan.f32_ring_ram_bytes).and_then(ring_line);
    if let Some(line) = line.filter(|_| args.inference.held.ring().is_none()) {
        println!("{line}");
    }
    let in_strips = report.cases.iter().filter_map(|case| case.plan.as_ref());
    if let Some(line) = in_strips.max_by_key(|plan| plan.repeated_windows).and_then(strips_line) {
        println!("{line}");
    }
    if let Some(planned) = report.planned_bytes {
        println!("planned {planned}, peak resident {}", report.peak_rss_bytes);
    }
    if let Some(held) = report.cases.iter().filter_map(|case| case.plan.as_ref()?.device_bytes).max() {
        println!("planned {held} of the memory of {}", report.engine);
    }
    if let Some(line) = report.cases.iter().filter_map(|case| case.plan.as_ref()).find_map(sums_line) {
        println!("{line}");
    }
    Ok(report.check()?)
}

/// Classifies images, and prints the result.
fn run_classification(
    args: &Predict,
    request: &PredictRequest,
    others: &[PathBuf],
    context: &Context,
    as_json: bool,
) -> Outcome {
    let options = ClassifyOptions {
        rule: args.votes.unwrap_or_default().into(),
        pair_columns: args.pair_columns,
        mistakes: args.mistakes,
    };
    let classified = classify(request, others, options, context);
    let classified = classified?;
    let check = || match classified.failed.first() {
        None => Ok(()),
        Some(first) => {
            let message = format!("{} images could not be read: {first}", classified.failed.len());
            Err(Failure::new(message, "repair them, or leave them out"))
        }
    };
    if as_json {
        json(&classified)?;
        return check();
    }
    let voted = match (classified.models, classified.classifiers) {
        (1, 1) => String::new(),
        (1, count) => format!(" by the votes of {count} classifiers"),
        (models, _) => format!(" by the mean of {models} models"),
    };
    println!("{} images{voted} in {}", classified.images, classified.file.display());
    if let Some(mistakes) = &classified.mistakes {
        match &mistakes.file {
            Some(file) => println!("{} are wrong: the worst in {}", mistakes.found, file.display()),
            None => println!("none is wrong: there is nothing to draw"),
        }
    }
    println!("planned {}, peak resident {}", classified.planned_bytes, classified.peak_rss_bytes);
    check()
}

/// Refuses what a derivative data set of BIDS has no place for.
fn expect_one_of_bids(args: &Predict, others: &[PathBuf]) -> Outcome {
    let refused =
        |what: &str, hint: &str| Err(Failure::new(format!("--bids with {what} is not supported"), hint));
    match (&args.bids, others) {
        (None, _) => Ok(()),
        (Some(_), [_, ..]) => refused("several models", "predict with each alone, into separate folders"),
        (Some(_), _) if args.nnunet.save_probabilities => {
            refused("--save_probabilities", "predict without --bids where probabilities are needed")
        }
        (Some(_), _) if args.input.is_dir() => Ok(()),
        (Some(_), _) => refused("a file as input", "name the folder of the data set with -i"),
    }
}

/// Prints what the time of each case was spent on.
fn print_times(cases: &[Predicted]) {
    let parts = CaseTimes::default().parts().map(|(part, _)| part);
    let mut table = Table::new(["case", "windows", "seconds"].into_iter().chain(parts));
    let mut row = |case: &str, windows: usize, times: CaseTimes| {
        let all = times.all();
        let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / all.max(f64::MIN_POSITIVE));
        let shares = times.parts().map(|(_, seconds)| share(seconds));
        let numbers = [case.to_string(), grouped(windows as u64), format!("{all:.1}")];
        table.row(numbers.into_iter().chain(shares));
    };
    let timed: Vec<_> = cases.iter().filter_map(|case| Some((case, case.times?))).collect();
    let mut sum = CaseTimes::default();
    for (case, times) in &timed {
        row(&case.case, case.windows, *times);
        sum = sum.and(*times);
    }
    match timed.len() {
        0 => return,
        1 => {}
        _ => row("all", timed.iter().map(|(case, _)| case.windows).sum(), sum),
    }
    table.print();
}

/// Refuses several models of which some have probabilities of voxels and some of images.
fn expect_averaged(model: &Path, is_of_images: bool, others: &[PathBuf]) -> Outcome {
    for other in others {
        if is_classifier(other)? != is_of_images {
            let (images, voxels) = if is_of_images { (model, &**other) } else { (&**other, model) };
            let message = format!(
                "{} gives each image a class as a whole, and {} labels voxels",
                images.display(),
                voxels.display()
            );
            return Err(Failure::new(message, "average models that do the same: predict with each alone"));
        }
    }
    Ok(())
}

/// Refuses flags that would have no effect with the models.
fn expect_effect(args: &Predict, model: &Path, others: &[PathBuf], is_classifier: bool) -> Outcome {
    let first = ModelSource::detect(model)?;
    let has_pairs = matches!(first, ModelSource::Pairs { .. });
    let of_volumes = "the model gives each image a class as a whole";
    let others =
        others.iter().map(|other| ModelSource::detect(other)).collect::<Result<Vec<ModelSource>, _>>()?;
    let is_nnunet = |source: &ModelSource| matches!(source, ModelSource::NnUnet(_));
    let is_first_nnunet = is_nnunet(&first);
    let is_any_nnunet = is_first_nnunet || others.iter().any(is_nnunet);
    let is_monai =
        |source: &ModelSource| matches!(source, ModelSource::MonaiBundle(_) | ModelSource::MonaiConfig(_));
    let has_one = |source: &ModelSource| matches!(source, ModelSource::File(_)) || is_monai(source);
    let is_all_monai = std::iter::once(&first).chain(&others).all(is_monai);
    let is_any_monai = std::iter::once(&first).chain(&others).any(is_monai);
    let says_spacing = "the transforms of the bundle set the spacing of images";
    let says_windows = "the model sets the positions of windows";
    let without_effect =
        |flag: &str, why: &str| Err(Failure::new(format!("{flag} has no effect: {why}"), "leave it out"));
    let is_any_hd_bet = std::iter::once(&first).chain(&others).any(ModelSource::is_hd_bet);
    let has_effect = |flag: &str| match flag {
        "--verbose" => is_any_nnunet || is_all_monai,
        "-f" => is_any_nnunet || is_any_hd_bet,
        _ => is_any_nnunet,
    };
    if let Some(flag) = args.nnunet.given().find(|flag| !has_effect(flag)) {
        return without_effect(flag, "the model is not from nnU-Net");
    }
    let of_pairs = "the model has no classifiers of pairs, which `train --one-vs-one` trains";
    let named_by_chk = "the model is from nnU-Net: -chk names its file of weights";
    let of_mean = "steps of one model do not apply to the mean of several";
    let has_steps = model_steps(model)?.is_some();
    let refused = [
        ("--checkpoint", args.checkpoint.is_some() && is_first_nnunet, named_by_chk),
        (
            "--checkpoint",
            args.checkpoint.is_some() && std::iter::once(&first).chain(&others).all(has_one),
            "the model has one checkpoint of each fold",
        ),
        ("-step_size", args.nnunet.step_size.is_some() && is_all_monai, says_windows),
        ("--overlap", args.overlap.is_some() && is_all_monai, says_windows),
        ("--window-weights", args.window_weights.is_some() && is_any_monai, says_windows),
        ("--window-weights", args.window_weights.is_some() && is_classifier, of_volumes),
        ("--outlier-spacing", args.outlier_spacing.is_some() && is_any_monai, says_spacing),
        ("--outlier-spacing", args.outlier_spacing.is_some() && is_classifier, of_volumes),
        ("--unit", args.unit.is_some() && is_classifier, of_volumes),
        ("-step_size", args.nnunet.step_size.is_some() && is_classifier, of_volumes),
        ("--save_probabilities", args.nnunet.save_probabilities && is_classifier, "a table always has them"),
        ("--postprocessing", args.nnunet.postprocessing.is_some() && is_classifier, of_volumes),
        ("--mirror-axes", !args.mirror_axes.is_empty() && is_classifier, of_volumes),
        ("--preview", args.preview && is_classifier, of_volumes),
        ("--bids", args.bids.is_some() && is_classifier, of_volumes),
        ("--no-postprocessing", args.no_postprocessing && is_classifier, of_volumes),
        ("--no-postprocessing", args.no_postprocessing && !others.is_empty(), of_mean),
        ("--no-postprocessing", args.no_postprocessing && !has_steps, "the model has no steps"),
        ("--overlap", args.overlap.is_some() && is_classifier, of_volumes),
        ("--plan", args.inference.plan && is_classifier, of_volumes),
        ("--sum", args.inference.held.summed().is_some() && is_classifier, of_volumes),
        ("--ring", args.inference.held.ring().is_some() && is_classifier, of_volumes),
        ("--precision", args.inference.held.precision().is_some() && is_classifier, of_volumes),
        ("--window-batch", args.inference.held.window_batch().is_some() && is_classifier, of_volumes),
        ("--votes", args.votes.is_some() && !has_pairs, of_pairs),
        ("--pair-columns", args.pair_columns && !has_pairs, of_pairs),
        ("--mistakes", args.mistakes.is_some() && !is_classifier, "the model labels voxels, not images"),
        (
            "--mistakes",
            args.mistakes.is_some() && !others.is_empty(),
            "it draws the evidence of one network, and these are several",
        ),
        ("--mistakes", args.mistakes.is_some() && has_pairs, "each pair of classes has its own network"),
    ];
    match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
        Some((flag, _, why)) => without_effect(flag, why),
        None => Ok(()),
    }
}
