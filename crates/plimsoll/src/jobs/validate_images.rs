//! Classification of the validation images of a trained fold with its final weights, and a drawing of the largest errors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use plimsoll_data::pictures::{ImageDataset, Largest};
use plimsoll_disk::atomic::sweep;
use plimsoll_image::{DecodeOptions, ImageFile};
use plimsoll_infer::{ImageExplainer, ImagePredictor, InferError};
use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_models::Model;
use plimsoll_plan::Backend;
use plimsoll_run::{CheckpointKind, FoldFolder, RunRecord};
use serde::{Deserialize, Serialize};

use super::memory_limit::MemoryLimit;
use super::mistakes::{Sheet, Worst};
use super::prediction_table::PredictionTable;
use super::train::Validated;
use super::validate::keep_or_clear;
use super::validating_ranks::ValidatingRanks;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// The number of images that are drawn.
const DRAWN: usize = 4;

/// The result of an image.
#[derive(Default, Serialize, Deserialize)]
struct Row {
    /// The probabilities of the classes.
    probabilities: Vec<f64>,
    /// The reason why the image cannot be read; its probabilities are zeros then.
    problem: Option<String>,
}

/// The results of the images of a rank.
struct Rows {
    all: Vec<Row>,
    /// The reservation of their memory; `None` without results.
    _memory: Option<Reservation>,
}

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
    /// Classifies the validation images unless that is done, each rank a part of them. Results of another checkpoint are removed first.
    pub(super) fn run(
        &self,
        memory: &mut MemoryLimit,
        ranks: &mut ValidatingRanks<'_>,
        context: &Context,
    ) -> Outcome<Validated> {
        let names: BTreeSet<&String> = self.record.specification.cases.val.iter().collect();
        let validated = |place: &usize| names.contains(&self.images.cases[*place].name);
        let (places, left_out): (Vec<usize>, Vec<usize>) = (0..self.images.cases.len()).partition(validated);
        let is_first = ranks.is_first();
        let done = if is_first { Validated::Images } else { Validated::Elsewhere };
        let has_work = is_first && !self.is_done()? && !places.is_empty();
        if !ranks.begin(has_work)? {
            return Ok(done);
        }
        memory.lend_overhead(|budget| {
            let own = self.classify_own(&ranks.own(&places), ranks, context, budget)?;
            if ranks.finish(own.is_none())? {
                return Ok(Validated::Stopped);
            }
            let Rows { all, _memory: memory } = own.ok_or_else(|| {
                let problem = "this rank was stopped, and the first one does not know of it";
                Error::new(problem, "this is a bug: report it with the command and this message")
            })?;
            let merged = ranks.merge(all, budget)?;
            drop(memory);
            match merged {
                Some(merged) if !self.write(&places, left_out, &merged.all, context, budget)? => {
                    Ok(Validated::Stopped)
                }
                _ => Ok(done),
            }
        })
    }

    /// Prepares the folder of the results. Returns `true` if they are of this checkpoint.
    fn is_done(&self) -> Outcome<bool> {
        let folder = self.folder.validation();
        let io = |error| Error::at_path(&folder, &error);
        plimsoll_disk::create_dir_all(&folder).map_err(io)?;
        sweep(&folder).map_err(io)?;
        let (table, drawing) = (self.folder.image_predictions(), self.folder.mistakes());
        keep_or_clear(&folder, self.record, &[table.clone(), drawing])?;
        Ok(table.is_file())
    }

    fn model(&self) -> Outcome<Model> {
        Ok(Model::open(self.folder.path(), CheckpointKind::Final)?)
    }

    /// The largest of some images. One that cannot be read is reported when it is classified.
    fn largest(&self, places: &[usize], decode: &DecodeOptions) -> Outcome<Largest> {
        let mut largest = Largest::default();
        for case in places.iter().map(|place| &self.images.cases[*place]) {
            if let Ok(file) = ImageFile::open(&case.path, decode) {
                largest.include(&file)?;
            }
        }
        Ok(largest)
    }

    /// Classifies the images of this rank; `None` if it was stopped.
    fn classify_own(
        &self,
        places: &[usize],
        ranks: &mut ValidatingRanks<'_>,
        context: &Context,
        budget: &Budget,
    ) -> Outcome<Option<Rows>> {
        let model = self.model()?;
        let task = model.config.task.classification()?.clone();
        let count = task.classes().count();
        let cases = places.iter().map(|place| &self.images.cases[*place]);
        let images: Vec<(&str, &Path)> = cases.map(|case| (&*case.name, &*case.path)).collect();
        let numbers = images.len().saturating_mul(count);
        let held = images.len().saturating_mul(size_of::<Row>()) + numbers.saturating_mul(size_of::<f64>());
        let memory = budget.reserve("probabilities", Bytes::from_len(held))?;
        let mut found = Mapped::<f64>::zeroed(budget, "probabilities", numbers)?;
        let largest = self.largest(places, &task.pipeline.decode)?;
        let mut predictor = ImagePredictor::new(model, largest, false, self.threads, self.backend, budget)?;
        let progress = context.work("classifying the validation images", images.len() as u64);
        let mut problem = None;
        let see = &mut |done: usize, of: usize| {
            progress.set((done * images.len() / of.max(1)) as u64, String::new());
            if problem.is_none()
                && let Err(error) = ranks.exchange()
            {
                problem = Some(error);
                context.stop.ask();
            }
        };
        let added = predictor.add_probabilities(&images, &mut found, context.stop.flag(), see);
        drop(progress);
        if let Some(problem) = problem {
            return Err(problem);
        }
        let failed = match added {
            Err(InferError::Interrupted { .. }) => return Ok(None),
            other => other?,
        };
        let mut problems: BTreeMap<usize, String> =
            failed.into_iter().map(|(place, problem)| (place, problem.to_string())).collect();
        let rows = found.chunks_exact(count).enumerate();
        let row = |(place, row): (usize, &[f64])| Row {
            probabilities: row.to_vec(),
            problem: problems.remove(&place),
        };
        Ok(Some(Rows { all: rows.map(row).collect(), _memory: Some(memory) }))
    }

    /// Writes the table, and before it the drawing of the largest errors. Returns `false` if it was stopped.
    fn write(
        &self,
        places: &[usize],
        mut left_out: Vec<usize>,
        found: &[Row],
        context: &Context,
        budget: &Budget,
    ) -> Outcome<bool> {
        let (table, drawing) = (self.folder.image_predictions(), self.folder.mistakes());
        let model = self.model()?;
        let task = model.config.task.classification()?.clone();
        let classes: Vec<&str> = task.classes().collect();
        let count = classes.len();
        let all = self.images.cases.len();
        let mut probabilities = Mapped::<f64>::zeroed(budget, "probabilities", all.saturating_mul(count))?;
        let mut failed = 0;
        for (place, row) in places.iter().zip(found) {
            probabilities[place * count..][..count].copy_from_slice(&row.probabilities);
            if let Some(problem) = &row.problem {
                context.warn(problem);
                left_out.push(*place);
                failed += 1;
            }
        }
        left_out.sort_unstable();
        let worst = Worst::find(self.images, &task, &probabilities, &left_out, DRAWN, budget)?;
        if worst.found > 0 {
            let largest = self.largest(places, &task.pipeline.decode)?;
            let explainer = ImageExplainer::new(model, largest, self.threads, self.backend, budget)?;
            let sheet = Sheet::new(explainer, &worst.mistakes, self.images, context, budget);
            let title = format!(
                "{} of {} images are wrong: the worst {}",
                worst.found,
                places.len() - failed,
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
