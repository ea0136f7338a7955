//! The training data of a run.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_data::pictures::{ImageCase, ImageDataset, PreparedCache};
use plimsoll_data::{CaseFingerprint, Dataset, Fold, FoldsNeeds, ImageSamples, Inspection};
use plimsoll_memory::{Bytes, Digest, Digester};
use plimsoll_run::{RunConfig, Task};

use crate::TrainError;

/// The training data of a run.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "a run has one, which is not moved in any loop")]
pub enum RunData {
    /// Volumes with a label for each voxel.
    Volumes {
        /// Their files.
        dataset: Dataset,
        /// Their inspection.
        inspection: Arc<Inspection>,
    },
    /// Images with one label each, or with several.
    Images {
        /// The folder or table that lists them.
        place: PathBuf,
        /// Their files and labels.
        dataset: Arc<ImageDataset>,
        /// Their inspection.
        inspection: Arc<plimsoll_data::pictures::Inspection>,
    },
}

/// The facts about the data that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFacts {
    /// Cases.
    pub cases: usize,
    /// Samples that are validated after each epoch.
    pub validated: u64,
    /// All of it, as a cache holds it.
    pub decoded: Bytes,
    /// The largest case of it, as a cache holds it.
    pub largest: Bytes,
    /// The memory of the index, held during the whole run.
    pub index: Bytes,
    /// The memory for decoding the pictures of a case.
    pub decoding: Bytes,
    /// The scratch memory of a thread that makes samples.
    pub scratch: ScratchFacts,
}

/// The scratch memory of a thread that makes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchFacts {
    /// It depends on the patch, and on the voxels of the largest image.
    Patches {
        /// These voxels.
        largest: usize,
    },
    /// So many bytes, whatever goes into the network.
    Fixed(Bytes),
}

impl RunData {
    /// The facts for the plan of a run with these settings and cases.
    ///
    /// # Errors
    /// Returns an error if images cannot be brought to the set size.
    pub fn facts(&self, config: &RunConfig, fold: &Fold) -> Result<DataFacts, TrainError> {
        match self {
            RunData::Volumes { inspection, .. } => {
                let cases = inspection.fingerprint.as_ref().map_or(&[][..], |all| &all.cases);
                let voxels = cases.iter().map(|case| case.geometry.voxel_count());
                Ok(DataFacts {
                    cases: cases.len(),
                    validated: config.validated(fold),
                    decoded: cases.iter().map(CaseFingerprint::decoded_bytes).sum(),
                    largest: cases.iter().map(CaseFingerprint::decoded_bytes).max().unwrap_or(Bytes::ZERO),
                    index: self.index_bytes(),
                    decoding: cases.iter().map(|case| case.decoding_bytes).max().unwrap_or(Bytes::ZERO),
                    scratch: ScratchFacts::Patches { largest: voxels.max().unwrap_or(0) },
                })
            }
            RunData::Images { dataset, inspection, .. } => {
                let task = config.task.classification()?;
                let pipeline = task.pipeline(inspection.largest)?;
                let used = fold.train.len() + fold.val.len();
                let prepared = pipeline.output_length() + PREPARED_BESIDE;
                Ok(DataFacts {
                    cases: dataset.cases.len(),
                    validated: config.validated(fold),
                    decoded: Bytes::from_len(used.saturating_mul(prepared)),
                    largest: Bytes::from_len(prepared),
                    index: self.index_bytes()
                        + ImageSamples::list_bytes(dataset.cases.len())
                        + PreparedCache::list_bytes(dataset.cases.len()),
                    // Each thread decodes in its own scratch.
                    decoding: Bytes::ZERO,
                    scratch: ScratchFacts::Fixed(
                        pipeline.scratch_bytes()?
                            + ImageSamples::partner_bytes(&pipeline, &task.augmentation, &task.answer())?,
                    ),
                })
            }
        }
    }

    /// The memory of the index, which all runs on the data share.
    pub fn index_bytes(&self) -> Bytes {
        match self {
            RunData::Volumes { dataset, inspection } => inspection.index_bytes() + dataset.memory.bytes(),
            RunData::Images { dataset, .. } => dataset.reserved(),
        }
    }

    /// The least memory, beside the process itself, that opening the data takes before anything is planned: inspecting the data set the
    /// first time, and loading the inspection later; beside them the folds are held, after they were read.
    ///
    /// # Errors
    /// Returns an error if what was found of images cannot be written as it is kept.
    pub fn opening_bytes(&self, folds: FoldsNeeds) -> Result<Bytes, TrainError> {
        Ok(match self {
            RunData::Volumes { dataset, inspection } => {
                let inspecting = inspection.least_bytes(dataset) + dataset.memory.bytes() + folds.held;
                inspecting.max(dataset.memory.most_bytes()).max(dataset.memory.bytes() + folds.reading)
            }
            RunData::Images { dataset, inspection, .. } => {
                let inspecting = inspection.least_bytes().map_err(TrainError::Unkept)? + folds.held;
                dataset.reserved() + inspecting.max(folds.reading)
            }
        })
    }

