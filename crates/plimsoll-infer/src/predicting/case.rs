//! The prediction of a case, from its files to its files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use plimsoll_data::{CaseFingerprint, KeptImage, Severity, TargetGrid, VolumeCache};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, VolumeFile};

use crate::cases::ahead::{Ahead, AheadThread, LookAhead, Needed, look};
use crate::cases::case_windows::{CaseImages, CasePlace, CaseWindows, OpenRequest};
use crate::cases::headers::Headers;
use crate::cases::request::CaseInput;
use crate::cases::shared_image::SharedImage;
use crate::error::{InferError, check_going, unreadable};
use crate::labels::label_output::LabelOutput;
use crate::labels::npz::ProbabilityWriter;
use crate::labels::slice_output::{SliceOutput, Waiting};
use crate::labels::spool::Record;
use crate::labels::wanted::Wanted;
use crate::located::steps_of;
use crate::planning::case_needs::CaseMemory;
use crate::planning::case_planner::PlannedCase;
use crate::planning::plan::PredictPlan;
use crate::predicting::predictor::{CaseOutput, PredictedCase, Predictor};
use crate::progress::{Clock, Progress};
use crate::summing::rows::{Rows, Strips};
use crate::summing::work::Work;

/// A case that was inspected.
struct InspectedCase {
    fingerprint: CaseFingerprint,
    /// Its images, if they were decoded.
    cache: Option<VolumeCache>,
    /// The bytes that are reserved for as long as the cache exists.
    held: Bytes,
}

/// The memory and the disk in which images are opened.
struct OpenRoom<'a> {
    /// The image as networks see it, which other models share.
    kept: Option<&'a mut KeptImage>,
    cache: &'a VolumeCache,
    /// The memory of the preparation.
    budget: &'a Budget,
}

