//! Windows over a case, one after the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::{
    Case, PREPARED_SCRATCH, Preparation, Scratch, Severity, TargetGrid, VolumeCache, inspect_images,
};
use plimsoll_graph::{Program, Role, TensorId};
use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_nn::{names, predict};
use plimsoll_plan::{
    Backend, DeviceMemory, Engine, EngineError, HostSlice, HostSliceMut, Options, ProgramId, VerifiedPlan,
    engine_bytes, open_engine, plan,
};
use plimsoll_run::{LoadOptions, SegmentationModel, read_parameters};
use plimsoll_volume::{ElementType, VolumeFile, VolumeWriter, VoxelBox};
use serde::Serialize;

use crate::InferError;
use crate::case_windows::{CaseImages, CasePlace, CaseWindows};
use crate::export::Wanted;
use crate::image_network::overhead;
use crate::mirror::{all_mirrors, mirror};
use crate::npz::ProbabilityWriter;
use crate::ring::{Room, WindowLogits};
use crate::stream::{Rows, Stream};
use crate::windows::gaussian;
use crate::workers::stacks;

/// How to predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictOptions {
    /// The share of a window from one to the next at most, above 0 and at most 1.
    pub step: f64,
    /// Whether each window is also looked at mirrored, along all axes that its model may be mirrored along, alone and together.
    pub mirror: bool,
    /// Threads that kernels run on: each has a stack.
    pub threads: usize,
}

