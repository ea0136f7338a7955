//! The model of a prediction, opened for its request.

use std::path::PathBuf;

use plimsoll_data::Dataset;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::Budget;
use plimsoll_models::{OpenOptions, OpenedModel, SegmentationModel, WindowLayout};

use super::bids;
use super::request::PredictRequest;
use crate::context::Context;
use crate::error::{Error, Outcome};

/// A model that is to predict.
pub(super) struct Opened {
    /// Its own folder.
    pub(super) folder: PathBuf,
    pub(super) model: SegmentationModel,
    /// The configuration of a cascade whose labels it takes beside the image, if it does.
    pub(super) previous: Option<String>,
}

/// Opens a model.
pub(super) fn open(request: &PredictRequest, budget: &Budget, context: &Context) -> Outcome<Opened> {
    let mut opened = open_model(request, budget, context)?;
    // Images of another format than those that it was trained on are the same to it.
    let ending = &mut opened.model.file_ending;
    *ending = match &request.volumes.bids {
        // As BIDS has images, and labels.
        Some(_) => bids::ENDING.into(),
        None => Dataset::input_ending(&request.input, ending)?,
    };
    if let Some(chosen) = request.volumes.mirror_axes {
        let allowed = opened.model.mirror_axes;
        if let Some(axis) = (0..3).find(|axis| chosen[*axis] && !allowed[*axis]) {
            let all: Vec<String> =
                (0..3).filter(|axis| allowed[*axis]).map(|axis| axis.to_string()).collect();
            let message =
                format!("{} was not trained with mirroring along axis {axis}", request.model.display());
            let hint = match all.is_empty() {
                true => "leave ‹mirror_axes› out: it was trained without mirroring".to_string(),
                false => format!("choose from its axes with ‹mirror_axes={}›", all.join(",")),
            };
            return Err(Error::new(message, hint));
        }
        opened.model.mirror_axes = chosen;
    }
    Ok(opened)
}

fn open_model(request: &PredictRequest, budget: &Budget, context: &Context) -> Outcome<Opened> {
    let nnunet = request.volumes.nnunet.clone().unwrap_or_default();
    let options = OpenOptions { checkpoint: request.checkpoint, nnunet, ..OpenOptions::default() };
    let opened = OpenedModel::open(&request.model, &options, budget)?;
    if request.volumes.verbose {
        opened.lines().iter().for_each(|line| context.note(line));
    }
    let (folder, previous) = (opened.path().to_path_buf(), opened.previous().map(String::from));
    Ok(Opened { folder, model: opened.into_segmentation()?, previous })
}

/// Refuses labels of an earlier stage that none of the models takes.
pub(super) fn expect_earlier_used(request: &PredictRequest, models: &[&Opened]) -> Outcome {
    let Some(given) = &request.volumes.earlier else { return Ok(()) };
    if models.iter().any(|opened| opened.previous.is_some()) {
        return Ok(());
    }
    let folders: Vec<String> = models.iter().map(|opened| opened.folder.display().to_string()).collect();
    let message = format!("-prev_stage_predictions {} has no effect", given.display());
    let hint = format!("leave it out: {} is not a later stage of a cascade", folders.join(", or "));
    Err(Error::new(message, hint))
}

/// The share of a window from one to the next that a hint asks for with `--overlap 0.25`.
const FAR_STEP: f64 = 0.75;

/// Returns `true` if `--overlap 0.25` would reduce the windows of a model's cases.
pub(super) fn can_overlap(model: &SegmentationModel, options: PredictOptions) -> bool {
    matches!(model.windows, WindowLayout::Even) && options.step < FAR_STEP
}