impl Predictor {
    /// Predicts a case that was inspected before its turn, or not; meanwhile, as far as the memory limit leaves room for it, the next one is.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Predictor::predict). The next case may have been inspected then, or not.
    pub(crate) fn predict_case(
        &mut self,
        input: CaseInput<'_>,
        output: CaseOutput<'_>,
        LookAhead { before, next, mut shared }: LookAhead<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        // Shared, so that the engine can be replaced while the model's answers and steps are in use.
        let model = Arc::clone(&self.network.model);
        if let Some(steps) = steps_of(&model.preparation) {
            return self.predict_located(steps, input, output, stop, observe);
        }
        let CaseOutput { labels, probabilities } = output;
        let case = input.case;
        let mut clock = Clock::start();
        check_going(case, stop)?;
        let InspectedCase { fingerprint, cache, held } =
            self.inspect(input, before, shared.as_deref_mut(), stop)?;
        let template = VolumeFile::open(&case.images.first().ok_or_else(|| unreadable(case))?.path)?;
        let headers = Headers::read(case, input.earlier)?.ok_or_else(|| unreadable(case))?;
        let spacing = self.planning().spacing_of(case);
        let images = CaseImages::inspected(input, &fingerprint, headers.stated, spacing);
        let place = CasePlace::new(&model, images)?;
        self.fit(place.window(&model))?;
        let next = next.and_then(|next| Some((Needed::read(next.case, next.earlier).ok()??, next)));
        let ahead = next.as_ref().map_or(Bytes::ZERO, |(needed, _)| needed.ahead());
        let memory = CaseMemory::from_headers(&headers, held, ahead, labels.waits_beside().is_some());
        let kept = shared.map(|shared| &mut shared.kept);
        let memory = memory.unless(kept.as_ref().is_some_and(|kept| place.is_kept_in(kept, images)));
        let needs = self.planning().needs(images, &place, probabilities.is_some(), memory)?;
        let planned = self.planning().plan_needs(&needs, held)?;
        let PlannedCase { mut plan, next: engine, strips, is_spooled, .. } = planned;
        // What was decoded ahead stays where there is room for all of it; else it makes room before anything else is reserved.
        let cache = cache.filter(|_| plan.cache_bytes >= held);
        self.network.replace_engine(engine)?;
        let cache = self.cache(cache, &plan, labels.waits_beside())?;
        clock.lap(|times| &mut times.read_seconds);
        let preparation = self.network.budget.part("preparation", plan.preparation_bytes)?;
        let room = OpenRoom { kept, cache: &cache, budget: &preparation };
        let windows = self.open_windows(place, images, &fingerprint, room, stop)?;
        clock.lap(|times| &mut times.prepare_seconds);
        let grid = *windows.grid();
        let parts = self.parts(&grid, strips, &mut plan);
        let wanted = Wanted::new(&model.answers, probabilities.is_some());
        let stored = fingerprint.geometry.shape();
        let waiting = match is_spooled {
            false => None,
            true => {
                let records = Record::for_case(stored, plan.slab_axis, wanted);
                let beside = labels.waits_beside().filter(|_| plan.spool_bytes == Bytes::ZERO);
                Some(Waiting::open(records, beside, probabilities, &self.network.budget)?)
            }
        };
        let element = if wanted.label_bytes() == 1 { ElementType::U8 } else { ElementType::U16 };
        // Whatever unit its lengths are in, labels are on the grid that the image has.
        labels.begin(template.geometry(), element, template.header())?;
        drop(template);
        let create = |path| ProbabilityWriter::create(path, model.answers.outputs(), stored);
        let probabilities = probabilities.map(create).transpose()?;
        let next = match next.filter(|_| plan.ahead_bytes > Bytes::ZERO) {
            Some(next) => Some((next, self.network.budget.part("the next case", plan.ahead_bytes)?)),
            None => None,
        };
        let progress = Progress { windows: 0, of: plan.windows, predicted_seconds: plan.predicted_seconds };
        observe(progress);
        clock.lap(|times| &mut times.read_seconds);
        let summing = self.network.summing(plan.ring, plan.device_logits_bytes > Bytes::ZERO);
        let passes = Vec::with_capacity(self.network.forward.at_once);
        let mut work = Work { case, windows, grid, parts, wanted, summing, progress, clock, passes };
        let plane = stored[1] * stored[2] * wanted.label_bytes();
        thread::scope(|scope| {
            let next = next.and_then(|((needed, next), memory)| {
                AheadThread::start(next, needed, &model.channels, memory, stop, scope)
            });
            let labels = LabelOutput::start(labels, plane, plan.queue_bytes, &self.network.budget, scope)?;
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
        let summed = self.network.sum(work, stop, observe, &mut |part, labels, probabilities| {
            output.write(part, labels, probabilities)
        });
        // The sums are gone, and what they held is room for this.
        let summed = summed
            .and_then(|()| output.write_waiting(&self.network.budget, room, &|| check_going(case, stop)));
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

    /// Returns the inspection of a case that can be predicted, made now, before its turn, or for another model.
    fn inspect(
        &mut self,
        CaseInput { case, earlier, .. }: CaseInput<'_>,
        before: Option<Ahead>,
        shared: Option<&mut SharedImage>,
        stop: &AtomicBool,
    ) -> Result<InspectedCase, InferError> {
        let channels = self.network.model.channels.len();
        if let Some(known) = shared.as_ref().and_then(|shared| shared.fingerprint(channels)) {
            return Ok(InspectedCase { fingerprint: known.clone(), cache: None, held: Bytes::ZERO });
        }
        let Ahead { inspected, cache, held } = match before {
            Some(before) => before,
            None => {
                let needed = Needed::read(case, earlier).ok().flatten();
                // An arena that leaves no room to look at the case goes before: what takes its place is planned with the case.
                if needed.is_some_and(|needed| needed.inspection > self.network.budget.free()) {
                    self.network.running = None;
                }
                look(case, needed, &self.network.model.channels, &self.network.budget, stop)
            }
        };
        check_going(case, stop)?;
        let (problems, fingerprint) = inspected?;
        if let Some(problem) = problems.into_iter().find(|problem| problem.severity == Severity::Error) {
            return Err(InferError::Unsound { problem: Box::new(problem) });
        }
        let fingerprint = fingerprint.ok_or_else(|| unreadable(case))?;
        if let Some(shared) = shared {
            shared.inspected(&fingerprint);
        }
        let held = if cache.is_some() { held } else { Bytes::ZERO };
        Ok(InspectedCase { fingerprint, cache, held })
    }

    /// Returns the cache of a case: the one with what was decoded ahead, or an empty one. Compressed images are decompressed beside a file if
    /// there is one.
    fn cache(
        &self,
        decoded: Option<VolumeCache>,
        plan: &PredictPlan,
        beside: Option<&Path>,
    ) -> Result<VolumeCache, InferError> {
        let decoding = self.network.budget.part("decoding", plan.decoding_bytes)?;
        let cache = match decoded {
            Some(cache) => cache,
            None => VolumeCache::new(self.network.budget.part("cache", plan.cache_bytes)?),
        };
        let cache = cache.decoding_within(decoding);
        Ok(match beside {
            Some(path) => cache.spilling_beside(path),
            None => cache,
        })
    }

    /// Opens the images of a case.
    fn open_windows(
        &mut self,
        place: CasePlace<'_>,
        images: CaseImages<'_>,
        fingerprint: &CaseFingerprint,
        OpenRoom { kept, cache, budget }: OpenRoom<'_>,
        stop: &AtomicBool,
    ) -> Result<CaseWindows, InferError> {
        let scratch = &mut self.network.scratch;
        let request = OpenRequest { images, fingerprint, kept, cache, scratch, budget, stop };
        let windows = place.open(&self.network.model, request);
        check_going(images.case, stop)?;
        windows
    }

    /// Returns the parts in which a case is traversed, and counts their windows in its plan: of an image that was cut, there are fewer than
    /// there may have been.
    fn parts(&self, grid: &TargetGrid, strips: Option<Strips>, plan: &mut PredictPlan) -> Vec<Rows> {
        let rows = self.network.rows(grid, plan.slab_axis);
        let parts: Vec<Rows> = rows.parts(grid, strips).collect();
        let folds = self.network.model.weights.len();
        let windows = parts.iter().map(Rows::windows).sum::<usize>().saturating_mul(folds);
        plan.predicted_seconds *= windows as f64 / plan.windows.max(1) as f64;
        plan.repeated_windows = windows.saturating_sub(rows.windows().saturating_mul(folds));
        plan.windows = windows;
        parts
    }
}
