//! Classification of the validation images of a trained fold with its final weights, and a drawing of the largest errors.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use plimsoll_data::pictures::{ImageDataset, Largest};
use plimsoll_disk::atomic::sweep;
use plimsoll_image::ImageFile;
use plimsoll_infer::{ImageExplainer, ImagePredictor, InferError};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::Model;
use plimsoll_plan::Backend;
use plimsoll_run::{CheckpointKind, FoldFolder, RunRecord};

use super::memory_limit::MemoryLimit;
use super::mistakes::{Sheet, Worst};
use super::prediction_table::PredictionTable;
use super::validate::keep_or_clear;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// The number of images that are drawn.
const DRAWN: usize = 4;

/// A fold to be validated.
pub struct ImageValidation<'a> {
    /// The folder.
    pub folder: &'a FoldFolder,
    /// The record of the training.
    pub record: &'a RunRecord,
    /// The images.
    pub images: &'a ImageDataset,
    /// The backend that runs programs.
    pub backend: &'a Arc<dyn Backend>,
    /// Threads that compute.
    pub threads: usize,
}

impl ImageValidation<'_> {
    /// Classifies the validation images unless that is done; returns `false` if it was stopped. Results of another checkpoint are removed
    /// first.
    pub fn run(&self, memory: &mut MemoryLimit, context: &Context) -> Outcome<bool> {
        let folder = self.folder.validation();
        let io = |error| Error::at_path(&folder, &error);
        plimsoll_disk::create_dir_all(&folder).map_err(io)?;
        sweep(&folder).map_err(io)?;
        let (table, drawing) = (self.folder.image_predictions(), self.folder.mistakes());
        keep_or_clear(&folder, self.record, &[table.clone(), drawing.clone()])?;
        if table.is_file() {
            return Ok(true);
        }
        let names: BTreeSet<&String> = self.record.specification.cases.val.iter().collect();
        let validated = |place: &usize| names.contains(&self.images.cases[*place].name);
        let (places, left_out): (Vec<usize>, Vec<usize>) = (0..self.images.cases.len()).partition(validated);
        if places.is_empty() {
            return Ok(true);
        }
        let done = memory.lend_overhead(|budget| self.classify(&places, left_out, context, budget))?;
        Ok(done)
    }

    fn classify(
        &self,
        places: &[usize],
        mut left_out: Vec<usize>,
        context: &Context,
        budget: &Budget,
    ) -> Outcome<bool> {
        let (table, drawing) = (self.folder.image_predictions(), self.folder.mistakes());
        let model = Model::open(self.folder.path(), CheckpointKind::Final)?;
        let task = model.config.task.classification()?.clone();
        let classes: Vec<&str> = task.classes().collect();
        let mut largest = Largest::default();
        let mut images: Vec<(&str, &Path)> = Vec::with_capacity(places.len());
        for case in places.iter().map(|place| &self.images.cases[*place]) {
            images.push((&case.name, &case.path));
            // An image that cannot be read is reported when it is classified.
            if let Ok(file) = ImageFile::open(&case.path, &task.pipeline.decode) {
                largest.include(&file)?;
            }
        }
        let count = classes.len();
        let mut found = Mapped::<f64>::zeroed(budget, "probabilities", images.len().saturating_mul(count))?;
        let mut predictor =
            ImagePredictor::new(model.clone(), largest, false, self.threads, self.backend, budget)?;
        let progress = context.work("classifying the validation images", images.len() as u64);
        let see = &mut |done: usize, of: usize| {
            progress.set((done * images.len() / of.max(1)) as u64, String::new());
        };
        let added = predictor.add_probabilities(&images, &mut found, context.stop.flag(), see);
        drop(progress);
        drop(predictor);
        let failed = match added {
            Err(InferError::Interrupted { .. }) => return Ok(false),
            other => other?,
        };
        for (place, problem) in &failed {
            context.warn(problem);
            left_out.push(places[*place]);
        }
        left_out.sort_unstable();
        let all = self.images.cases.len();
        let mut probabilities = Mapped::<f64>::zeroed(budget, "probabilities", all.saturating_mul(count))?;
        for (place, row) in places.iter().zip(found.chunks_exact(count)) {
            probabilities[place * count..][..count].copy_from_slice(row);
        }
        let worst = Worst::find(self.images, &task, &probabilities, &left_out, DRAWN, budget)?;
        if worst.found > 0 {
            let explainer = ImageExplainer::new(model, largest, self.threads, self.backend, budget)?;
            let sheet = Sheet::new(explainer, &worst.mistakes, self.images, context, budget);
            let title = format!(
                "{} of {} images are wrong: the worst {}",
                worst.found,
                places.len() - failed.len(),
                worst.mistakes.len()
            );
            match sheet {
                Err(_) if context.stop.is_asked() => return Ok(false),
                sheet => sheet?.write(&title, &drawing)?,
            }
        }
        // Last: whoever finds it finds all.
        let rows = PredictionTable {
            images: self.images,
            task: &task,
            classes: &classes,
            probabilities: &probabilities,
            pairs: None,
        };
        write(&table, |file| rows.write(&left_out, file))?;
        Ok(true)
    }
}
