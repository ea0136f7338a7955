//! Classes of images.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_graph::{Program, Role, TensorId};
use plimsoll_image::{Largest, Pipeline, Recipe, Scratch};
use plimsoll_memory::{Budget, Bytes, Mapped, Overhead, Reservation};
use plimsoll_nn::{names, predict};
use plimsoll_plan::{Backend, Engine, HostSlice, HostSliceMut, Options, ProgramId, plan};
use plimsoll_run::{ClassificationTask, LoadOptions, Model, read_parameters};

use crate::InferError;

/// A classifier ready to predict.
pub struct ImagePredictor {
    model: Model,
    task: ClassificationTask,
    pipeline: Pipeline,
    scratch: Scratch,
    engine: Box<dyn Engine>,
    program: Program,
    forward: ProgramId,
    image: TensorId,
    logits: TensorId,
    /// One input, and one of it that is mirrored.
    inputs: [Mapped<f32>; 2],
    /// Room for the largest parameter.
    parameter: Mapped<f32>,
    planned: Bytes,
    budget: Budget,
    /// Which mirrored copies of an image are averaged: (top and bottom, left and right).
    mirrors: Vec<(bool, bool)>,
    _overhead: Reservation,
}

impl ImagePredictor {
    /// Plans the network's forward pass over one image, and allocates all that it takes for images up to a size. With `mirror`
    /// probabilities are means over an image and its three mirrored copies.
    ///
    /// # Errors
    /// If the model does not give images classes, the budget has no room, or its files are not sound.
    pub fn new(
        model: Model,
        largest: Largest,
        (mirror, threads): (bool, usize),
        backend: &Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<ImagePredictor, InferError> {
        let task = model.config.task.classification()?.clone();
        let training = &model.config.training;
        let overhead = budget.reserve("overhead", Overhead::new(threads).total())?;
        let before = budget.used();
        let pipeline = task.pipeline(largest)?;
        let scratch = Scratch::new(&pipeline, budget)?;
        let program = predict(training.net.as_architecture(), training.patch, 1, training.precision)?;
        let find = |name: &str| {
            program.find(name).ok_or_else(|| {
                let (program, tensor) = (program.name.clone(), name.to_string());
                InferError::Plan(plimsoll_graph::GraphError::MissingValue { program, tensor }.into())
            })
        };
        let (image, logits) = (find(names::IMAGE)?, find(names::LOGITS)?);
        let largest =
            program.with_role(Role::Parameter).map(|id| program.shape(id).count()).max().unwrap_or(0);
        let buffer = |count: usize| Mapped::zeroed(budget, "images", count);
        let inputs = [buffer(pipeline.output_length())?, buffer(pipeline.output_length())?];
        let parameter = buffer(largest)?;
        let room = usize::try_from((budget.line() - budget.used()).0).unwrap_or(usize::MAX);
        let options = Options { budget: Some(room), ..Options::default() };
        let planned = plan(std::slice::from_ref(&program), &**backend, options)?;
        let forward = planned
            .find(&program.name)
            .ok_or_else(|| plimsoll_plan::EngineError::Internal("the plan has lost its program".into()))?;
        let arena = Bytes::of(planned.arena_bytes.next_multiple_of(4096));
        let engine = backend.engine(planned, budget.reserve("arena", arena)?)?;
        let sides = [false, true];
        let mirrors = if mirror {
            sides.iter().flat_map(|rows| sides.iter().map(move |columns| (*rows, *columns))).collect()
        } else {
            vec![(false, false)]
        };
        Ok(ImagePredictor {
            planned: budget.used() - before + overhead.bytes(),
            budget: budget.clone(),
            _overhead: overhead,
            model,
            task,
            pipeline,
            scratch,
            engine,
            program,
            forward,
            image,
            logits,
            inputs,
            parameter,
            mirrors,
        })
    }

    /// What it tells apart.
    pub fn task(&self) -> &ClassificationTask {
        &self.task
    }

    /// All that it holds, the process itself included.
    pub fn planned_bytes(&self) -> Bytes {
        self.planned
    }

    /// Adds the probabilities of each image's classes to `sums`, `[image][class]`: means over the model's folds and over mirrored
    /// copies. Images that cannot be read are left as they are, and their errors returned with their places. `done` is told how many
    /// passes over an image are done, of all.
    ///
    /// # Errors
    /// If weights cannot be read, the network's output is not finite, or `stop` is set.
    ///
    /// # Panics
    /// If there is not room for just as many sums as images have classes.
    pub fn add_probabilities(
        &mut self,
        images: &[(&str, &Path)],
        sums: &mut [f64],
        stop: &AtomicBool,
        done: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<(usize, plimsoll_image::ImageError)>, InferError> {
        let classes = self.task.labels.len();
        assert_eq!(sums.len(), images.len() * classes, "room for other images");
        let folds = self.model.weights.len();
        let share = 1.0 / (folds * self.mirrors.len()) as f64;
        let mut failed = Vec::new();
        let mut logits = vec![0.0; self.task.answer().outputs()];
        for fold in 0..folds {
            self.load(fold)?;
            for (place, ((name, path), sums)) in images.iter().zip(sums.chunks_exact_mut(classes)).enumerate()
            {
                if stop.load(Ordering::Relaxed) {
                    return Err(InferError::Interrupted { case: (*name).into() });
                }
                let [input, mirrored] = &mut self.inputs;
                if let Err(problem) = self.pipeline.load(path, &Recipe::NONE, &mut self.scratch, input) {
                    if fold == 0 {
                        failed.push((place, problem));
                    }
                    continue;
                }
                for sides in &self.mirrors {
                    let extent = self.pipeline.extent();
                    mirror(input, mirrored, [extent.height, extent.width], *sides);
                    self.engine.write(self.forward, self.image, HostSlice::F32(mirrored))?;
                    self.engine.run(self.forward)?;
                    self.engine.read(self.forward, self.logits, HostSliceMut::F32(&mut logits))?;
                    if logits.iter().any(|logit| !logit.is_finite()) {
                        let weights = self.model.weights[fold].clone();
                        return Err(InferError::NotFinite { case: (*name).into(), weights, start: [0; 3] });
                    }
                    self.task.add_probabilities(&logits, share, sums);
                }
                done(fold * images.len() + place + 1, folds * images.len());
            }
        }
        Ok(failed)
    }

    fn load(&mut self, fold: usize) -> Result<(), InferError> {
        let net = self.model.config.training.net.as_architecture();
        let options = LoadOptions { averaged: true, ..LoadOptions::default() };
        let program = (self.forward, &self.program);
        let weights = &self.model.weights[fold];
        read_parameters(
            weights,
            net,
            &mut *self.engine,
            program,
            &mut self.parameter,
            options,
            &self.budget,
        )?;
        Ok(())
    }
}

/// Copies an image `[channel][row][column]`, with rows or columns in reversed order.
fn mirror(from: &[f32], to: &mut [f32], [height, width]: [usize; 2], (rows, columns): (bool, bool)) {
    let planes = from.chunks_exact(height * width).zip(to.chunks_exact_mut(height * width));
    for (from, to) in planes {
        for (row, to) in to.chunks_exact_mut(width).enumerate() {
            let row = if rows { height - 1 - row } else { row };
            let from = &from[row * width..][..width];
            match columns {
                true => to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from),
                false => to.copy_from_slice(from),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrored_images_are_reversed_along_their_axes() {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let of = |sides| {
            let mut to = [0.0; 6];
            mirror(&image, &mut to, [2, 3], sides);
            to
        };
        assert_eq!(of((false, false)), image);
        assert_eq!(of((false, true)), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        assert_eq!(of((true, false)), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(of((true, true)), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }
}
