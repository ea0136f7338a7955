//! A network that slides over cases, window by window.

use std::sync::Arc;

use plimsoll_data::{PREPARED_SCRATCH, Preparation, Scratch, TargetGrid};
use plimsoll_graph::DType;
use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_models::{Answers, Interpolated, SegmentationModel};
use plimsoll_nn::weights::WeightFile;
use plimsoll_parallel::Pool;
use plimsoll_plan::{Backend, VerifiedPlan};
use plimsoll_run::RunError;

use crate::error::InferError;
use crate::options::{PredictOptions, RingStorage};
use crate::summing::buffers::Buffers;
use crate::summing::forward::{Forward, Running, planned};
use crate::summing::mirror::all_mirrors;
use crate::summing::ring_shape::Activation;
use crate::summing::rows::Rows;
use crate::summing::settings::Summing;
use crate::summing::summands::Summands;
use crate::summing::windows::Weights;
use crate::summing::workers;

/// A model's network, with all that windows of any case go through.
pub(crate) struct SlidingWindow {
    pub(crate) model: Arc<SegmentationModel>,
    pub(crate) options: PredictOptions,
    pub(crate) budget: Budget,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) forward: Forward,
    pub(crate) summands: Summands,
    pub(crate) weights: Weights,
    pub(crate) buffers: Buffers,
    /// The threads that sum windows and decide labels.
    pub(crate) pool: Arc<Pool>,
    pub(crate) scratch: Scratch,
    /// The engine, which is opened for the first case, and again for one whose logits leave its arena no room.
    pub(crate) running: Option<Running>,
    /// The bytes that opening a file of weights needs.
    weights_bytes: Bytes,
    /// A reservation of as much, except while a file is read; `None` if it was refused after the last file.
    weights_room: Option<Reservation>,
}

