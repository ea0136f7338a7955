//! The stages of a task on an image: those that find where to look, and the one that looks there.

use std::path::Path;
use std::sync::Arc;

use plimsoll_data::{Case, Preparation, ZoomSteps, ZoomedImage};
use plimsoll_infer::{CaseRequest, PartLabels, PredictOptions, PredictedCase, Predictor, box_of_labels};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::SegmentationModel;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel};
use plimsoll_models::total_segmentator::{Change, Crop, ModelSize, PartModel, SegmentatorTask, TaskModels};
use plimsoll_run::FoldName;
use plimsoll_volume::{Spacing, VolumeFile, VoxelBox};

use super::parts::PartsFolder;
use super::shared::{Images, Shared, View};
use super::{Job, STEPS, SegmentRequest};
use crate::context::Progress;
use crate::error::Outcome;
use crate::jobs::predict::plan::{ring_line, strips_line};

/// The memory of a change of labels for each voxel of the grid: two bytes of the label map and nine of a box that may cover all of it.
const BYTES_OF_A_VOXEL: u64 = 11;

/// Returns the least memory limit for changing labels on the grid of an image beside the overhead of the process.
pub(super) fn least_limit(image: &ZoomedImage, overhead: Bytes) -> Bytes {
    let voxels = image.shape().iter().fold(1u64, |product, extent| product.saturating_mul(*extent as u64));
    overhead + Bytes(voxels.saturating_mul(BYTES_OF_A_VOXEL)) + Bytes::mib(1)
}

/// A task that is run on an image, or a part of it.
pub(super) struct Stage<'a> {
    pub(super) name: &'a str,
    pub(super) task: &'a SegmentatorTask,
    pub(super) models: &'a TaskModels,
    /// The spacing that images are resampled to before the steps of the networks; `None` if these steps resample.
    pub(super) spacing: Option<Spacing>,
    /// The box of the stored image that is looked at.
    pub(super) within: Option<VoxelBox>,
    /// The labels that are wanted; all if none is named.
    pub(super) subset: &'a [String],
    /// The changes of labels on the grid of the networks.
    pub(super) changes: Vec<Change>,
}

impl Stage<'_> {
    /// The models that have any of the labels that are wanted.
    pub(super) fn parts(&self) -> Vec<&PartModel> {
        let has_any = |part: &&PartModel| self.subset.is_empty() || self.task.has_any(part, self.subset);
        self.models.parts.iter().filter(has_any).collect()
    }

    /// Returns `true` if networks read a file of their own instead of the stored image.
    pub(super) fn is_in_a_file(&self) -> bool {
        self.spacing.is_none() || !self.changes.is_empty()
    }
}

