//! A data set of which names and labels are known, and nothing else is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Dataset, Fold, Splits};
use plimsoll_image::{ImageDataset, LabelSource, Split, TableSettings, folds};
use plimsoll_memory::Budget;
use plimsoll_run::Settings;
use plimsoll_train::RunData;

use super::inspect::{expect_sound, inspect, inspect_images};
use crate::failure::{Failure, Outcome};

/// The file of folds in the folder of a data set.
const SPLITS_FILE: &str = "splits_final.json";

/// How many folds images are divided into, and the seed of the division.
const FOLDS: (usize, u64) = (5, 0);

/// A data set of which names and labels are known.
pub enum Listed {
    /// Volumes with a label for each voxel, as `dataset.json` says.
    Volumes(Dataset),
    /// Images with labels, from a folder for each class or a table.
    Images { name: String, place: PathBuf, dataset: Arc<ImageDataset> },
}

impl Listed {
    /// Opens what is there: a folder with a `dataset.json`, a table, or folders of images.
    pub fn open(place: &Path, settings: &Settings, budget: &Budget) -> Outcome<Listed> {
        let is_table = place.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let has = |name: &str| place.join(name).exists();
        let has_folders = || -> Outcome<bool> {
            let found = plimsoll_disk::read_dir(place).map_err(|error| Failure::of_path(place, &error))?;
            Ok(found.iter().any(|path| path.is_dir()))
        };
        if !is_table && (!place.is_dir() || has("dataset.json") || has("imagesTr") || !has_folders()?) {
            return Ok(Listed::Volumes(Dataset::open(place)?));
        }
        let images = settings.images.clone().unwrap_or_default();
        let dataset = match is_table {
            true => ImageDataset::from_table(place, &images.table.unwrap_or_else(usual_table), budget)?,
            false if images.table.is_some() => {
                let message = format!("`images.table` is set, but {} is a folder", place.display());
                return Err(Failure::new(message, "name the table itself, which ends in .csv"));
            }
            false => ImageDataset::from_folders(place, budget)?,
        };
        let name = place.file_stem().unwrap_or(place.as_os_str()).to_string_lossy().into_owned();
        Ok(Listed::Images { name, place: place.into(), dataset: Arc::new(dataset) })
    }

    /// What is unusual, for its user.
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

    /// Where the data set may have folds of its own.
    pub fn splits_file(&self) -> Option<PathBuf> {
        match self {
            Listed::Volumes(dataset) => Some(dataset.folder.join(SPLITS_FILE)),
            Listed::Images { .. } => None,
        }
    }

    /// The folds where nobody gives others: nnU-Net's of volumes; of images the data set's own division, or five in which each class
    /// has its share and groups stay together.
    pub fn usual_splits(&self) -> Outcome<Splits> {
        let dataset = match self {
            Listed::Volumes(_) => return Ok(Splits::make(&self.names())?),
            Listed::Images { dataset, .. } => dataset,
        };
        let names = |cases: &[usize]| -> Vec<String> {
            cases.iter().filter_map(|at| dataset.cases.get(*at)).map(|case| case.name.clone()).collect()
        };
        let train = dataset.of_split(Some(Split::Train));
        let val = dataset.of_split(Some(Split::Val));
        if !train.is_empty() && !val.is_empty() {
            return Ok(Splits { folds: vec![Fold { train: names(&train), val: names(&val) }] });
        }
        let all: Vec<usize> = (0..dataset.cases.len())
            .filter(|at| dataset.cases.get(*at).is_some_and(|case| case.split != Some(Split::Test)))
            .collect();
        let (count, seed) = FOLDS;
        let made = folds(dataset, &all, count, Some(seed)).map_err(|problem| {
            Failure::new(problem.to_string(), "add images, or divide them into folders train and val")
        })?;
        let folds = made.iter().map(|fold| Fold { train: names(&fold.train), val: names(&fold.val) });
        Ok(Splits { folds: folds.collect() })
    }

    /// The first fold; of volumes all cases, since no plan depends on how they are divided.
    pub fn first_fold(&self) -> Outcome<Fold> {
        match self {
            Listed::Volumes(_) => Ok(Fold::all(&self.names())),
            Listed::Images { .. } => Ok(self.usual_splits()?.fold(0)?.clone()),
        }
    }

    /// Inspects it, and refuses cases that cannot be used. Returns its name as well.
    pub fn inspect(self, threads: usize, budget: &Budget, quiet: bool) -> Outcome<(String, RunData)> {
        match self {
            Listed::Volumes(dataset) => {
                let inspection = inspect(&dataset, threads, budget, quiet)?;
                expect_sound(&inspection)?;
                Ok((dataset.name.clone(), RunData::Volumes { dataset, inspection: Arc::new(inspection) }))
            }
            Listed::Images { name, place, dataset } => {
                let inspection = inspect_images(&place, &dataset, threads, budget, quiet)?;
                if let Some(first) = inspection.problems.iter().find(|problem| problem.kind.is_error()) {
                    let count = inspection.problems.iter().filter(|problem| problem.kind.is_error()).count();
                    let more = if count > 1 {
                        format!(" (and {} more; see `plimsoll inspect`)", count - 1)
                    } else {
                        String::new()
                    };
                    return Err(Failure::new(format!("{first}{more}"), first.hint()));
                }
                Ok((name, RunData::Images { dataset, inspection: Arc::new(inspection) }))
            }
        }
    }
}

/// Columns as they are usually called.
fn usual_table() -> TableSettings {
    TableSettings {
        image: "image".into(),
        label: LabelSource::One("label".into()),
        group: None,
        split: None,
        folder: PathBuf::new(),
        ending: String::new(),
        classes: Vec::new(),
        skip_unlabelled: false,
    }
}
