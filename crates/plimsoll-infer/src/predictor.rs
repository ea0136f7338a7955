//! Windows over a case, one after the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::{
    Case, CaseFingerprint, CaseSource, Recipe, Scratch, Severity, TargetGrid, VolumeCache, inspect_images,
    pull,
};
use plimsoll_graph::{Program, Role, TensorId};
use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_nn::{Training, names, predict};
use plimsoll_plan::{
    Backend, DeviceMemory, Engine, EngineError, HostSlice, HostSliceMut, Options, ProgramId, VerifiedPlan,
    engine_bytes, open_engine, plan,
};
use plimsoll_run::{LoadOptions, Model, SegmentationTask, read_parameters};
use plimsoll_volume::{ElementType, VolumeFile, VolumeWriter};
use serde::Serialize;

use crate::InferError;
use crate::believable;
use crate::image_network::overhead;
use crate::mirror::{all_mirrors, mirror};
use crate::ring::{Room, WindowLogits};
use crate::stream::{Rows, Stream};
use crate::windows::gaussian;
use crate::workers::stacks;

/// How to predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictOptions {
    /// The share of a window that the next one covers too.
    pub overlap: f64,
    /// Whether each window is also looked at mirrored, in all eight ways; those of slices in all four.
    pub mirror: bool,
    /// Threads that kernels run on: each has a stack.
    pub threads: usize,
}

/// What predicting a case holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictPlan {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead_bytes: Bytes,
    /// Parameters, features and kernels' scratch: of a device, only what is copied to it through.
    pub arena_bytes: Bytes,
    /// What is held of a device with memory of its own, the arena and the driver's context; none on the processor.
    pub device_bytes: Option<Bytes>,
    /// Windows on their way in and out, and what they are read through.
    pub window_bytes: Bytes,
    /// Logits being summed, and a plane of labels.
    pub logits_bytes: Bytes,
    /// What decoding the pictures of the case takes; 0 of volumes.
    pub decoding_bytes: Bytes,
    /// Decoded images: the whole case, or what is left of the line.
    pub cache_bytes: Bytes,
    /// All of these.
    pub total_bytes: Bytes,
    /// The least line that would do: without a cache.
    pub minimum_ram_bytes: Bytes,
}

/// How far a case is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Windows done, each fold counted.
    pub windows: usize,
    /// Of how many.
    pub of: usize,
}

/// A model ready to predict.
pub struct Predictor {
    model: Model,
    task: SegmentationTask,
    options: PredictOptions,
    budget: Budget,
    backend: Arc<dyn Backend>,
    forward: Forward,
    weights: [Vec<f32>; 3],
    buffers: Buffers,
    scratch: Scratch,
    /// Made for the first case, and again for one whose logits leave its arena no room.
    running: Option<Running>,
    overhead: Reservation,
}

/// The forward pass of a window: the only program of the plan and of its engine.
struct Forward {
    program: Program,
    image: TensorId,
    logits: TensorId,
}

/// An engine, and what it has.
struct Running {
    engine: Box<dyn Engine>,
    forward: ProgramId,
    /// Which fold's weights.
    fold: Option<usize>,
}

impl Forward {
    fn new(training: &Training) -> Result<Forward, InferError> {
        let program = predict(training.net.as_architecture(), training.patch, 1, training.precision)?;
        let find = |name: &str| {
            program.find(name).ok_or_else(|| {
                let (program, tensor) = (program.name.clone(), name.to_string());
                InferError::Plan(plimsoll_graph::GraphError::MissingValue { program, tensor }.into())
            })
        };
        let (image, logits) = (find(names::IMAGE)?, find(names::LOGITS)?);
        Ok(Forward { program, image, logits })
    }
}

/// Windows on their way in and out.
struct Buffers {
    image: Mapped<f32>,
    /// The image mirrored, or a parameter.
    other: Mapped<f32>,
    /// All logits of a window, where they are copied from a device: reading them row by row would take a copy for each. Else nothing.
    logits: Mapped<f32>,
    /// Of each thread that sums logits.
    rooms: Vec<Room<EngineError>>,
    _stacks: Reservation,
}

