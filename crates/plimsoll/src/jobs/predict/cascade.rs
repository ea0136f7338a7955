//! The earlier stage of a cascade, whose labels a model takes beside the images.

use std::path::{Path, PathBuf};

use plimsoll_models::nnunet::is_nnunet;

use super::model::Opened;
use super::request::{PredictRequest, VolumeOptions};
use crate::error::{Error, Outcome};

/// The request of the earlier stage whose labels a model takes; `None` if it takes none, or labels are given.
pub(super) fn earlier_stage(request: &PredictRequest, opened: &Opened) -> Outcome<Option<PredictRequest>> {
    match (&opened.previous, &request.volumes.earlier) {
        (Some(previous), None) => stage_request(request, &opened.folder, previous).map(Some),
        _ => Ok(None),
    }
}

/// The folder that has, or will have, the labels of the earlier stage; `None` if the model takes none.
pub(super) fn stage_folder(request: &PredictRequest, opened: &Opened) -> Option<PathBuf> {
    let previous = opened.previous.as_ref()?;
    Some(request.volumes.earlier.clone().unwrap_or_else(|| request.output.join(previous)))
}

/// The request of the earlier stage of a cascade, whose folder is beside the folder of the later stage. Its labels go into a subfolder of
/// its name.
fn stage_request(request: &PredictRequest, folder: &Path, previous: &str) -> Outcome<PredictRequest> {
    let hint = "name the folder of its labels with -prev_stage_predictions";
    let own = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once("__"));
    let Some((trained, _)) = own else {
        let message = format!(
            "{} needs labels of {previous}, but its folder does not have the name that nnU-Net gives it",
            folder.display()
        );
        return Err(Error::new(message, hint));
    };
    let model = folder.with_file_name(format!("{trained}__{previous}"));
    if !is_nnunet(&model)? {
        let message = format!(
            "{} needs labels of {previous}, but {} is not a model",
            folder.display(),
            model.display()
        );
        return Err(Error::new(message, hint));
    }
    let output = request.output.join(previous);
    let volumes = VolumeOptions {
        unit: request.volumes.unit,
        nnunet: request.volumes.nnunet.clone(),
        outlier_spacing: request.volumes.outlier_spacing,
        mirror_axes: request.volumes.mirror_axes,
        verbose: request.volumes.verbose,
        bids: request.volumes.bids.clone(),
        ..VolumeOptions::default()
    };
    Ok(PredictRequest { model, volumes, output, ..request.clone() })
}
