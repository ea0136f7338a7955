//! The references that predictions are compared with, and what their data set says about them.

use std::error::Error as StdError;
use std::io;
use std::iter::successors;
use std::path::{Path, PathBuf};

use plimsoll_data::{
    DatasetError, FilesMemory, FoundData, Labels, Layout, LengthUnit, PredictedPair, ReferenceMap,
    bids_label, is_predicted, label_ending, pair_predictions, prediction_ending, reference_maps,
    reserve_images,
};
use plimsoll_memory::Budget;
use plimsoll_metrics::CasePaths;
use plimsoll_volume::image_endings;

use super::{AND, EvaluateRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::inspect::census;
use crate::jobs::listed_files;
use crate::jobs::named_values::name_values;

/// Pairs of predictions and references with the description of the references.
pub struct References {
    /// The pairs.
    pub cases: Vec<CasePaths>,
    /// The classes of the data set; `None` if no data set is found, or nothing defines its classes.
    pub labels: Option<Labels>,
    /// The unit of lengths in headers, whatever headers say.
    pub unit: Option<LengthUnit>,
    /// The ending of image names.
    pub ending: String,
    /// The folder that would describe the references.
    pub folder: PathBuf,
    /// The reservations for the names of predictions and references.
    _memory: [FilesMemory; 2],
}

/// The data set that references belong to.
struct Around {
    data: FoundData,
    /// `true` if the request named the data set itself.
    is_root: bool,
}

impl References {
    /// Finds the references of a request: in a data set, in a folder of label maps inside or outside a data set, or in a single file.
    pub fn find(request: &EvaluateRequest, budget: &Budget, context: &Context) -> Outcome<References> {
        let EvaluateRequest { predictions, references, threads, .. } = request;
        // A file of references beside a folder of predictions is a list or a table of cases.
        let is_one = references.is_file() && !predictions.is_dir();
        let memory = [reserve_images(predictions, budget)?, reserve_images(references, budget)?];
        let around = around(request, is_one, budget)?;
        if let Some(Around { data, .. }) = &around {
            context.expect_unlisted(listed_files::DATA_SET, listed_files::volume_files(data))?;
        }
        let labels = match &around {
            None => None,
            Some(Around { data, .. }) => match &data.labels {
                Some(labels) => Some(labels.clone()),
                None if request.has_numbers_alone() => None,
                None => Some(census(data, *threads, budget, context)?.labels(data)?),
            },
        };
        let segments = around.as_ref().and_then(|around| around.data.segments.clone());
        let labels = labels.map(|labels| labels.with_segments(segments));
        let ending = match &around {
            Some(Around { data, .. }) => data.file_ending.clone(),
            None => usual_ending(references)?,
        };
        let case = |prediction: PathBuf, reference: PathBuf| CasePaths {
            prediction,
            reference,
            reference_values: None,
            prediction_values: None,
        };
        let mut cases = match is_one {
            true => vec![case(predictions.clone(), references.clone())],
            false => {
                let pairs = pairs(request, around.as_ref(), &ending)?;
                pairs.into_iter().map(|pair| case(pair.prediction, pair.reference)).collect()
            }
        };
        name_values(&mut cases, labels.as_ref())?;
        let unit = around.as_ref().and_then(|around| around.data.unit);
        Ok(References { cases, labels, unit, ending, folder: folder_of(references, is_one), _memory: memory })
    }
}

/// The folder that has the folder of references.
fn folder_of(references: &Path, is_one: bool) -> PathBuf {
    let above = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let folder = if is_one { above(&above(references)) } else { above(references) };
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }
}

