//! A data set of which names and labels are known, and nothing else is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::pictures::{ImageDataset, Split, folds};
use plimsoll_data::{Dataset, Fold, FoldsNeeds, FoundData, Inspection, Problem, Severity, Splits};
use plimsoll_memory::Budget;
use plimsoll_run::{FolderUse, ImageSettings, Settings};
use plimsoll_train::RunData;

use super::inspect::{census, expect_sound, inspect, inspect_images};
use super::new_cases::{Traits, TraitsOf};
use super::{image_data, listed_files};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// The file of folds in the folder of a data set.
const SPLITS_FILE: &str = "splits_final.json";

/// The number of folds that images are divided into, and the seed of the division.
const FOLDS: (usize, u64) = (5, 0);

/// A data set of which names and labels are known.
#[allow(clippy::large_enum_variant, reason = "a command has one")]
pub enum Listed {
    /// Volumes with a label for each voxel, as `dataset.json` says.
    Volumes(Dataset),
    /// Images with labels, from a folder for each class or a table.
    Images {
        /// The name of the data set.
        name: String,
        /// Its folder or table.
        place: PathBuf,
        /// The images and their labels.
        dataset: Arc<ImageDataset>,
    },
}

/// The options for opening a data set.
pub struct Opening<'a> {
    /// The settings that describe the data set.
    pub settings: &'a Settings,
    /// Allows lists to name files outside the data set's folder.
    pub allow_outside: bool,
    /// Label maps that are read at a time, where nothing says what their values are.
    pub threads: usize,
    /// Sees how far label maps are read.
    pub context: &'a Context,
}