impl Job<'_> {
    /// The labels of the task on the stored grid; `None` if the region of interest is empty.
    pub(super) fn look(
        &self,
        case: &Case,
        parts: &PartsFolder,
        shared: &mut Shared,
        most: &mut Bytes,
    ) -> Outcome<Option<Vec<PartLabels>>> {
        let within = match self.crop() {
            None => None,
            Some(crop) => match self.find(self.name, &crop, case, shared, most)? {
                None => return Ok(None),
                found => found,
            },
        };
        let stage = Stage {
            name: self.name,
            task: self.task,
            models: self.models,
            spacing: self.spacing(),
            within,
            subset: &self.request.subset,
            changes: self.changes(),
        };
        let mode = self.request.mode;
        if !self.is_shareable() {
            return self.labels(&stage, case, parts, &mut shared.images(), most).map(Some);
        }
        let find =
            |folder: &PartsFolder, images: &mut Images<'_>| self.labels(&stage, case, folder, images, most);
        Ok(Some(shared.labels(self.name, mode, find)?.to_vec()))
    }

    /// Returns `true` if the labels of the task are those that it has where it finds a region of interest for another task.
    pub(super) fn is_shareable(&self) -> bool {
        let SegmentRequest { subset, robust_crop, by_logits, remove_small_blobs, size, .. } = self.request;
        let is_changed = *robust_crop || *by_logits || remove_small_blobs.is_some() || self.body.is_some();
        !is_changed && subset.is_empty() && *size == ModelSize::Big
    }

    /// The spacing that images are resampled to before the steps of the task's networks; `None` if these steps resample.
    pub(super) fn spacing(&self) -> Option<Spacing> {
        self.models.spacing().filter(|_| !self.request.by_logits)
    }

    /// The changes of the labels of the task: its own, and the requested ones.
    pub(super) fn changes(&self) -> Vec<Change> {
        let asked = self.request.remove_small_blobs.map(Change::remove_small_blobs);
        self.models.changes.iter().cloned().chain(asked).collect()
    }

    /// The box that the image of the task `name` is cut to; `None` if the region of interest is empty.
    fn find(
        &self,
        name: &str,
        crop: &Crop,
        case: &Case,
        shared: &mut Shared,
        most: &mut Bytes,
    ) -> Outcome<Option<VoxelBox>> {
        let Some(image) = case.images.first() else { return Ok(None) };
        let (name, mode) = crop.task_and_mode(name);
        let task = SegmentatorTask::named(&name)?;
        let models = task.models(&name, mode)?;
        let within = match &models.crop {
            None => None,
            Some(own) => {
                // As TotalSegmentator does it: the whole image where a task is to find another's box, and its own is around nothing.
                let whole = VoxelBox::whole(VolumeFile::open(&image.path)?.geometry().shape());
                Some(self.find(&name, own, case, shared, most)?.unwrap_or(whole))
            }
        };
        let changes = models.changes.clone();
        let spacing = models.spacing();
        let stage = Stage { name: &name, task, models, spacing, within, subset: &[], changes };
        let find =
            |folder: &PartsFolder, images: &mut Images<'_>| self.labels(&stage, case, folder, images, most);
        let rough = shared.labels(&name, mode, find)?;
        self.box_around(&image.path, rough, crop, task)
    }

    /// The labels of each model of a task, in files.
    pub(super) fn labels(
        &self,
        stage: &Stage<'_>,
        case: &Case,
        parts: &PartsFolder,
        images: &mut Images<'_>,
        most: &mut Bytes,
    ) -> Outcome<Vec<PartLabels>> {
        let needed = stage.parts();
        let zoomed = match stage.is_in_a_file() {
            true => Some(self.zoomed(stage, case, images)?),
            false => None,
        };
        let (case, within) = zoomed.as_ref().map_or((case, stage.within), |zoomed| (&zoomed.case, None));
        let spacing = stage.spacing.filter(|_| zoomed.is_none());
        let mut found = Vec::with_capacity(needed.len());
        for (number, part) in needed.iter().enumerate() {
            let folder = stage.models.folder(part, self.size_of(stage.name), &self.weights)?;
            let model = open(&folder, stage.models, spacing, &self.budget)?;
            let file = parts.file(&part.dataset.to_string());
            let is_whole_body = stage.name.starts_with("total");
            let options = PredictOptions { step: STEPS[usize::from(!is_whole_body)], ..self.request.options };
            let mut predictor =
                Predictor::new(model, options, Arc::clone(&self.request.backend), &self.budget)?;
            let what = format!("{}, {} {} of {}", case.id, stage.name, number + 1, needed.len());
            let mut bar: Option<Progress> = None;
            let request = CaseRequest { case, earlier: None, labels: &file, probabilities: None, within };
            let stop = self.context.stop.flag();
            let mut observe = |windows: plimsoll_infer::Progress| {
                let bar = bar.get_or_insert_with(|| self.context.work(what.clone(), windows.of as u64));
                bar.set(windows.windows as u64, String::new());
            };
            let PredictedCase { plan, .. } = match &zoomed {
                Some(_) => predictor.predict(&request, stop, &mut observe)?,
                None => {
                    let seen = images.seen(View { within, spacing: stage.spacing });
                    predictor.predict_shared(&request, seen, stop, &mut observe)?
                }
            };
            drop(bar);
            // Not reported if the request sets the storage of sums.
            let unasked = ring_line(&plan).filter(|_| self.request.options.ring.is_none());
            if let Some(line) = unasked {
                self.context.warn(format_args!("{what}: {line}"));
            }
            if let Some(line) = strips_line(&plan) {
                self.context.note(format_args!("{what}: {line}"));
            }
            *most = (*most).max(plan.total_bytes);
            found.push(PartLabels { file, lookup: stage.task.lookup(part)? });
        }
        match zoomed {
            None => Ok(found),
            Some(zoomed) => {
                if !stage.changes.is_empty() {
                    *most = (*most).max(least_limit(&zoomed.image, self.overhead_bytes()));
                }
                self.changed(stage, &zoomed, &found, parts)
            }
        }
    }

    /// The box of the stored image around some labels and a margin; `None` if no voxel has them.
    fn box_around(
        &self,
        image: &Path,
        rough: &[PartLabels],
        crop: &Crop,
        task: &SegmentatorTask,
    ) -> Outcome<Option<VoxelBox>> {
        let geometry = *VolumeFile::open(image)?.geometry();
        let mut found: Option<VoxelBox> = None;
        for part in rough {
            let wanted: Vec<u8> = crop.to.iter().filter_map(|class| task.value(class)).collect();
            let values = (0..).zip(&part.lookup).filter(|(_, value)| wanted.contains(value));
            let values: Vec<u16> = values.map(|(value, _)| value).collect();
            let of_part = box_of_labels(&part.file, &values, &self.budget, self.context.stop.flag())?;
            found = match (found, of_part) {
                (Some(one), Some(other)) => Some(one.around(&other)),
                (one, other) => one.or(other),
            };
        }
        let spacing = geometry.spacing().0;
        Ok(found.map(|found| {
            // In whole voxels, as nibabel has the spacing.
            let margin = spacing.map(|length| (crop.margin_mm / f64::from(length as f32)) as usize);
            let last = |axis: usize| {
                (found.start[axis] + found.shape[axis] + margin[axis]).min(geometry.shape()[axis])
            };
            VoxelBox::between(
                [0, 1, 2].map(|axis| found.start[axis].saturating_sub(margin[axis])),
                [0, 1, 2].map(last),
            )
        }))
    }
}

/// Opens a model that sees images resampled to a spacing, or prepared by nnU-Net if it is `None`.
pub(super) fn open(
    folder: &Path,
    models: &TaskModels,
    spacing: Option<Spacing>,
    budget: &Budget,
) -> Outcome<SegmentationModel> {
    let folds = models.folds.iter().flatten().map(|fold| FoldName::Number(*fold as usize)).collect();
    // Its own trainers change how models are trained, none the network.
    let trainer = Some("nnUNetTrainer".to_string());
    let choice = NnUnetChoice { folds, trainer, ..NnUnetChoice::default() };
    let mut model = NnUnetModel::open(folder, &choice, budget)?.model;
    model.preparation = match (model.preparation, spacing) {
        (Preparation::NnUnet(then), Some(spacing)) => Preparation::Zoomed(ZoomSteps { spacing, then }),
        (other, _) => other,
    };
    Ok(model)
}
