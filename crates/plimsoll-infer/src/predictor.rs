//! Windows over a case, one after the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use plimsoll_data::{
    Case, CaseFingerprint, PREPARED_SCRATCH, Preparation, Scratch, Severity, TargetGrid, VolumeCache,
};
use plimsoll_graph::DType;
use plimsoll_memory::{Budget, Bytes, Overhead, Reservation};
use plimsoll_models::SegmentationModel;
use plimsoll_nn::weights::WeightFile;
use plimsoll_parallel::Pool;
use plimsoll_plan::{Backend, VerifiedPlan};
use plimsoll_run::RunError;
use plimsoll_volume::{ElementType, VolumeFile, VoxelBox};

use crate::classification::image_network::overhead;
use crate::labels::label_output::LabelOutput;
use crate::labels::label_sink::{LabelFile, LabelSink};
use crate::labels::npz::ProbabilityWriter;
use crate::labels::slice_output::{SliceOutput, Waiting};
use crate::planning::ahead::{Ahead, AheadThread, LookAhead, Needed, look};
use crate::planning::case_memory::CaseMemory;
use crate::planning::case_plan::{LeastWith, PlannedCase};
use crate::planning::case_windows::{CaseImages, CasePlace, CaseWindows, OpenRequest};
use crate::planning::headers::Headers;
use crate::planning::times::{Clock, PredictedCase};
use crate::summing::export::Wanted;
use crate::summing::forward::{Forward, Running, planned};
use crate::summing::passes::Buffers;
use crate::summing::rows::{Rows, Strips};
use crate::summing::summands::{Summands, Summed};
use crate::summing::sums::RingStorage;
use crate::summing::windows::{Weights, WindowWeights};
use crate::summing::work::Work;
use crate::summing::workers;
use crate::{CaseSpacing, InferError, PredictPlan};

/// The options of prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictOptions {
    /// The share of a window from one to the next at most, above 0 and at most 1.
    pub step: f64,
    /// The weights of voxels of windows, for models that do not define their own, as MONAI's do.
    pub window_weights: WindowWeights,
    /// Windows that the network takes at once, 1 at least; mirrored ones are counted. They are summed one by one, in the order of one at a time,
    /// so that only kernels that compute a batch otherwise than a single window can change a number: the processor has none.
    pub window_batch: usize,
    /// `true` if each window is also looked at mirrored, along all axes that its model may be mirrored along, alone and together.
    pub mirror: bool,
    /// Threads that kernels run on: each has a stack.
    pub threads: usize,
    /// The quantity that is summed where windows overlap; `None` for the features before the head of a model with many classes, and else
    /// logits. It follows from the model alone, as sums of features are rounded otherwise.
    pub summed: Option<Summed>,
    /// The type in which sums are stored; `None` for single precision if the memory limit has room for it.
    pub ring: Option<RingStorage>,
    /// The type in which features are stored, and, with 16 bits, logits of a window too; `None` for the model's type. Types for which the backend has no
    /// kernels are refused.
    pub precision: Option<DType>,
}

impl PredictOptions {
    /// With one window at a time, weighted by a Gaussian, sums as the model suggests and the line has room for them, and features as the model says.
    pub fn new(step: f64, mirror: bool, threads: usize) -> PredictOptions {
        PredictOptions {
            step,
            window_weights: WindowWeights::Gaussian,
            window_batch: 1,
            mirror,
            threads,
            summed: None,
            ring: None,
            precision: None,
        }
    }
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
    /// The file of labels, which is replaced if it exists.
    pub labels: &'a Path,
    /// The file of probabilities in NumPy's `.npz`: `probabilities`, `[output][depth][height][width]` in f32 on the stored grid,
    /// the softmax of classes or the sigmoid of each region.
    pub probabilities: Option<&'a Path>,
}

/// The inputs of a case.
#[derive(Clone, Copy, Debug)]
pub struct CaseInput<'a> {
    /// The case.
    pub case: &'a Case,
    /// See [`CaseRequest`].
    pub earlier: Option<&'a Path>,
    /// See [`CaseRequest`].
    pub within: Option<VoxelBox>,
}

