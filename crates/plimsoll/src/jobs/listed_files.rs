//! The files that a data set lists, which no output of a job may replace, wherever they are.

use std::path::{Path, PathBuf};

use plimsoll_data::pictures::ImageDataset;
use plimsoll_data::{FoundData, Layout};
use plimsoll_disk::outputs::CommandFiles;
use plimsoll_memory::Bytes;
use plimsoll_run::{Event, FoldFolder, RunFolder, Specification, each_event};

use super::image_data;
use super::line::Line;
use crate::context::Context;
use crate::error::Outcome;

/// The input in words.
pub(super) const DATA_SET: &str = "the data set";

/// The images, the label maps and the list or table of a data set of volumes.
pub(super) fn volume_files(found: &FoundData) -> impl Iterator<Item = &Path> {
    let list = match &found.layout {
        Layout::List { file } | Layout::Table { file, .. } => Some(file.as_path()),
        Layout::NnUnet | Layout::Pairs { .. } | Layout::Bids { .. } | Layout::Cases { .. } => None,
    };
    found.cases.iter().chain(&found.test_cases).flat_map(|case| case.files()).chain(list)
}

/// The images of a data set of pictures.
pub(super) fn image_files(dataset: &ImageDataset) -> impl Iterator<Item = &Path> {
    dataset.cases.iter().map(|case| case.path.as_path())
}

/// Checks that no output is a file that the data set of a run lists. Does nothing where no output exists, `run` is no run, or its data set
/// is not where it was.
///
/// # Errors
/// If one is, or the limit leaves no room for the names of the data set's files.
pub fn expect_apart_from_data(run: &Path, outputs: &CommandFiles, ram: Option<Bytes>) -> Outcome {
    let is_there = outputs.files.iter().any(|output| output.path.exists())
        || outputs.folders.iter().any(|output| output.path.is_dir());
    if !is_there {
        return Ok(());
    }
    let Some((fold, place)) = trained_on(run) else { return Ok(()) };
    let Ok(specification) = Specification::read(&fold) else { return Ok(()) };
    // The job that follows warns of limits that cannot be read.
    let budget = Line::draw(ram, 1, &Context::default())?.budget;
    // Lists of a data set that was trained on were allowed to name files elsewhere.
    match FoundData::find(&place, &specification.settings.data_options(true), &budget) {
        Ok(Some(found)) => Ok(outputs.check_listed(DATA_SET, volume_files(&found))?),
        Ok(None) => match image_data::list(&place, &specification.settings, &budget) {
            Ok(dataset) => {
                let table = image_data::is_table(&place).then_some(place.as_path());
                Ok(outputs.check_listed(DATA_SET, image_files(&dataset).chain(table))?)
            }
            Err(_) => Ok(()),
        },
        // The job that reads the data set reports its faults.
        Err(_) => Ok(()),
    }
}

/// A fold of a run and the data set that it was trained on; `None` if nothing says what that was.
fn trained_on(run: &Path) -> Option<(FoldFolder, PathBuf)> {
    let folds = match FoldFolder::at(run) {
        Some(fold) => vec![fold],
        None => RunFolder::new(run).folds().ok()?,
    };
    folds.into_iter().find_map(|fold| {
        let mut place = None;
        each_event(&fold, |event| {
            if let Event::Start { dataset: Some(dataset), .. } = event.event {
                place = Some(dataset);
            }
        })
        .ok()?;
        Some((fold, place?))
    })
}