impl Predictor {
    /// Writes the network's forward pass over one window, and allocates what does not depend on a case. The overhead of the
    /// plans to come is taken from the budget as well.
    ///
    /// # Errors
    /// If the budget has no room, or the model's files are not sound.
    pub fn new(
        model: Model,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        let training = &model.config.training;
        // The caller's thread is always one.
        let options = PredictOptions { threads: options.threads.max(1), ..options };
        let forward = Forward::new(training)?;
        let overhead = overhead(options.threads, &*backend);
        let held = budget.reserve("overhead", overhead)?;
        let program = &forward.program;
        let count = |id: TensorId| program.shape(id).count();
        let image_count = count(forward.image);
        let largest = program.with_role(Role::Parameter).map(count).max().unwrap_or(0);
        let buffer = |count: usize| Mapped::zeroed(budget, "windows", count);
        let room = |_| Room::new(training.patch, budget);
        let copied = backend.device_memory().map_or(0, |_| count(forward.logits));
        let buffers = Buffers {
            image: buffer(image_count)?,
            other: buffer(image_count.max(largest))?,
            logits: buffer(copied)?,
            rooms: (0..options.threads).map(room).collect::<Result<_, _>>()?,
            _stacks: budget.reserve("windows", stacks(options.threads))?,
        };
        Ok(Predictor {
            weights: gaussian(training.patch),
            scratch: Scratch::new(budget, Scratch::for_patches(training.patch, usize::MAX))?,
            budget: budget.clone(),
            backend,
            forward,
            buffers,
            running: None,
            overhead: held,
            task: model.config.task.segmentation()?.clone(),
            model,
            options,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Predicts a case and writes its labels to `path`, with the geometry and header of its first image, in place of a file
    /// that is there. Returns what that held. [`predict_cases`](crate::predict_cases) keeps files that are there, and refuses
    /// to replace images.
    ///
    /// # Errors
    /// If an image is not sound, its spacing cannot be meant, the network's output is not finite, memory or disk are refused,
    /// or `stop` is set; then nothing is written.
    pub fn predict(
        &mut self,
        case: &Case,
        path: &Path,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictPlan, InferError> {
        let going = || match stop.load(Ordering::Relaxed) {
            true => Err(InferError::Interrupted { case: case.id.clone() }),
            false => Ok(()),
        };
        let channels = &self.task.dataset.channels;
        let inspected = inspect_images(case, channels, &self.budget, stop);
        going()?;
        let (problems, fingerprint) = inspected?;
        if let Some(problem) = problems.into_iter().find(|problem| problem.severity == Severity::Error) {
            return Err(InferError::Unsound { problem: Box::new(problem) });
        }
        let Some(fingerprint) = fingerprint else {
            return Err(InferError::Unreadable { case: case.id.clone() });
        };
        let intensities = fingerprint
            .intensities(channels, &self.task.dataset.foreground_intensity_properties_per_channel)
            .map_err(|source| InferError::Normalisation { case: case.id.clone(), source })?;
        believable::check(case, &fingerprint.geometry, self.task.spacing.of(fingerprint.spacing()))?;
        let grid = TargetGrid::new(&fingerprint.geometry, self.task.spacing);
        let training = &self.model.config.training;
        let rows = Rows::new(&grid, training.patch, training.net.classes(), self.options.overlap);
        let plan = self.plan_case(case, &fingerprint, Stream::bytes(&grid, &rows, self.options.threads)?)?;
        let decoding = self.budget.part("decoding", plan.decoding_bytes)?;
        let cache = VolumeCache::new(self.budget.part("cache", plan.cache_bytes)?).decoding_within(decoding);
        let source = CaseSource::open_unless(case, &intensities, false, &cache, stop);
        going()?;
        let mut source = source?;
        let mut stream = Stream::new(&grid, &rows, self.options.threads, &self.budget)?;
        let template = VolumeFile::open(&case.images[0].path)?;
        let geometry = &fingerprint.geometry;
        let writer = VolumeWriter::create(path, geometry, 1, ElementType::U8, template.header());
        let mut writer = writer.map_err(InferError::Write)?;
        drop(template);
        let of = rows.windows().saturating_mul(self.model.weights.len());
        let mut progress = Progress { windows: 0, of };
        observe(progress);
        for row in 0..rows.count() {
            for fold in 0..self.model.weights.len() {
                self.load_fold(fold)?;
                for start in rows.row(row) {
                    going()?;
                    if !self.window(&grid, start, &mut source, &mut stream, &rows)? {
                        let (case, weights) = (case.id.clone(), self.model.weights[fold].clone());
                        return Err(InferError::NotFinite { case, weights, start });
                    }
                    progress.windows += 1;
                    observe(progress);
                }
            }
            stream.finish_row(&rows, row, |plane| writer.write_planes(plane)).map_err(InferError::Write)?;
        }
        going()?;
        writer.finish().map_err(InferError::Write)?;
        Ok(plan)
    }

    /// Plans what a case holds. The arena takes what the line leaves beside the case's logits: the last case's engine stays if
    /// it fits, else there is a new one, which recomputes more.
    fn plan_case(
        &mut self,
        case: &Case,
        fingerprint: &CaseFingerprint,
        logits_bytes: Bytes,
    ) -> Result<PredictPlan, InferError> {
        let line = self.budget.line();
        let device = self.backend.device_memory();
        let arena = |plan: &VerifiedPlan| engine_bytes(&*self.backend, plan);
        let running = self.running.as_ref().map_or(Bytes::ZERO, |running| arena(running.engine.plan()));
        let fixed = self.budget.used() - running;
        let overhead_bytes = self.overhead.bytes();
        let window_bytes = fixed - overhead_bytes;
        let decoding_bytes = fingerprint.decoding_bytes;
        let room = line - (fixed + logits_bytes + decoding_bytes);
        let is_kept = self.running.is_some() && running <= room;
        let mut arena_bytes = running;
        let mut next = None;
        if !is_kept {
            let room = usize::try_from(room.0).unwrap_or(usize::MAX);
            let budget = Some(device.map_or(room, DeviceMemory::room));
            let program = std::slice::from_ref(&self.forward.program);
            let planned = plan(program, &*self.backend, Options { budget, ..Options::default() })?;
            arena_bytes = arena(&planned);
            next = Some(planned);
        }
        let minimum_ram_bytes = fixed + arena_bytes + logits_bytes + decoding_bytes;
        if minimum_ram_bytes > line {
            return Err(InferError::Infeasible {
                case: case.id.clone(),
                needed: minimum_ram_bytes,
                line,
                parts: format!(
                    "arena {arena_bytes}, logits {logits_bytes}, windows {window_bytes}, decoding {decoding_bytes}, overhead \
                     {overhead_bytes}"
                ),
            });
        }
        let of_device =
            |plan: &VerifiedPlan| device.map(|device| (device.needed(plan.arena_bytes), device.line()));
        let running = self.running.as_ref().map(|running| running.engine.plan());
        let on_device = next.as_ref().or(running).and_then(of_device);
        if let Some((needed, line)) = on_device.filter(|(needed, line)| needed > line) {
            return Err(InferError::InfeasibleOnDevice { needed, line });
        }
        if let Some(planned) = next {
            // The last arena goes before the next one comes.
            self.running = None;
            let forward = planned.find(&self.forward.program.name);
            let forward = forward.ok_or_else(|| internal("the plan has lost its program"))?;
            let engine = open_engine(&*self.backend, planned, &self.budget)?;
            self.running = Some(Running { engine, forward, fold: None });
        }
        let cache_bytes = fingerprint.decoded_bytes().min(line - minimum_ram_bytes);
        Ok(PredictPlan {
            ram_budget_bytes: line,
            overhead_bytes,
            arena_bytes,
            device_bytes: on_device.map(|(needed, _)| needed),
            window_bytes,
            logits_bytes,
            decoding_bytes,
            cache_bytes,
            total_bytes: minimum_ram_bytes + cache_bytes,
            minimum_ram_bytes,
        })
    }

    fn load_fold(&mut self, fold: usize) -> Result<(), InferError> {
        let running = planned(&mut self.running)?;
        if running.fold != Some(fold) {
            let weights = &self.model.weights[fold];
            let net = self.model.config.training.net.as_architecture();
            let program = (running.forward, &self.forward.program);
            let (engine, buffer) = (&mut *running.engine, &mut self.buffers.other);
            let options = LoadOptions { averaged: true, ..LoadOptions::default() };
            read_parameters(weights, net, engine, program, buffer, options, &self.budget)?;
            running.fold = Some(fold);
        }
        Ok(())
    }

    /// Adds the logits of one window to the ring. Returns whether they can be summed; if not, some are missing in the ring.
    fn window(
        &mut self,
        grid: &TargetGrid,
        start: [usize; 3],
        source: &mut CaseSource,
        stream: &mut Stream,
        rows: &Rows,
    ) -> Result<bool, InferError> {
        let window = rows.shape.window;
        let from = [0, 1, 2].map(|axis| start[axis] as i64 - rows.lead[axis] as i64);
        let recipe = Recipe::window(0, grid, from, window);
        let Buffers { image, other, rooms, logits: copied, .. } = &mut self.buffers;
        pull(&recipe, source, image, None, &mut self.scratch)?;
        let Running { engine, forward, .. } = planned(&mut self.running)?;
        let mirrors = if self.options.mirror { usize::MAX } else { 1 };
        for mirrored in all_mirrors(window).take(mirrors) {
            let input = &mut other[..image.len()];
            mirror(image, input, window, mirrored);
            engine.write(*forward, self.forward.image, HostSlice::F32(input))?;
            engine.run(*forward)?;
            let (engine, output) = (&**engine, self.forward.logits);
            if !copied.is_empty() {
                engine.read(*forward, output, HostSliceMut::F32(copied))?;
            }
            let copied = &**copied;
            let read = |from: usize, to: &mut [f32]| match copied.get(from..from + to.len()) {
                Some(logits) => {
                    to.copy_from_slice(logits);
                    Ok(())
                }
                None => engine.read_from(*forward, output, from, HostSliceMut::F32(to)),
            };
            let logits = WindowLogits { start, mirrored, weights: &self.weights };
            if !stream.ring.add(&logits, rooms, read)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The engine of the case that was planned last.
fn planned(running: &mut Option<Running>) -> Result<&mut Running, InferError> {
    running.as_mut().ok_or_else(|| internal("a case is predicted that was not planned"))
}

fn internal(fault: &str) -> InferError {
    EngineError::Internal(fault.into()).into()
}
