//! Segmenting images with a trained network.
//!
//! The modules are layers. A module refers to layers below its own, and to modules of its layer that do not refer back:
//!
//! | layer | modules |
//! |---|---|
//! | jobs | this module; [`plan`]; [`ensemble`] |
//! | one call | [`job`], [`report`], [`output`], [`share`], [`derivative`] |
//! | cases | [`label_folder`], [`previews`], [`watcher`], [`results`], [`image_warnings`], [`case_files`], [`fold`] |
//! | the record beside labels | [`parts`], [`merged`], [`record`], [`recorded`], [`finished_cases`], [`record_files`], [`entry`], [`fields`] |
//! | request and model | [`cascade`], [`model`], [`request`], [`bids`] |

mod bids;
mod cascade;
pub mod case_files;
mod derivative;
pub mod ensemble;
mod entry;
mod fields;
mod finished_cases;
pub mod fold;
pub mod image_warnings;
mod job;
mod label_folder;
mod merged;
mod model;
mod output;
mod parts;
pub mod plan;
mod previews;
mod record;
mod record_files;
mod recorded;
pub mod report;
pub mod request;
pub mod results;
mod share;
mod watcher;

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_data::{Case, FoundImages, prediction_ending};
use plimsoll_infer::Destination;
use plimsoll_memory::Budget;

use self::cascade::{earlier_stage, stage_folder};
use self::derivative::describe;
use self::image_warnings::ImageWarning;
use self::job::PredictionJob;
use self::label_folder::LabelFolder;
use self::model::{Opened, expect_earlier_used, open};
use self::output::expect_sound;
use self::parts::PartLock;
use self::previews::Previews;
use self::report::PredictionReport;
use self::request::PredictRequest;
use self::results::{Cases, Kept, Predicted, refuse};
use crate::context::Context;
use crate::error::Outcome;
use crate::part::Share;

/// Segments every image of the input, or of one part of them.
pub fn predict(request: &PredictRequest, context: &Context) -> Outcome<PredictionReport> {
    predict_share(request, None, context)
}

/// Segments the images of a share; without one, of the requested part, or all. The earlier stage of a cascade has the share of the later one,
/// since its own windows would be divided otherwise.
fn predict_share(
    request: &PredictRequest,
    share: Option<&Share>,
    context: &Context,
) -> Outcome<PredictionReport> {
    let start = Instant::now();
    let budget = Budget::new(context.limits(request.ram).limit);
    expect_sound(request, &budget)?;
    let labels = LabelFolder::open(request, &budget, context)?;
    let opened = open(request, &budget, context)?;
    expect_earlier_used(request, &[&opened])?;
    let found = request.images(&opened.model, &budget)?;
    let share = share.cloned().or_else(|| request.share(&[&opened], &found, context));
    let is_own = |case: &str| share.as_ref().is_none_or(|share| share.has(case));
    let FoundImages { cases, refused, memory: _memory } = found;
    let refused = refuse(refused.into_iter().filter(|image| is_own(&image.case)).collect(), context);
    let _lock = share.as_ref().map(|share| PartLock::take(&request.output, share.part)).transpose()?;
    // Before anything is predicted: another program's folder is refused.
    if request.volumes.bids.is_some() {
        describe(request, &opened, labels.is_kept_apart())?;
    }
    let earlier = earlier_labels(request, &opened, share.as_ref(), context)?;
    let Opened { model, .. } = opened;
    let previews = request.volumes.preview.then(|| Previews::new(&cases, &model));
    let to = Destination {
        folder: labels.folder.clone(),
        names: request.volumes.names(),
        ending: prediction_ending(&model.file_ending).into(),
        overwrite: request.overwrite,
        probabilities: request.volumes.probabilities,
        earlier,
    };
    // Where labels are when all is done: below it those that are to be processed.
    let last = labels.last(&to);
    last.check(&cases)?;
    if to.ending != model.file_ending {
        context.note(format_args!(
            "images end in {}, which labels cannot be written as; choose one of {}",
            model.file_ending, to.ending
        ));
    }
    let is_done = |case: &Case| labels.is_processed(case, &to);
    let own = cases.iter().filter(|case| is_own(&case.id)).cloned();
    let (done, left): (Vec<Case>, Vec<Case>) = own.partition(is_done);
    let folds = model.weights.len();
    let warnings = ImageWarning::collect(left.iter().filter(|case| !to.keeps(case)), context);
    let predicted = left.iter().filter(|case| !to.keeps(case));
    parts::forget(request, predicted, &budget)?;
    let job = PredictionJob { request, budget: &budget, context };
    let mut finished = job.finished_cases(folds);
    let mut finish = |predicted: &Predicted| finished.add(&predicted.case, predicted);
    let found = job.predict_into(&to, Some(&labels), &cases, &left, model, &mut finish)?;
    let mut cases = Cases::from(found);
    cases.failed.splice(..0, refused);
    labels.process(&mut cases, &budget, context.stop.flag())?;
    cases.kept.extend(done.iter().map(|case| Kept::new(case.id.clone(), last.file(case))));
    let not_drawn =
        previews.map_or(Ok(Vec::new()), |previews| previews.draw(&cases, &budget, context.stop.flag()))?;
    let report = PredictionReport::write(job, cases, warnings, not_drawn, finished, share.as_ref(), start)?;
    share.map_or(Ok(()), |share| parts::merge(&request.output, &share, &budget, context))?;
    Ok(report)
}

/// The folder of the earlier stage's labels, if the model takes any: the given labels, or else the labels that the stage predicts now.
fn earlier_labels(
    request: &PredictRequest,
    opened: &Opened,
    share: Option<&Share>,
    context: &Context,
) -> Outcome<Option<PathBuf>> {
    if let Some(stage) = earlier_stage(request, opened)? {
        // A case that fails here fails at the later stage as well, and does not end the others.
        predict_share(&stage, share, context)?;
    }
    Ok(stage_folder(request, opened))
}
