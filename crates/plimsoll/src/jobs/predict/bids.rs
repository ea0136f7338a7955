//! The images of a data set of BIDS.

use std::path::Path;

use plimsoll_data::{FoundImages, bids_images};
use plimsoll_memory::Budget;
use plimsoll_models::SegmentationModel;

use crate::error::{Error, Outcome};

/// The ending of BIDS images and label maps.
pub(super) const ENDING: &str = ".nii.gz";

/// The images of a data set that a model sees.
pub(super) fn images(
    input: &Path,
    suffixes: &[String],
    model: &SegmentationModel,
    budget: &Budget,
) -> Outcome<FoundImages> {
    let named: Vec<String> = match suffixes {
        [] => model.channels.iter().map(|channel| channel.name.clone()).collect(),
        said => said.to_vec(),
    };
    if named.len() != model.channels.len() {
        let (found, expected) = (named.len(), model.channels.len());
        let message = format!("‹bids› names {found} suffixes, but the model has {expected} channels");
        return Err(Error::new(message, "name one for each channel, in their order: ‹bids=T1w,FLAIR›"));
    }
    bids_images(input, &named, budget).map_err(|problem| match suffixes {
        [] => {
            let hint = "set the endings of the names of images, one for each channel: ‹bids=T1w,FLAIR›";
            Error::new(problem.to_string(), hint)
        }
        _ => problem.into(),
    })
}
