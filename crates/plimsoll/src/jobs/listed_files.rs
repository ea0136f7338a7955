//! The files that a data set lists, which no output of a job may replace, wherever they are.

use std::path::{Path, PathBuf};

use plimsoll_data::pictures::ImageDataset;
use plimsoll_data::{FoundData, Layout};
use plimsoll_disk::outputs::{CommandFiles, Input};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::{Event, FoldFolder, RunFolder, Specification, each_event, pairs_in};

use super::image_data;
use super::memory_limit::MemoryLimit;
use crate::context::Context;
use crate::error::Outcome;

/// The names of folders of a data set, a run or a model that hold only its own files. A name that ends in `*` is a beginning.
pub const CLOSED_FOLDERS: &[&str] = &["imagesTr", "labelsTr", "imagesTs", "labelsTs", "fold_*"];

/// The input in words.
pub(super) const DATA_SET: &str = "the data set";

/// The folder of the data set that images belong to: the parent of a folder like `imagesTs`. Its other folders hold inputs as well.
pub fn dataset_around(images: &Path) -> Option<PathBuf> {
    let folder = if images.is_dir() { images } else { images.parent()? };
    let name = folder.file_name()?;
    if !CLOSED_FOLDERS.iter().any(|closed| name == *closed) {
        return None;
    }
    let dataset = folder.parent()?;
    Some(if dataset.as_os_str().is_empty() { PathBuf::from(".") } else { dataset.into() })
}

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

/// Checks that no output is a file of the data sets that models were trained on. Does nothing if no output exists, or for a model without
/// a record of its data set, or whose data set was moved.
///
/// A data set that cannot be listed, because of a fault in it or of the memory limit, is checked as a folder: an output may not lie among
/// its images or be linked from there.
///
/// # Errors
/// Returns an error if an output is one of the files, if the file system cannot tell, or if the records of a model cannot be read.
pub fn expect_apart_from_data<'a>(
    models: impl IntoIterator<Item = &'a Path>,
    outputs: &CommandFiles,
    ram: Option<Bytes>,
) -> Outcome {
    let exists = outputs.files.iter().any(|output| output.path.exists())
        || outputs.folders.iter().any(|output| output.path.is_dir());
    if !exists {
        return Ok(());
    }
    let mut known: Vec<TrainingData> = Vec::new();
    for model in models {
        for data in training_data(model)? {
            if !known.iter().any(|other| other.place == data.place) {
                known.push(data);
            }
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    // The job that follows warns of limits that cannot be read.
    let budget = MemoryLimit::set(ram, 1, &Context::default())?.budget;
    known.iter().try_for_each(|data| data.expect_apart(outputs, &budget))
}

/// The data set that a fold was trained on.
struct TrainingData {
    fold: FoldFolder,
    /// Its folder, list or table.
    place: PathBuf,
}

impl TrainingData {
    /// Reads the record of a fold; `None` if it names no data set.
    fn read(fold: FoldFolder) -> Outcome<Option<TrainingData>> {
        let mut place = None;
        each_event(&fold, |event| {
            if let Event::Start { dataset: Some(dataset), .. } = event.event {
                place = Some(dataset);
            }
        })?;
        Ok(place.map(|place| TrainingData { fold, place }))
    }

    fn expect_apart(&self, outputs: &CommandFiles, budget: &Budget) -> Outcome {
        // The job that follows reports a damaged specification. Its data set is protected in any case.
        let Ok(specification) = Specification::read(&self.fold) else {
            return self.expect_apart_from_folder(outputs);
        };
        let place = self.place.as_path();
        // Lists of a data set that was trained on were allowed to name files elsewhere.
        match FoundData::find(place, &specification.settings.data_options(true), budget) {
            Ok(Some(found)) => Ok(outputs.check_listed(DATA_SET, volume_files(&found))?),
            Ok(None) => match image_data::list(place, &specification.settings, budget) {
                Ok(dataset) => {
                    let table = image_data::is_table(place).then_some(place);
                    Ok(outputs.check_listed(DATA_SET, image_files(&dataset).chain(table))?)
                }
                Err(_) => self.expect_apart_from_folder(outputs),
            },
            Err(_) => self.expect_apart_from_folder(outputs),
        }
    }

    /// The same check where only the place of the data set is known.
    fn expect_apart_from_folder(&self, outputs: &CommandFiles) -> Outcome {
        let input = Input { name: DATA_SET, part: "it", path: self.place.clone(), closed: CLOSED_FOLDERS };
        Ok(CommandFiles { inputs: vec![input], ..outputs.clone() }.check()?)
    }
}

/// The data sets that the folds of a model were trained on; none for a model that is not a run.
fn training_data(model: &Path) -> Outcome<Vec<TrainingData>> {
    if !model.is_dir() {
        return Ok(Vec::new());
    }
    let folds = match FoldFolder::at(model).filter(FoldFolder::is_begun) {
        Some(fold) => vec![fold],
        None => {
            let mut folds = RunFolder::new(model).folds()?;
            for pair in pairs_in(model)? {
                folds.extend(RunFolder::for_pair(model, pair).folds()?);
            }
            folds
        }
    };
    folds.into_iter().filter_map(|fold| TrainingData::read(fold).transpose()).collect()
}