/// The destination of the labels and probabilities of a case.
pub struct CaseOutput<'a> {
    /// The sink of its labels.
    pub labels: &'a mut (dyn LabelSink + Send),
    /// See [`CaseRequest`].
    pub probabilities: Option<&'a Path>,
}

/// The progress of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Windows done, each fold counted.
    pub windows: usize,
    /// The number of all windows.
    pub of: usize,
    /// The predicted duration of all of its forward passes.
    pub predicted_seconds: f64,
}

/// A model ready to predict.
pub struct Predictor {
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
    /// Made for the first case, and again for one whose logits leave its arena no room.
    pub(crate) running: Option<Running>,
    pub(crate) overhead: Reservation,
    /// Cases that are seen at another spacing than the model's, by name.
    spacings: BTreeMap<String, CaseSpacing>,
    /// The bytes that opening a file of weights needs.
    weights_bytes: Bytes,
    /// A reservation of as much, except while a file is read; `None` if it was refused after the last file.
    weights_room: Option<Reservation>,
    /// The least needs with features in 16 bits, once they were requested; `None` inside if it does not fit then either.
    pub(crate) least_halved: OnceLock<Option<LeastWith>>,
    /// The least needs with one window at a time, once they were requested; `None` inside if it does not fit then either.
    pub(crate) least_of_one: OnceLock<Option<LeastWith>>,
}

impl Predictor {
    /// Writes the network's forward pass over one window, and allocates what does not depend on a case. The overhead of the
    /// plans to come is taken from the budget as well.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, or the model's files are not sound.
    pub fn new(
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        let overhead = overhead(options.threads.max(1), &*backend);
        Predictor::beside(overhead, model, options, backend, budget)
    }

