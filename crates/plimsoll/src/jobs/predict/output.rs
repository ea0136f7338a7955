//! The output of a prediction: the folder that labels go to.

use std::path::{Path, PathBuf};

use plimsoll_data::prediction_ending;
use plimsoll_infer::Destination;
use plimsoll_memory::Budget;
use plimsoll_run::FolderUse;

use super::cascade::stage_folder;
use super::model::Opened;
use super::record::Record;
use super::record_files::RecordFiles;
use super::request::PredictRequest;
use crate::error::{Error, Outcome};

/// Refuses what can be predicted with no model.
pub(super) fn expect_sound(request: &PredictRequest, budget: &Budget) -> Outcome {
    keep_apart(&request.input, &request.output)?;
    FolderUse::Predictions.expect_in(&request.output)?;
    // Read again when it is replaced: until then its memory is the network's.
    Record::read(&RecordFiles::for_call(&request.output, request.part), budget).map(|_| ())
}

/// Refuses to write label maps into the folder of the images: they would be taken for images the next time, or stand in their
/// place.
fn keep_apart(input: &Path, output: &Path) -> Outcome {
    let same = match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        // A missing output is another folder, and unreadable paths are reported when they are read.
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let message = format!("{} is the folder of the images: labels would replace them", output.display());
    Err(Error::new(message, "write the labels to another folder with ‹output›"))
}

/// The destination of a request's predictions.
pub(super) fn destination(request: &PredictRequest, opened: &Opened, folder: PathBuf) -> Destination {
    Destination {
        folder,
        names: request.volumes.names(),
        ending: prediction_ending(&opened.model.file_ending).into(),
        overwrite: request.overwrite,
        probabilities: request.volumes.probabilities,
        earlier: stage_folder(request, opened),
    }
}
