//! The network of a session: its engine, and the buffers that patches pass through.

use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_models::SegmentationModel;
use plimsoll_nn::weights::WeightFile;
use plimsoll_plan::{Backend, HostSlice, HostSliceMut, Options, Planner, VerifiedPlan, engine_bytes};
use plimsoll_run::RunError;

use crate::error::{InferError, internal};
use crate::interactive::error::InteractiveError;
use crate::options::{PredictOptions, Summed};
use crate::planning::engines::{arena_room, left_there};
use crate::summing::buffers::Buffers;
use crate::summing::forward::{Forward, Running, planned};

/// The additional time that a pass may take for a smaller arena, as a share of the fastest plan.
const SPARING: f64 = 0.01;
/// The holder of buffers of patches.
pub(crate) const PATCHES: &str = "patches";

/// A network over patches.
pub(crate) struct PatchNetwork {
    model: SegmentationModel,
    backend: Arc<dyn Backend>,
    budget: Budget,
    forward: Forward,
    /// A patch with all its channels; while weights are loaded, a parameter.
    input: Mapped<f32>,
    logits: Mapped<f32>,
    /// The object in the patch that was predicted last: 1 for its voxels.
    object: Mapped<u8>,
    running: Option<Running>,
    /// The bytes that opening the file of weights needs.
    weights_bytes: Bytes,
}

/// A plan of the engine.
pub(crate) struct PlannedEngine {
    /// The bytes in this process.
    pub(crate) bytes: Bytes,
    /// The bytes on a device with memory of its own.
    pub(crate) device: Option<Bytes>,
    /// The plan; `None` if the engine that is there can stay.
    next: Option<VerifiedPlan>,
    /// The predicted seconds of a pass.
    pub(crate) seconds: f64,
}

impl PatchNetwork {
    /// Writes the forward pass over a patch, and reserves its buffers.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, the network cannot be lowered, or the file of weights is not sound.
    pub(crate) fn new(
        model: SegmentationModel,
        threads: usize,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<PatchNetwork, InferError> {
        let options =
            PredictOptions { summed: Some(Summed::Logits), ..PredictOptions::new(1.0, false, threads) };
        let (forward, _) = Forward::new(&model, &options, &*backend, budget)?;
        let voxels: usize = model.patch.iter().product();
        let numbers = Buffers::numbers(&forward.program, forward.image);
        let outputs = forward.program.shape(forward.output).count();
        let weights = model.weights.first().ok_or_else(|| internal("a model has no weights"))?;
        // A ledger of its own, below a limit that is free: what opening takes at most is to be known.
        let room = Budget::new(budget.free());
        WeightFile::open_source(weights, &room).map_err(RunError::from)?;
        Ok(PatchNetwork {
            weights_bytes: room.peak(),
            input: Mapped::zeroed(budget, PATCHES, numbers)?,
            logits: Mapped::zeroed(budget, PATCHES, outputs)?,
            object: Mapped::zeroed(budget, PATCHES, voxels)?,
            budget: budget.clone(),
            running: None,
            model,
            backend,
            forward,
        })
    }

    /// Depth, height, width of a patch.
    pub(crate) fn patch(&self) -> [usize; 3] {
        self.model.patch
    }

    /// The bytes that opening the file of weights takes for a while.
    pub(crate) fn weights_bytes(&self) -> Bytes {
        self.weights_bytes
    }

    /// Plans an engine within `room` bytes of this process: the present one, if it fits. The result may be larger if no engine fits.
    ///
    /// # Errors
    /// Returns an error if the network cannot be planned, or a device has no room for it.
    pub(crate) fn plan_within(&self, room: Bytes) -> Result<PlannedEngine, InferError> {
        let present = self.running.as_ref().map(|running| running.engine.plan());
        if let Some(plan) = present.filter(|plan| engine_bytes(&*self.backend, plan) <= room) {
            return self.described(plan);
        }
        let programs = std::slice::from_ref(&self.forward.program);
        let planner = Planner::new(programs, &*self.backend, Options::default())?;
        let next = planner.sparing_plan(Some(arena_room(&*self.backend, room)), SPARING)?;
        let described = self.described(&next)?;
        Ok(PlannedEngine { next: Some(next), ..described })
    }

    fn described(&self, plan: &VerifiedPlan) -> Result<PlannedEngine, InferError> {
        let device = self.backend.device_memory();
        let device = device.map(|device| (device.needed(plan.arena_bytes), device.limit()));
        if let Some((needed, limit)) = device
            && left_there(&*self.backend, plan).is_none()
        {
            return Err(InferError::InfeasibleOnDevice { needed, limit, windows: 1 });
        }
        let schedule = plan.schedules.first().ok_or_else(|| internal("a plan has no schedule"))?;
        Ok(PlannedEngine {
            bytes: engine_bytes(&*self.backend, plan),
            device: device.map(|(needed, _)| needed),
            next: None,
            seconds: schedule.predicted_seconds,
        })
    }

    /// Opens the engine of a plan and loads the weights, unless the present engine stays.
    ///
    /// # Errors
    /// Returns an error if memory is refused, or the weights cannot be read or are of another network.
    pub(crate) fn open(&mut self, engine: PlannedEngine) -> Result<(), InferError> {
        let Some(plan) = engine.next else { return Ok(()) };
        // The last arena goes before the next one comes.
        self.running = None;
        let mut running = Running::open(plan, &self.forward, &*self.backend, &mut self.input, &self.budget)?;
        running.load(0, &self.model, &self.forward, &mut self.input, &self.budget)?;
        self.running = Some(running);
        Ok(())
    }

    /// The buffer of the input `[channel][depth][height][width]`.
    pub(crate) fn input(&mut self) -> &mut [f32] {
        let numbers = self.forward.program.shape(self.forward.image).count();
        &mut self.input[..numbers]
    }

    /// Runs the network on its input.
    ///
    /// # Errors
    /// Returns an error if there is no engine, or the output of the patch that begins at `start` is not finite.
    pub(crate) fn run(&mut self, start: [i64; 3]) -> Result<(), InteractiveError> {
        let numbers = self.forward.program.shape(self.forward.image).count();
        let Running { engine, forward, .. } = planned(&mut self.running)?;
        engine.write(*forward, self.forward.image, HostSlice::F32(&self.input[..numbers]))?;
        engine.run(*forward)?;
        engine.read(*forward, self.forward.output, HostSliceMut::F32(&mut self.logits))?;
        let (background, object) = self.logits.split_at(self.object.len());
        let mut is_finite = true;
        for ((to, background), object) in self.object.iter_mut().zip(background).zip(object) {
            is_finite &= background.is_finite() && object.is_finite();
            *to = u8::from(object > background);
        }
        if is_finite { Ok(()) } else { Err(InteractiveError::NotFinite { start }) }
    }

    /// The input and the logits `[output][depth][height][width]` of the last pass.
    pub(crate) fn last_pass(&self) -> (&[f32], &[f32]) {
        let numbers = self.forward.program.shape(self.forward.image).count();
        (&self.input[..numbers], &self.logits)
    }

    /// Returns `true` for a voxel of the object in the patch that was predicted last.
    pub(crate) fn is_object(&self, [depth, height, width]: [usize; 3]) -> bool {
        let [_, rows, columns] = self.model.patch;
        self.object[(depth * rows + height) * columns + width] == 1
    }
}