impl SlidingWindow {
    /// Writes the network's forward pass over one window, and reserves what does not depend on a case.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, or the model's files are not sound.
    pub(crate) fn new(
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<SlidingWindow, InferError> {
        let (forward, summands) = Forward::new(&model, &options, &*backend, budget)?;
        let weights_bytes = opening_bytes(&model, budget)?;
        let buffers = Buffers::new(&forward, model.patch, options.threads, budget);
        let buffers = buffers.map_err(|source| match options.window_batch {
            1 => InferError::from(source),
            windows => InferError::WindowBatch { windows, source },
        })?;
        let scratch = match model.preparation {
            Preparation::Canonical { .. } => Scratch::for_patches(model.patch, usize::MAX),
            Preparation::NnUnet(_)
            | Preparation::Zoomed(_)
            | Preparation::Monai(_)
            | Preparation::Located(_) => PREPARED_SCRATCH,
        };
        Ok(SlidingWindow {
            weights: Weights::new(model.windows, model.patch, options.window_weights),
            scratch: Scratch::new(budget, scratch)?,
            budget: budget.clone(),
            backend,
            forward,
            summands,
            buffers,
            pool: Arc::new(workers::start(options.threads)),
            running: None,
            weights_bytes,
            weights_room: Some(budget.reserve(WEIGHTS, weights_bytes)?),
            model: Arc::new(model),
            options,
        })
    }

    /// Returns the rows of windows of a grid that is traversed along a stored axis.
    pub(crate) fn rows(&self, grid: &TargetGrid, slab_axis: usize) -> Rows {
        Rows::for_model(grid, &self.model, self.options.step, slab_axis)
    }

    /// Returns the number of passes of each window through the network of one fold.
    pub(crate) fn looks(&self) -> usize {
        all_mirrors(self.model.patch, self.mirrors()).count()
    }

    /// Returns the axes along which windows are mirrored.
    pub(crate) fn mirrors(&self) -> [bool; 3] {
        if self.options.mirror { self.model.mirror_axes } else { [false; 3] }
    }

    /// Returns the settings of summing the windows of a case.
    pub(crate) fn summing(&self, storage: RingStorage, on_device: bool) -> Summing {
        let looks = self.looks().saturating_mul(self.model.weights.len());
        let summands = self.summands.clone();
        Summing { summands, storage, looks, pool: Arc::clone(&self.pool), on_device }
    }

    /// Returns how many numbers of windows in one run are copied if this process sums them: none if they are summed as they lie in memory of
    /// this process.
    pub(crate) fn copied_numbers(&self) -> usize {
        let is_copied = self.backend.device_memory().is_some() || self.activation_of_passes().is_some();
        if is_copied { self.forward.program.shape(self.forward.output).count() } else { 0 }
    }

    /// Returns the activation of what each pass computes, where its probabilities are summed.
    pub(crate) fn activation_of_passes(&self) -> Option<Activation> {
        match (self.model.interpolated, &self.model.answers) {
            (Interpolated::MeanProbabilities, Answers::Classes(_)) => Some(Activation::Softmax),
            (Interpolated::MeanProbabilities, Answers::Regions(_)) => Some(Activation::Sigmoid),
            (Interpolated::Logits | Interpolated::Probabilities, _) => None,
        }
    }

    /// Writes the forward pass over a window of another extent, if the window has another one. The engine is freed then.
    ///
    /// # Errors
    /// Returns an error if the network does not take the window, or the budget has no room.
    pub(crate) fn fit(&mut self, window: [usize; 3]) -> Result<(), InferError> {
        if self.model.patch == window {
            return Ok(());
        }
        self.running = None;
        let model = SegmentationModel { patch: window, ..(*self.model).clone() };
        // No window has this extent: without its buffers the network is fitted to none, whatever fails below.
        self.model = Arc::new(SegmentationModel { patch: [0; 3], ..model.clone() });
        // The last buffers go before the next ones come.
        self.buffers.free(&self.budget)?;
        (self.forward, self.summands) = Forward::new(&model, &self.options, &*self.backend, &self.budget)?;
        self.buffers = Buffers::new(&self.forward, window, self.options.threads, &self.budget)?;
        self.weights = Weights::new(model.windows, window, self.options.window_weights);
        self.model = Arc::new(model);
        Ok(())
    }

    /// Returns the type in which features are stored.
    pub(crate) fn precision(&self) -> DType {
        self.backend.storage(self.options.precision.unwrap_or(self.model.precision))
    }

    /// Puts an engine with a plan in the place of the one that exists, if there is a plan.
    ///
    /// # Errors
    /// Returns an error if memory is refused, or the plan is of another program.
    pub(crate) fn replace_engine(&mut self, plan: Option<VerifiedPlan>) -> Result<(), InferError> {
        let Some(plan) = plan else { return Ok(()) };
        // The last arena goes before the next one comes.
        self.running = None;
        let buffer = &mut self.buffers.other;
        self.running = Some(Running::open(plan, &self.forward, &*self.backend, buffer, &self.budget)?);
        Ok(())
    }

    /// Loads the weights of a fold, unless the engine has them.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub(crate) fn load_fold(&mut self, fold: usize) -> Result<(), InferError> {
        let running = planned(&mut self.running)?;
        if running.has(fold) {
            return Ok(());
        }
        // Room that was refused after an earlier load is asked for again after this one.
        self.weights_room = None;
        let loaded = running.load(fold, &self.model, &self.forward, &mut self.buffers.other, &self.budget);
        let room = self.budget.reserve(WEIGHTS, self.weights_bytes);
        let room = room.map(|room| self.weights_room = Some(room));
        // Why a file could not be read says more than that there is no room for another one.
        loaded.and(room.map_err(InferError::from))
    }
}

const WEIGHTS: &str = "a file of weights";

/// The most that opening any of a model's files of weights takes: the whole content of a pickle. Reading tensors takes nothing more.
fn opening_bytes(model: &SegmentationModel, budget: &Budget) -> Result<Bytes, InferError> {
    let mut most = Bytes::ZERO;
    for weights in &model.weights {
        // A ledger of its own, below a limit that is free: what it takes at most is to be known.
        let room = Budget::new(budget.free());
        WeightFile::open_source(weights, &room).map_err(RunError::from)?;
        most = most.max(room.peak());
    }
    Ok(most)
}