/// A case that is to be predicted.
#[derive(Clone, Copy, Debug)]
pub struct CaseRequest<'a> {
    /// The case.
    pub case: &'a Case,
    /// The labels of an earlier network, on the grid of the case's images; none where the model is not a later stage of a cascade.
    pub earlier: Option<&'a Path>,
    /// The box of the stored image that is looked at, of models whose images are zoomed; beyond it is background. None where all of the image
    /// is looked at.
    pub within: Option<VoxelBox>,
    /// Where labels are written, in place of a file that is there.
    pub labels: &'a Path,
    /// Where probabilities are written, in NumPy's `.npz`: `probabilities`, `[output][depth][height][width]` in f32 on the stored grid,
    /// the softmax of classes or the sigmoid of each region.
    pub probabilities: Option<&'a Path>,
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
    /// Logits being summed, and a plane of labels; of probabilities, where they are wanted.
    pub logits_bytes: Bytes,
    /// What has to be known of all of a case before any window: its mask, and the ranges of its slices. 0 of models of our own runs.
    pub preparation_bytes: Bytes,
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
    model: Arc<SegmentationModel>,
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
    fn new(model: &SegmentationModel) -> Result<Forward, InferError> {
        let net = model.net.as_architecture();
        let (outputs, channels) = (model.answers.outputs(), model.channels.len() + model.earlier_labels);
        if (outputs, channels) != (net.classes(), net.in_channels()) {
            return Err(InferError::OtherNetwork {
                expected: (channels, outputs),
                found: (net.in_channels(), net.classes()),
            });
        }
        let program = predict(net, model.patch, 1, model.precision)?;
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
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        // The caller's thread is always one.
        let options = PredictOptions { threads: options.threads.max(1), ..options };
        let forward = Forward::new(&model)?;
        let overhead = overhead(options.threads, &*backend);
        let held = budget.reserve("overhead", overhead)?;
        let program = &forward.program;
        let count = |id: TensorId| program.shape(id).count();
        let image_count = count(forward.image);
        let largest = program.with_role(Role::Parameter).map(count).max().unwrap_or(0);
        let buffer = |count: usize| Mapped::zeroed(budget, "windows", count);
        let room = |_| Room::new(model.patch, budget);
        let copied = backend.device_memory().map_or(0, |_| count(forward.logits));
        let buffers = Buffers {
            image: buffer(image_count)?,
            other: buffer(image_count.max(largest))?,
            logits: buffer(copied)?,
            rooms: (0..options.threads).map(room).collect::<Result<_, _>>()?,
            _stacks: budget.reserve("windows", stacks(options.threads))?,
        };
        let scratch = match model.preparation {
            Preparation::Canonical { .. } => Scratch::for_patches(model.patch, usize::MAX),
            Preparation::NnUnet(_) | Preparation::Zoomed(_) => PREPARED_SCRATCH,
        };
        Ok(Predictor {
            weights: gaussian(model.patch),
            scratch: Scratch::new(budget, scratch)?,
            budget: budget.clone(),
            backend,
            forward,
            buffers,
            running: None,
            overhead: held,
            model: Arc::new(model),
            options,
        })
    }

    /// The model.
    pub fn model(&self) -> &SegmentationModel {
        &self.model
    }

    /// Predicts a case and writes its labels, with the geometry and header of its first image. Returns what that held.
    /// [`predict_cases`](crate::predict_cases) keeps files that are there, and refuses to replace images.
    ///
    /// # Errors
    /// If an image is not sound, its spacing cannot be meant, the network's output is not finite, memory or disk are refused,
    /// or `stop` is set; then nothing is written.
    pub fn predict(
        &mut self,
        request: &CaseRequest<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictPlan, InferError> {
        let case = request.case;
        let going = || match stop.load(Ordering::Relaxed) {
            true => Err(InferError::Interrupted { case: case.id.clone() }),
            false => Ok(()),
        };
        let inspected = inspect_images(case, &self.model.channels, &self.budget, stop);
        going()?;
        let (problems, fingerprint) = inspected?;
        if let Some(problem) = problems.into_iter().find(|problem| problem.severity == Severity::Error) {
            return Err(InferError::Unsound { problem: Box::new(problem) });
        }
        let (Some(fingerprint), Some(first)) = (fingerprint, case.images.first()) else {
            return Err(InferError::Unreadable { case: case.id.clone() });
        };
        let template = VolumeFile::open(&first.path)?;
        let images =
            CaseImages { case, fingerprint: &fingerprint, earlier: request.earlier, within: request.within };
        // Shared, so that the engine can be replaced while the model's answers and steps are in use.
        let model = Arc::clone(&self.model);
        let place = CasePlace::new(&model, images, &template)?;
        let wanted = Wanted { answers: &model.answers, probabilities: request.probabilities.is_some() };
        let threads = self.options.threads;
        let outputs = model.answers.outputs();
        let step = self.options.step;
        let rows_of = |grid: &TargetGrid| Rows::new(grid, model.patch, outputs, step);
        let largest = place.largest_grid();
        let logits_bytes = Stream::bytes(largest, &rows_of(largest), wanted, threads)?;
        let plan = self.plan_case(images, logits_bytes, place.bytes(images)?)?;
        let decoding = self.budget.part("decoding", plan.decoding_bytes)?;
        let cache = VolumeCache::new(self.budget.part("cache", plan.cache_bytes)?).decoding_within(decoding);
        let preparation = self.budget.part("preparation", plan.preparation_bytes)?;
        let opened = place.open(&model, images, &cache, (&mut self.scratch, &preparation), stop);
        going()?;
        let mut windows = opened?;
        let grid = *windows.grid();
        let rows = rows_of(&grid);
        let mut stream = Stream::new(&grid, &rows, wanted, threads, &self.budget)?;
        let geometry = &fingerprint.geometry;
        let element = if wanted.label_bytes() == 1 { ElementType::U8 } else { ElementType::U16 };
        let writer = VolumeWriter::create(request.labels, geometry, 1, element, template.header());
        let mut writer = writer.map_err(InferError::Write)?;
        let mut probabilities = match request.probabilities {
            Some(path) => Some(ProbabilityWriter::create(path, outputs, geometry.shape())?),
            None => None,
        };
        drop(template);
        let of = rows.windows().saturating_mul(model.weights.len());
        let mut progress = Progress { windows: 0, of };
        observe(progress);
        for row in 0..rows.count() {
            for (fold, weights) in model.weights.iter().enumerate() {
                self.load_fold(fold)?;
                for start in rows.row(row) {
                    going()?;
                    if !self.window(start, &mut windows, &mut stream, &rows)? {
                        let (case, weights) = (case.id.clone(), weights.clone());
                        return Err(InferError::NotFinite { case, weights, start });
                    }
                    progress.windows += 1;
                    observe(progress);
                }
            }
            stream.finish_row(&rows, row, |labels, of_plane| {
                writer.write_planes(labels).map_err(InferError::Write)?;
                probabilities.as_mut().map_or(Ok(()), |writer| writer.write_plane(of_plane))
            })?;
        }
        going()?;
        probabilities.map_or(Ok(()), ProbabilityWriter::finish)?;
        writer.finish().map_err(InferError::Write)?;
        Ok(plan)
    }

    /// Plans what a case holds. The arena takes what the line leaves beside the case's logits: the last case's engine stays if
    /// it fits, else there is a new one, which recomputes more.
    fn plan_case(
        &mut self,
        images: CaseImages<'_>,
        logits_bytes: Bytes,
        preparation_bytes: Bytes,
    ) -> Result<PredictPlan, InferError> {
        let CaseImages { case, fingerprint, .. } = images;
        let line = self.budget.line();
        let device = self.backend.device_memory();
        let arena = |plan: &VerifiedPlan| engine_bytes(&*self.backend, plan);
        let running = self.running.as_ref().map_or(Bytes::ZERO, |running| arena(running.engine.plan()));
        let fixed = self.budget.used() - running;
        let overhead_bytes = self.overhead.bytes();
        let window_bytes = fixed - overhead_bytes;
        let decoding_bytes = fingerprint.decoding_bytes;
        let of_case = logits_bytes + preparation_bytes + decoding_bytes;
        let room = line - (fixed + of_case);
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
        let minimum_ram_bytes = fixed + arena_bytes + of_case;
        if minimum_ram_bytes > line {
            return Err(InferError::Infeasible {
                case: case.id.clone(),
                needed: minimum_ram_bytes,
                line,
                parts: format!(
                    "arena {arena_bytes}, logits {logits_bytes}, windows {window_bytes}, preparation {preparation_bytes}, \
                     decoding {decoding_bytes}, overhead {overhead_bytes}"
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
            preparation_bytes,
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
            let net = self.model.net.as_architecture();
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
        start: [usize; 3],
        windows: &mut CaseWindows,
        stream: &mut Stream,
        rows: &Rows,
    ) -> Result<bool, InferError> {
        let window = rows.shape.window;
        let from = [0, 1, 2].map(|axis| start[axis] as i64 - rows.lead[axis] as i64);
        let Buffers { image, other, rooms, logits: copied, .. } = &mut self.buffers;
        windows.pull(from, window, image, &mut self.scratch)?;
        let Running { engine, forward, .. } = planned(&mut self.running)?;
        let along = if self.options.mirror { self.model.mirror_axes } else { [false; 3] };
        for mirrored in all_mirrors(window, along) {
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