/// The data set that references belong to; `None` without one.
fn around(request: &EvaluateRequest, is_one: bool, budget: &Budget) -> Outcome<Option<Around>> {
    let options = request.data.data_options(request.allow_outside);
    let folder = folder_of(&request.references, is_one);
    let root = (!is_one).then(|| (request.references.clone(), true));
    for (place, is_root) in root.into_iter().chain([(folder, false)]) {
        let is_described = place.join("dataset.json").is_file();
        // One label map may lie anywhere, below a folder of thousands of other files.
        if is_one && !is_described {
            continue;
        }
        match FoundData::find(&place, &options, budget) {
            Ok(Some(data)) if is_root || is_described || has_references(&data, request) => {
                return Ok(Some(Around { data, is_root }));
            }
            Ok(_) => {}
            // A description that cannot be used is not passed over; a guess that fails is.
            Err(error) if is_described || is_root && place.is_file() => return Err(error.into()),
            // An unreadable description may belong to a data set that defines which voxels count.
            Err(error) if is_of_system(&error) => return Err(error.into()),
            // Folders beside plain folders of label maps need not be a data set.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Returns `true` if the operating system reported the error, so that it says nothing about the contents of a folder.
fn is_of_system(error: &(dyn StdError + 'static)) -> bool {
    successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error().is_some())
}

/// Returns `true` if references are label maps of a data set without a description, and predictions are not its images.
fn has_references(data: &FoundData, request: &EvaluateRequest) -> bool {
    let EvaluateRequest { predictions, references, .. } = request;
    let mut images = data.cases.iter().flat_map(|case| case.image_files());
    data.label_maps().any(|(_, path)| path.starts_with(references))
        && !images.any(|image| image.starts_with(predictions))
}

/// Pairs predictions with the label maps of cases, or of a folder.
fn pairs(request: &EvaluateRequest, around: Option<&Around>, ending: &str) -> Outcome<Vec<PredictedPair>> {
    let EvaluateRequest { predictions, references, partial, .. } = request;
    let predicted = present(predictions, prediction_ending(ending), ending)?;
    let named = |(name, path): (&str, &Path)| ReferenceMap { name: name.into(), path: path.into() };
    let maps: Vec<ReferenceMap> = match around {
        None => Vec::new(),
        Some(Around { data, is_root: true }) => {
            let is_bids = matches!(data.layout, Layout::Bids { .. });
            if is_bids && is_predicted(predictions)? {
                return in_bids(data, request, predicted);
            }
            data.label_maps().map(named).collect()
        }
        Some(Around { data, .. }) => {
            let is_here = |(_, path): &(&str, &Path)| path.parent() == Some(references);
            data.label_maps().filter(is_here).map(named).collect()
        }
    };
    // Label maps beside the label maps of training cases, such as a test set's, belong to no case of the data set.
    let maps = match maps.is_empty() {
        true => reference_maps(references, present(references, label_ending(ending), ending)?)?,
        false => maps,
    };
    Ok(pair_predictions(predictions, predicted, references, maps, *partial)?)
}

/// Returns the ending of the label maps in a folder: the usual one, unless only the images' own occurs, as of segmentations of DICOM.
fn present<'a>(folder: &Path, usual: &'a str, of_images: &'a str) -> Outcome<&'a str> {
    let has_none = |ending: &str| Ok::<_, DatasetError>(reference_maps(folder, ending)?.is_empty());
    Ok(if has_none(usual)? && !has_none(of_images)? { of_images } else { usual })
}

/// Pairs predictions that lie in the folders of a derivative of BIDS.
fn in_bids(data: &FoundData, request: &EvaluateRequest, ending: &str) -> Outcome<Vec<PredictedPair>> {
    let EvaluateRequest { predictions, references, partial, .. } = request;
    let (mut pairs, mut missing) = (Vec::new(), Vec::new());
    for case in &data.cases {
        let Some(reference) = case.label.clone() else { continue };
        let name = format!("{}{ending}", bids_label(case).display());
        let prediction = predictions.join(&name);
        match prediction.is_file() {
            true => pairs.push(PredictedPair { case: case.id.clone(), prediction, reference }),
            false => missing.push(name),
        }
    }
    let (predictions, references) = (predictions.clone(), references.clone());
    if pairs.is_empty() {
        return Err(DatasetError::NoPredictions { predictions, references }.into());
    }
    match missing.is_empty() || *partial {
        true => Ok(pairs),
        false => Err(DatasetError::MissingPredictions { predictions, references, missing }.into()),
    }
}

/// The ending of label maps if no data set defines it: the file's own; in a folder `.nii.gz` if any file has it, or else the most frequent
/// ending.
fn usual_ending(references: &Path) -> Outcome<String> {
    // The names of references are reserved.
    let names: Vec<PathBuf> = match references.is_file() {
        true => vec![references.to_path_buf()],
        false => plimsoll_disk::entries(references)
            .and_then(Iterator::collect)
            .map_err(|error| Error::at_path(references, &error))?,
    };
    let count = |ending: &&str| names.iter().filter(|path| path.to_string_lossy().ends_with(*ending)).count();
    let usual = ".nii.gz";
    if count(&usual) > 0 {
        return Ok(usual.into());
    }
    // Of equally frequent endings, the first in the list counts.
    let most = image_endings().map(|ending| (count(&ending), ending)).rev().max_by_key(|(count, _)| *count);
    Ok(most.filter(|(count, _)| *count > 0).map_or(usual, |(_, ending)| ending).into())
}

impl EvaluateRequest {
    /// Returns `true` if classes are named by numbers alone, which need no data set.
    fn has_numbers_alone(&self) -> bool {
        let is_number = |name: &str| name.trim().parse::<u8>().is_ok();
        self.classes.as_ref().is_some_and(|all| all.iter().all(|name| name.split(AND).all(is_number)))
    }
}
