//! A network over one image at a time, and all that images go through before it.

use std::path::Path;
use std::sync::Arc;

use plimsoll_data::pictures::{Largest, Pipeline, Recipe, Scratch};
use plimsoll_graph::{DType, Program, Role, TensorId};
use plimsoll_image::ImageError;
use plimsoll_memory::{Budget, Mapped, Reservation};
use plimsoll_models::Model;
use plimsoll_nn::names;
use plimsoll_plan::{
    Backend, Engine, EngineError, HostSlice, HostSliceMut, Options, ProgramId, open_engine, plan,
};
use plimsoll_run::{ClassificationTask, LoadOptions, NumberedProgram, read_parameters};

use crate::error::InferError;
use crate::options::RingStorage;
use crate::planning::engines::{arena_room, overhead};
use crate::summing::forward::find;

/// A program of a classifier, with the weights of one of the model's folds.
pub(crate) struct ImageNetwork {
    model: Model,
    pub(crate) task: ClassificationTask,
    pub(crate) pipeline: Pipeline,
    scratch: Scratch,
    engine: Box<dyn Engine>,
    program: Program,
    id: ProgramId,
    image: TensorId,
    /// The image that was read last, `[channel][row][column]`.
    pub(crate) input: Mapped<f32>,
    /// Room for the largest parameter.
    parameter: Mapped<f32>,
    budget: Budget,
    _overhead: Reservation,
}

impl ImageNetwork {
    /// Plans a program over one image, and allocates all that it takes for images up to a size.
    ///
    /// # Errors
    /// Returns an error if the model does not give images classes, the budget has no room, or its files are not sound.
    pub(crate) fn new(
        model: Model,
        program: Program,
        largest: Largest,
        threads: usize,
        backend: &Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<ImageNetwork, InferError> {
        let task = model.config.task.classification()?.clone();
        let overhead =
            budget.reserve("overhead", overhead(threads, &**backend)).map_err(InferError::Overhead)?;
        let pipeline = task.pipeline(largest)?;
        let scratch = Scratch::new(&pipeline, budget)?;
        let image = find(&program, names::IMAGE)?;
        let largest =
            program.with_role(Role::Parameter).map(|id| program.shape(id).count()).max().unwrap_or(0);
        let input = Mapped::zeroed(budget, "images", pipeline.output_length())?;
        let parameter = Mapped::zeroed(budget, "images", largest)?;
        let room = arena_room(&**backend, budget.limit() - budget.used());
        let options = Options { budget: Some(room), ..Options::default() };
        let planned = plan(std::slice::from_ref(&program), &**backend, options)?;
        let id = planned
            .find(&program.name)
            .ok_or_else(|| EngineError::Internal("the plan has lost its program".into()))?;
        let engine = open_engine(&**backend, planned, budget)?;
        Ok(ImageNetwork {
            model,
            task,
            pipeline,
            scratch,
            engine,
            program,
            id,
            image,
            input,
            parameter,
            budget: budget.clone(),
            _overhead: overhead,
        })
    }

    /// The tensor of a name.
    pub(crate) fn find(&self, name: &str) -> Result<TensorId, InferError> {
        find(&self.program, name)
    }

    /// Channels, height and width of a tensor.
    pub(crate) fn map_shape(&self, tensor: TensorId) -> [usize; 3] {
        let shape = self.program.shape(tensor);
        let [_, height, width] = shape.spatial();
        [shape.channels(), height, width]
    }

    /// Folds of the model.
    pub(crate) fn folds(&self) -> usize {
        self.model.weights.len()
    }

    /// Loads the weights of a fold.
    pub(crate) fn load(&mut self, fold: usize) -> Result<(), InferError> {
        let net = self.model.config.training.net.as_architecture();
        let options = LoadOptions { averaged: true, ..LoadOptions::default() };
        read_parameters(
            &self.model.weights[fold],
            net,
            &mut *self.engine,
            NumberedProgram { number: self.id, program: &self.program },
            &mut self.parameter,
            options,
            &self.budget,
        )?;
        Ok(())
    }

    /// Reads an image and normalises it, into `input`.
    pub(crate) fn read_image(&mut self, path: &Path) -> Result<(), ImageError> {
        self.pipeline.load(path, &Recipe::NONE, &mut self.scratch, &mut self.input)
    }

    /// Reads an image as it is before it is normalised, `[row][column][channel]`.
    pub(crate) fn prepare(&mut self, path: &Path) -> Result<&[u8], ImageError> {
        self.pipeline.prepare(path, &mut self.scratch)
    }

    /// Runs the program on an image, `[channel][row][column]`.
    pub(crate) fn run(&mut self, image: &[f32]) -> Result<(), EngineError> {
        self.engine.write(self.id, self.image, HostSlice::F32(image))?;
        self.engine.run(self.id)
    }

    /// Runs the program on the image that was read last.
    pub(crate) fn run_input(&mut self) -> Result<(), EngineError> {
        self.engine.write(self.id, self.image, HostSlice::F32(&self.input))?;
        self.engine.run(self.id)
    }

    /// Writes into an input.
    pub(crate) fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<(), EngineError> {
        self.engine.write(self.id, tensor, HostSlice::F32(values))
    }

    /// Reads an output.
    pub(crate) fn read(&self, tensor: TensorId, values: &mut [f32]) -> Result<(), EngineError> {
        self.engine.read(self.id, tensor, HostSliceMut::F32(values))
    }

    /// Checks that a fold's output for an image is finite.
    pub(crate) fn expect_finite(&self, values: &[f32], name: &str, fold: usize) -> Result<(), InferError> {
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(()),
            false => {
                let weights = self.model.weights[fold].path.clone();
                // Classifiers have no flag for it, but processors store f16 as f32.
                let halved = self.program.tensors.iter().any(|tensor| tensor.dtype == DType::F16);
                Err(InferError::NotFinite {
                    case: name.into(),
                    weights,
                    start: [0; 3],
                    ring: RingStorage::F32,
                    in_f32: halved.then_some("‹device=cpu›"),
                })
            }
        }
    }
}