    /// The contents of all cases that are sound, by name: images with their labels.
    pub fn contents(&self) -> HashMap<&str, Digest> {
        match self {
            RunData::Volumes { inspection, .. } => {
                let cases = inspection.fingerprint.iter().flat_map(|all| &all.cases);
                cases.map(|case| (&case.id[..], case.content)).collect()
            }
            RunData::Images { dataset, inspection, .. } => {
                let cases = dataset.cases.iter().zip(&inspection.contents);
                let content = |case: &ImageCase, Digest(pixels): Digest| {
                    let mut content = Digester::default();
                    content.update(&pixels.to_le_bytes());
                    case.labels.iter().for_each(|label| content.update(&label.to_le_bytes()));
                    content.finish()
                };
                cases.filter_map(|(case, pixels)| Some((&case.name[..], content(case, (*pixels)?)))).collect()
            }
        }
    }

    /// The number of training cases of each class of a task. Empty for volumes, which have all classes.
    pub fn class_counts(&self, task: &Task, fold: &Fold) -> Vec<usize> {
        let (RunData::Images { dataset, .. }, Task::Classification(task)) = (self, task) else {
            return Vec::new();
        };
        let known: HashMap<&str, &[u32]> =
            dataset.cases.iter().map(|case| (&case.name[..], &case.labels[..])).collect();
        let mut counts = vec![0; task.labels.len()];
        for name in &fold.train {
            let class = known.get(&name[..]).and_then(|labels| task.class_of(labels));
            if let Some(count) = class.and_then(|class| counts.get_mut(usize::from(class))) {
                *count += 1;
            }
        }
        counts
    }

    /// The classes of a task that no case of a fold's training part has: a network does not learn them.
    pub fn untrained_classes(&self, task: &Task, fold: &Fold) -> Vec<UntrainedClass> {
        let has: HashSet<(&str, usize)> = self.occurrences().into_iter().collect();
        let of = |cases: &[String], class: usize| -> Vec<String> {
            cases.iter().filter(|case| has.contains(&(case.as_str(), class))).cloned().collect()
        };
        let named: Vec<(usize, &str)> = match task {
            // The background is no class that is learned by itself.
            Task::Segmentation(task) => {
                task.dataset.labels.names().iter().map(String::as_str).enumerate().skip(1).collect()
            }
            Task::Classification(task) => {
                task.labels.iter().map(|label| *label as usize).zip(task.classes()).collect()
            }
        };
        let untrained = named.into_iter().filter(|(class, _)| of(&fold.train, *class).is_empty());
        untrained
            .map(|(class, name)| UntrainedClass { name: name.into(), validation: of(&fold.val, class) })
            .collect()
    }

    /// The classes of each case.
    fn occurrences(&self) -> Vec<(&str, usize)> {
        match self {
            RunData::Volumes { inspection, .. } => {
                let cases = inspection.fingerprint.iter().flat_map(|all| &all.cases);
                let of = |case: &'_ CaseFingerprint| {
                    let present = case.label_voxels.iter().enumerate().filter(|(_, voxels)| **voxels > 0);
                    present.map(|(class, _)| class).collect::<Vec<_>>()
                };
                cases.flat_map(|case| of(case).into_iter().map(|class| (&case.id[..], class))).collect()
            }
            RunData::Images { dataset, .. } => {
                let of =
                    |case: &'_ ImageCase| case.labels.iter().map(|label| *label as usize).collect::<Vec<_>>();
                let cases = dataset.cases.iter();
                cases.flat_map(|case| of(case).into_iter().map(|class| (&case.name[..], class))).collect()
            }
        }
    }

    /// The cases of a fold that a task uses: images of its classes; volumes that are not left out.
    pub fn used(&self, task: &Task, fold: &Fold) -> Fold {
        match (self, task) {
            (RunData::Images { dataset, .. }, Task::Classification(task)) => {
                let known: HashMap<&str, &[u32]> =
                    dataset.cases.iter().map(|case| (&case.name[..], &case.labels[..])).collect();
                let is_used = |name: &&String| {
                    known.get(&name[..]).is_some_and(|labels| task.class_of(labels).is_some())
                };
                let of = |names: &[String]| names.iter().filter(is_used).cloned().collect();
                Fold { train: of(&fold.train), val: of(&fold.val) }
            }
            (RunData::Volumes { dataset, .. }, _) => {
                let is_there = |name: &&String| dataset.cases.iter().any(|case| case.id == **name);
                let of = |names: &[String]| names.iter().filter(is_there).cloned().collect();
                Fold { train: of(&fold.train), val: of(&fold.val) }
            }
            (RunData::Images { .. }, _) => fold.clone(),
        }
    }
}

/// A class that no case of a fold's training part has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrainedClass {
    /// Its name.
    pub name: String,
    /// The validation cases that have it.
    pub validation: Vec<String>,
}

/// The bytes that the cache reserves for a prepared image beside its pixels.
const PREPARED_BESIDE: usize = 64;