    /// A predictor in the process of another program, such as an interpreter, whose code the budget does not count.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn in_host_process(
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        let threads = options.threads.max(1);
        let overhead = overhead(threads, &*backend) - Overhead::new(threads).code;
        Predictor::beside(overhead, model, options, backend, budget)
    }

    fn beside(
        overhead: Bytes,
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        // The caller's thread is always one.
        let (threads, window_batch) = (options.threads.max(1), options.window_batch.max(1));
        let options = PredictOptions { threads, window_batch, ..options };
        let held = budget.reserve("overhead", overhead)?;
        let (forward, summands) = Forward::new(&model, &options, &*backend, budget)?;
        let weights_bytes = opening_bytes(&model, budget)?;
        let buffers = Buffers::new(&forward, model.patch, options.threads, budget);
        let buffers = buffers.map_err(|source| match options.window_batch {
            1 => InferError::from(source),
            windows => InferError::WindowBatch { windows, source },
        })?;
        let scratch = match model.preparation {
            Preparation::Canonical { .. } => Scratch::for_patches(model.patch, usize::MAX),
            Preparation::NnUnet(_) | Preparation::Zoomed(_) | Preparation::Monai(_) => PREPARED_SCRATCH,
        };
        Ok(Predictor {
            weights: Weights::new(model.windows, model.patch, options.window_weights),
            scratch: Scratch::new(budget, scratch)?,
            budget: budget.clone(),
            backend,
            forward,
            summands,
            buffers,
            pool: Arc::new(workers::start(options.threads)),
            running: None,
            spacings: BTreeMap::new(),
            overhead: held,
            weights_bytes,
            weights_room: Some(budget.reserve(WEIGHTS, weights_bytes)?),
            least_halved: OnceLock::new(),
            least_of_one: OnceLock::new(),
            model: Arc::new(model),
            options,
        })
    }

    /// The model.
    pub fn model(&self) -> &SegmentationModel {
        &self.model
    }

    /// From now on, a case is seen at another spacing than the model's, wherever it is planned or predicted. Labels are on the grid of its
    /// images whatever the spacing is.
    pub fn see_at(&mut self, case: &Case, spacing: CaseSpacing) {
        self.spacings.insert(case.id.clone(), spacing);
    }

    /// The spacing at which a case is seen; none where that is the model's.
    pub(crate) fn spacing_of(&self, case: &Case) -> Option<CaseSpacing> {
        self.spacings.get(&case.id).copied()
    }

    /// Gives the engine of the last case back, where it leaves no room for `bytes` beside it. The next case brings another one.
    pub fn make_room(&mut self, bytes: Bytes) {
        if bytes > self.budget.free() {
            self.running = None;
        }
    }

    /// Predicts a case and writes its labels, with the geometry and header of its first image. Returns what that held and took.
    /// [`predict_cases`](crate::predict_cases) keeps files that are there, and refuses to replace images.
    ///
    /// # Errors
    /// Returns an error if an image is not sound, its spacing cannot be meant, the network's output is not finite, memory or disk are refused,
    /// or `stop` is set; then nothing is written.
    pub fn predict(
        &mut self,
        request: &CaseRequest<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        self.predict_between(request, LookAhead::default(), stop, observe)
    }

    /// Predicts a case and hands its labels over plane by plane, and probabilities to a file where one is named. Returns what that held
    /// and took.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Self::predict), and an error if the sink refuses labels. It is not finished then.
    pub fn predict_to(
        &mut self,
        input: CaseInput<'_>,
        to: CaseOutput<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        self.predict_case(input, to, LookAhead::default(), stop, observe)
    }

    /// The same of a case that was looked at before its turn, or not; meanwhile, as far as the line has room, the next one is.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Self::predict). The next case may have been looked at then, or not.
    pub(crate) fn predict_between(
        &mut self,
        request: &CaseRequest<'_>,
        around: LookAhead<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        let CaseRequest { case, earlier, within, labels, probabilities } = *request;
        let mut labels = LabelFile::new(labels);
        self.predict_case(
            CaseInput { case, earlier, within },
            CaseOutput { labels: &mut labels, probabilities },
            around,
            stop,
            observe,
        )
    }

    fn predict_case(
        &mut self,
        input: CaseInput<'_>,
        CaseOutput { labels, probabilities }: CaseOutput<'_>,
        LookAhead { before, next }: LookAhead<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        let case = input.case;
        let mut clock = Clock::start();
        check_going(case, stop)?;
        let InspectedCase { fingerprint, cache, held } = self.inspect(input, before, stop)?;
        let template = VolumeFile::open(&case.images.first().ok_or_else(|| unreadable(case))?.path)?;
        let headers = Headers::read(case, input.earlier)?.ok_or_else(|| unreadable(case))?;
        let spacing = self.spacing_of(case);
        let images = CaseImages::inspected(input, &fingerprint, headers.stated, spacing);
        // Shared, so that the engine can be replaced while the model's answers and steps are in use.
        let model = Arc::clone(&self.model);
        let place = CasePlace::new(&model, images)?;
        let next = next.and_then(|next| Some((Needed::of(next.case, next.earlier).ok()??, next)));
        let ahead = next.as_ref().map_or(Bytes::ZERO, |(needed, _)| needed.ahead());
        let memory = CaseMemory::of_inspected(&headers, held, ahead, labels.waits_beside().is_some());
        let needs = self.needs(images, &place, probabilities.is_some(), memory)?;
        let planned = self.planner(&|otherwise| self.least_with(otherwise), held).plan(&needs)?;
        let PlannedCase { mut plan, next: engine, strips, is_spooled, .. } = planned;
        // What was decoded ahead stays where there is room for all of it; else it makes room before anything else is reserved.
        let cache = cache.filter(|_| plan.cache_bytes >= held);
        self.replace_engine(engine)?;
        let cache = self.cache(cache, &plan, labels.waits_beside())?;
        clock.lap(|times| &mut times.read_seconds);
        let preparation = self.budget.part("preparation", plan.preparation_bytes)?;
        let windows = self.open_windows(place, images, &fingerprint, &cache, &preparation, stop)?;
        clock.lap(|times| &mut times.prepare_seconds);
        let grid = *windows.grid();
        let parts = self.parts(&grid, strips, &mut plan);
        let wanted = Wanted::new(&model.answers, probabilities.is_some());
        let stored = fingerprint.geometry.shape();
        let waiting = match is_spooled {
            false => None,
            true => {
                let records = self.records(stored, plan.slab_axis, wanted);
                let beside = labels.waits_beside().filter(|_| plan.spool_bytes == Bytes::ZERO);
                Some(Waiting::open(records, beside, probabilities, &self.budget)?)
            }
        };
        let element = if wanted.label_bytes() == 1 { ElementType::U8 } else { ElementType::U16 };
        // Whatever unit its lengths are in, labels are on the grid that the image has.
        labels.begin(template.geometry(), element, template.header())?;
        drop(template);
        let outputs = model.answers.outputs();
        let create = |path| ProbabilityWriter::create(path, outputs, stored);
        let probabilities = probabilities.map(create).transpose()?;
        let next = match next.filter(|_| plan.ahead_bytes > Bytes::ZERO) {
            Some(next) => Some((next, self.budget.part("the next case", plan.ahead_bytes)?)),
            None => None,
        };
        let progress = Progress { windows: 0, of: plan.windows, predicted_seconds: plan.predicted_seconds };
        observe(progress);
        clock.lap(|times| &mut times.read_seconds);
        let summing = self.summing(plan.ring, plan.device_logits_bytes > Bytes::ZERO);
        let passes = Vec::with_capacity(self.forward.at_once);
        let mut work = Work { case, windows, grid, parts, wanted, summing, progress, clock, passes };
        let plane = stored[1] * stored[2] * wanted.label_bytes();
        thread::scope(|scope| {
            let next = next.and_then(|((needed, next), memory)| {
                AheadThread::start(next, needed, &model.channels, memory, stop, scope)
            });
            let labels = LabelOutput::start(labels, plane, plan.queue_bytes, &self.budget, scope)?;
            let output = SliceOutput { labels, probabilities, waiting };
            self.write_case(&mut work, output, next, plan.logits_bytes, stop, observe)
        })?;
        Ok(PredictedCase { plan, times: work.clock.finish() })
    }

    /// Sums the windows of a case and writes its labels and probabilities. `room` bytes are free once the sums are gone.
    fn write_case(
        &mut self,
        work: &mut Work<'_>,
        mut output: SliceOutput<'_>,
        next: Option<AheadThread<'_>>,
        room: Bytes,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<(), InferError> {
        let case = work.case;
        let summed = self.sum(work, stop, observe, &mut |part, labels, probabilities| {
            output.write(part, labels, probabilities)
        });
        // The sums are gone, and what they held is room for this.
        let summed =
            summed.and_then(|()| output.write_waiting(&self.budget, room, &|| check_going(case, stop)));
        work.clock.lap(|times| &mut times.write_seconds);
        // The next case is waited for before files get their names: nothing that takes long is between that and the report that this case
        // is finished.
        if let Some(next) = next {
            next.join();
        }
        work.clock.lap(|times| &mut times.read_seconds);
        let written = match summed {
            Ok(()) => output.finish(),
            Err(error) => Err(output.cause_of(error)),
        };
        work.clock.lap(|times| &mut times.write_seconds);
        written
    }

    /// Returns the inspection of a case that can be predicted, made now or before its turn.
    fn inspect(
        &mut self,
        CaseInput { case, earlier, .. }: CaseInput<'_>,
        before: Option<Ahead>,
        stop: &AtomicBool,
    ) -> Result<InspectedCase, InferError> {
        let Ahead { inspected, cache, held } = match before {
            Some(before) => before,
            None => {
                let needed = Needed::of(case, earlier).ok().flatten();
                // An arena that leaves no room to look at the case goes before: what takes its place is planned with the case.
                if needed.is_some_and(|needed| needed.inspection > self.budget.free()) {
                    self.running = None;
                }
                look(case, needed, &self.model.channels, &self.budget, stop)
            }
        };
        check_going(case, stop)?;
        let (problems, fingerprint) = inspected?;
        if let Some(problem) = problems.into_iter().find(|problem| problem.severity == Severity::Error) {
            return Err(InferError::Unsound { problem: Box::new(problem) });
        }
        let fingerprint = fingerprint.ok_or_else(|| unreadable(case))?;
        let held = if cache.is_some() { held } else { Bytes::ZERO };
        Ok(InspectedCase { fingerprint, cache, held })
    }

    /// Puts an engine with a plan in the place of the one that exists, if there is a plan.
    fn replace_engine(&mut self, plan: Option<VerifiedPlan>) -> Result<(), InferError> {
        let Some(plan) = plan else { return Ok(()) };
        // The last arena goes before the next one comes.
        self.running = None;
        let buffer = &mut self.buffers.other;
        self.running = Some(Running::open(plan, &self.forward, &*self.backend, buffer, &self.budget)?);
        Ok(())
    }

    /// Returns the cache of a case: the one with what was decoded ahead, or an empty one. Compressed images are decompressed beside a file if
    /// there is one.
    fn cache(
        &self,
        decoded: Option<VolumeCache>,
        plan: &PredictPlan,
        beside: Option<&Path>,
    ) -> Result<VolumeCache, InferError> {
        let decoding = self.budget.part("decoding", plan.decoding_bytes)?;
        let cache = match decoded {
            Some(cache) => cache,
            None => VolumeCache::new(self.budget.part("cache", plan.cache_bytes)?),
        };
        let cache = cache.decoding_within(decoding);
        Ok(match beside {
            Some(path) => cache.spilling_beside(path),
            None => cache,
        })
    }

    /// Opens the images of a case within the memory of their preparation.
    fn open_windows(
        &mut self,
        place: CasePlace<'_>,
        images: CaseImages<'_>,
        fingerprint: &CaseFingerprint,
        cache: &VolumeCache,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<CaseWindows, InferError> {
        let scratch = &mut self.scratch;
        let request = OpenRequest { images, fingerprint, cache, scratch, budget, stop };
        let windows = place.open(&self.model, request);
        check_going(images.case, stop)?;
        windows
    }

    /// Returns the parts in which a case is traversed, and counts their windows in its plan: of an image that was cut, there are fewer than
    /// there may have been.
    fn parts(&self, grid: &TargetGrid, strips: Option<Strips>, plan: &mut PredictPlan) -> Vec<Rows> {
        let rows = self.rows(grid, plan.slab_axis);
        let parts: Vec<Rows> = rows.parts(grid, strips).collect();
        let folds = self.model.weights.len();
        let windows = parts.iter().map(Rows::windows).sum::<usize>().saturating_mul(folds);
        plan.predicted_seconds *= windows as f64 / plan.windows.max(1) as f64;
        plan.repeated_windows = windows.saturating_sub(rows.windows().saturating_mul(folds));
        plan.windows = windows;
        parts
    }

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

/// A case that was inspected.
struct InspectedCase {
    fingerprint: CaseFingerprint,
    /// Its images, if they were decoded.
    cache: Option<VolumeCache>,
    /// The bytes that are reserved for as long as the cache exists.
    held: Bytes,
}

/// Checks that the prediction of a case was not interrupted.
fn check_going(case: &Case, stop: &AtomicBool) -> Result<(), InferError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(InferError::Interrupted { case: case.id.clone() }),
        false => Ok(()),
    }
}

fn unreadable(case: &Case) -> InferError {
    InferError::Unreadable { case: case.id.clone() }
}

const WEIGHTS: &str = "a file of weights";

/// The most that opening any of a model's files of weights takes: the whole content of a pickle. Reading tensors takes nothing more.
fn opening_bytes(model: &SegmentationModel, budget: &Budget) -> Result<Bytes, InferError> {
    let mut most = Bytes::ZERO;
    for weights in &model.weights {
        // A ledger of its own, below a line that is free: what it takes at most is to be known.
        let room = Budget::new(budget.free());
        WeightFile::open_source(weights, &room).map_err(RunError::from)?;
        most = most.max(room.peak());
    }
    Ok(most)
}