impl Listed {
    /// Opens a data set: volumes with label maps in any known layout, or else images with classes, in a table or in folders.
    pub fn open(place: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Listed> {
        let settings = opening.settings;
        let options = settings.data_options(opening.allow_outside);
        if let Some(found) = FoundData::find(place, &options, budget)? {
            return Listed::from_volumes(found, opening, budget);
        }
        let dataset = image_data::list(place, settings, budget)?;
        opening.context.expect_unlisted(listed_files::DATA_SET, listed_files::image_files(&dataset))?;
        let name = place.file_stem().unwrap_or(place.as_os_str()).to_string_lossy().into_owned();
        Ok(Listed::Images { name, place: place.into(), dataset: Arc::new(dataset) })
    }

    /// Opens the volumes of a MONAI data list in memory, with paths that are relative to a folder.
    pub fn open_list(text: &str, folder: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Listed> {
        let options = opening.settings.data_options(opening.allow_outside);
        Listed::from_volumes(FoundData::from_list(text, folder, &options, budget)?, opening, budget)
    }

    /// Volumes with the classes that a description names, or else the values of their label maps.
    fn from_volumes(mut found: FoundData, opening: &Opening<'_>, budget: &Budget) -> Outcome<Listed> {
        opening.context.expect_unlisted(listed_files::DATA_SET, listed_files::volume_files(&found))?;
        let labels = match found.labels.clone() {
            Some(labels) => labels,
            None => {
                let census = census(&found, opening.threads, budget, opening.context)?;
                let least = census.least_bytes().map_err(|error| Error::at_path(&found.folder, &error))?;
                found.memory.count_step(least);
                found.warnings.extend(census.warning());
                census.labels(&found)?
            }
        };
        Ok(Listed::Volumes(found.with_labels(labels)))
    }

    /// The use of a folder in which a network for it is trained.
    pub fn folder_use(&self) -> FolderUse {
        match self {
            Listed::Volumes(_) => FolderUse::Segmentation,
            Listed::Images { .. } => FolderUse::Classification,
        }
    }

    /// Warnings for the user.
    pub fn warnings(&self) -> &[String] {
        match self {
            Listed::Volumes(dataset) => &dataset.warnings,
            Listed::Images { dataset, .. } => &dataset.warnings,
        }
    }

    /// The names of the cases that folds are of: of images, those that are not set aside for the end.
    pub fn names(&self) -> Vec<String> {
        match self {
            Listed::Volumes(dataset) => dataset.cases.iter().map(|case| case.id.clone()).collect(),
            Listed::Images { dataset, .. } => {
                let cases = dataset.cases.iter().filter(|case| case.split != Some(Split::Test));
                cases.map(|case| case.name.clone()).collect()
            }
        }
    }

    /// The groups and classes of images, by name; empty of volumes, which have neither.
    pub fn traits(&self) -> TraitsOf<'_> {
        match self {
            Listed::Volumes(_) => TraitsOf::new(),
            Listed::Images { dataset, .. } => {
                let named = dataset.cases.iter().map(|case| {
                    let traits = Traits { group: case.group.as_deref(), labels: &case.labels };
                    (case.name.as_str(), traits)
                });
                named.collect()
            }
        }
    }

    /// The file in which the data set may have folds of its own.
    pub fn splits_file(&self) -> Option<PathBuf> {
        match self {
            Listed::Volumes(dataset) => Some(dataset.folder.join(SPLITS_FILE)),
            Listed::Images { .. } => None,
        }
    }

    /// The folds where nobody gives others: of volumes those that a list gives its cases, or else nnU-Net's; of images the data set's own division, or five in which each class
    /// has its share and groups stay together.
    pub fn usual_splits(&self, budget: &Budget) -> Outcome<Splits> {
        Ok(self.made_splits()?.reserved(budget)?)
    }

    /// The memory of the folds that a run on it has where its user gives no others.
    pub fn own_folds_needs(&self, budget: &Budget) -> Outcome<FoldsNeeds> {
        self.own_splits(budget)?.map_or(Ok(FoldsNeeds::default()), |splits| folds_needs(&splits))
    }

    /// The folds that a run on it has where its user gives no others; `None` if all that can be trained is the fold `all`.
    pub fn own_splits(&self, budget: &Budget) -> Outcome<Option<Splits>> {
        match self.splits_file().filter(|path| path.is_file()) {
            Some(path) => Ok(Some(Splits::read(path, &self.names(), budget)?)),
            None => Ok(self.made_splits().ok()),
        }
    }

    fn made_splits(&self) -> Outcome<Splits> {
        let dataset = match self {
            Listed::Volumes(dataset) if !dataset.folds.is_empty() => {
                return Ok(Splits::from_numbers(&dataset.folds)?);
            }
            Listed::Volumes(_) => return Ok(Splits::make(&self.names())?),
            Listed::Images { dataset, .. } => dataset,
        };
        if let Some(own) = own_division(dataset) {
            return Ok(vec![own].into());
        }
        let all: Vec<usize> = (0..dataset.cases.len())
            .filter(|at| dataset.cases.get(*at).is_some_and(|case| case.split != Some(Split::Test)))
            .collect();
        let (count, seed) = FOLDS;
        let made = folds(dataset, &all, count, Some(seed)).map_err(|problem| {
            Error::new(problem.to_string(), "add images, or divide them into folders train and val")
        })?;
        let folds = made
            .iter()
            .map(|fold| Fold { train: names_of(dataset, &fold.train), val: names_of(dataset, &fold.val) });
        Ok(folds.collect::<Vec<Fold>>().into())
    }

    /// The fold of a request that names none: all cases, which then train and validate; of images that are divided, their own division.
    pub fn unnamed_fold(&self) -> Fold {
        let own = match self {
            Listed::Volumes(_) => None,
            Listed::Images { dataset, .. } => own_division(dataset),
        };
        own.unwrap_or_else(|| Fold::all(&self.names()))
    }

    /// The first fold; of volumes all cases, since no plan depends on how they are divided.
    pub fn first_fold(&self) -> Outcome<Fold> {
        match self {
            Listed::Volumes(_) => Ok(Fold::all(&self.names())),
            Listed::Images { .. } => Ok(self.made_splits()?.fold(0)?.clone()),
        }
    }

    /// Inspects it, and refuses cases that cannot be used, or leaves them out.
    pub fn inspect(
        self,
        &Inspecting { threads, skip_bad_cases, images }: &Inspecting<'_>,
        budget: &Budget,
        context: &Context,
    ) -> Outcome<InspectedData> {
        match self {
            Listed::Volumes(mut dataset) => {
                let inspection = inspect(&dataset, threads, budget, context)?;
                let mut skipped = Vec::new();
                match skip_bad_cases {
                    true => skipped = leave_out(&mut dataset, &inspection),
                    false => expect_sound(&inspection)?,
                }
                if dataset.cases.is_empty() && !skipped.is_empty() {
                    let message =
                        format!("no case of {} is usable; {}", dataset.folder.display(), skipped[0]);
                    return Err(Error::new(message, "repair the files that ‹job inspect› names"));
                }
                inspection.choose_masks(&mut dataset.channels);
                let name = dataset.name.clone();
                let data = RunData::Volumes { dataset, inspection: Arc::new(inspection) };
                Ok(InspectedData { name, data, skipped })
            }
            Listed::Images { .. } if skip_bad_cases => Err(Error::new(
                "‹skip_bad_cases› applies to volumes, but this data set has images",
                "move the files out of the data set that are named without it",
            )),
            Listed::Images { name, place, dataset } => {
                let inspection = inspect_images(&place, &dataset, images, threads, budget, context)?;
                if let Some(first) = inspection.problems.iter().find(|problem| problem.kind.is_error()) {
                    let count = inspection.problems.iter().filter(|problem| problem.kind.is_error()).count();
                    let more = if count > 1 {
                        format!(" (and {} more; see ‹job inspect›)", count - 1)
                    } else {
                        String::new()
                    };
                    return Err(Error::new(format!("{first}{more}"), first.remedy()));
                }
                let data = RunData::Images { place, dataset, inspection: Arc::new(inspection) };
                Ok(InspectedData { name, data, skipped: Vec::new() })
            }
        }
    }
}

/// The names of images, by their places in the data set.
fn names_of(dataset: &ImageDataset, cases: &[usize]) -> Vec<String> {
    cases.iter().filter_map(|at| dataset.cases.get(*at)).map(|case| case.name.clone()).collect()
}

/// The division of images into those to train on and those to validate with, if the data set has one.
fn own_division(dataset: &ImageDataset) -> Option<Fold> {
    let of = |split| names_of(dataset, &dataset.in_split(Some(split)));
    let (train, val) = (of(Split::Train), of(Split::Val));
    (!train.is_empty() && !val.is_empty()).then_some(Fold { train, val })
}

/// The memory of folds.
pub fn folds_needs(splits: &Splits) -> Outcome<FoldsNeeds> {
    splits.needs().map_err(|error| Error::new(format!("the folds cannot be written: {error}"), ""))
}

/// The options of an inspection.
pub struct Inspecting<'a> {
    /// Threads that compute.
    pub threads: usize,
    /// Leaves cases out that cannot be used.
    pub skip_bad_cases: bool,
    /// The decoding and preparation of images.
    pub images: &'a ImageSettings,
}

/// A data set that was inspected.
pub struct InspectedData {
    /// The name.
    pub name: String,
    /// The data set.
    pub data: RunData,
    /// Cases that were left out, and why.
    pub skipped: Vec<String>,
}

/// Removes cases with an error from a data set. Returns a line about each.
fn leave_out(dataset: &mut Dataset, inspection: &Inspection) -> Vec<String> {
    let is_error = |problem: &&Problem| problem.severity == Severity::Error;
    let errors: Vec<&Problem> = inspection.problems.iter().filter(is_error).collect();
    dataset.cases.retain(|case| !errors.iter().any(|error| error.case == case.id));
    errors.iter().map(|error| format!("left out: {error}")).collect()
}
