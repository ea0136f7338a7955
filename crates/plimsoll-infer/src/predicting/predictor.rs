//! A model ready to predict: what callers need of planning and prediction.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_data::Case;
use plimsoll_memory::{Budget, Bytes, Overhead, Reservation};
use plimsoll_models::{SegmentationModel, WindowLayout};
use plimsoll_plan::{Backend, engine_bytes};
use serde::Serialize;

use crate::cases::ahead::{LookAhead, Needed};
use crate::cases::case_spacing::{CaseSpacing, CaseView};
use crate::cases::request::{CaseGrid, CaseInput, CaseRequest};
use crate::cases::shared_image::SharedImage;
use crate::error::InferError;
use crate::labels::label_sink::{LabelFile, LabelSink};
use crate::located::steps_of;
use crate::options::PredictOptions;
use crate::planning::case_needs::Planning;
use crate::planning::engines::{Alternatives, overhead};
use crate::planning::interior::window_below;
use crate::planning::plan::{CaseEstimate, PredictPlan};
use crate::progress::{CaseTimes, Progress};
use crate::summing::sliding_window::SlidingWindow;

/// The destination of the labels and probabilities of a case.
pub struct CaseOutput<'a> {
    /// The sink of its labels.
    pub labels: &'a mut (dyn LabelSink + Send),
    /// See [`CaseRequest`].
    pub probabilities: Option<&'a Path>,
}

/// The plan and the times of a predicted case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedCase {
    /// Its plan.
    pub plan: PredictPlan,
    /// Its times.
    pub times: CaseTimes,
}

/// A model ready to predict.
pub struct Predictor {
    pub(crate) network: SlidingWindow,
    overhead: Reservation,
    /// The spacings of cases that are seen at another one than the model's, by name.
    spacings: BTreeMap<String, CaseSpacing>,
    alternatives: Alternatives,
    /// The bytes that are reserved for the network, without an engine.
    held: Bytes,
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

    /// Returns a predictor that reserves `overhead` bytes for the process itself.
    fn beside(
        overhead: Bytes,
        model: SegmentationModel,
        options: PredictOptions,
        backend: Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<Predictor, InferError> {
        // The caller's thread is always one. Each of two looks has one window.
        let is_located = steps_of(&model.preparation).is_some();
        let window_batch = if is_located { 1 } else { options.window_batch.max(1) };
        let threads = options.threads.max(1);
        let options = PredictOptions { threads, window_batch, ..options };
        let overhead = budget.reserve("overhead", overhead).map_err(InferError::Overhead)?;
        let patch = window_below(&model, &options, &*backend, budget)?;
        let model = SegmentationModel { patch, ..model };
        let before = budget.used();
        let network = SlidingWindow::new(model, options, backend, budget)?;
        let held = budget.used() - before;
        let (spacings, alternatives) = (BTreeMap::new(), Alternatives::default());
        Ok(Predictor { network, overhead, spacings, alternatives, held })
    }

    /// Fits the network to the window of a case, if it has another one.
    ///
    /// # Errors
    /// Returns an error if the network does not take the window, or the budget has no room.
    pub(crate) fn fit(&mut self, window: [usize; 3]) -> Result<(), InferError> {
        if window == self.network.model.patch {
            return Ok(());
        }
        self.network.running = None;
        let others = self.network.budget.used() - self.held;
        self.network.fit(window)?;
        self.held = self.network.budget.used() - others;
        self.alternatives = Alternatives::default();
        Ok(())
    }

    /// Returns a predictor that is fitted to the window of a case, to plan with: on a ledger of its own, where all that is reserved beside this
    /// one's network is reserved too. `None` if this one is fitted to it.
    pub(crate) fn fitted_to(
        &self,
        window: [usize; 3],
    ) -> Result<Option<(Predictor, Reservation)>, InferError> {
        if window == self.network.model.patch {
            return Ok(None);
        }
        self.fitted_on(window, Budget::new(self.network.budget.limit())).map(Some)
    }

    /// Returns a predictor that is fitted to the window of a case, on a ledger, with the reservation of all that is reserved beside this one's
    /// network.
    pub(crate) fn fitted_on(
        &self,
        window: [usize; 3],
        ledger: Budget,
    ) -> Result<(Predictor, Reservation), InferError> {
        let network = &self.network;
        let running = network.running.as_ref().map(|running| running.engine.plan());
        let engine = running.map_or(Bytes::ZERO, |plan| engine_bytes(&*network.backend, plan));
        let overhead = self.overhead.bytes();
        let others = ledger.reserve("others", network.budget.used() - self.held - engine - overhead)?;
        let model = SegmentationModel { patch: window, ..(*network.model).clone() };
        let backend = Arc::clone(&network.backend);
        let mut fitted = Predictor::beside(overhead, model, network.options, backend, &ledger)?;
        fitted.spacings = self.spacings.clone();
        Ok((fitted, others))
    }

    /// The bytes of the process itself.
    pub(crate) fn overhead(&self) -> Bytes {
        self.overhead.bytes()
    }

    /// Plans cases, each with the network fitted to its window; `ahead` returns the bytes in which the case behind each is read meanwhile.
    fn plan_each(
        &self,
        requests: &[CaseRequest<'_>],
        ahead: impl Fn(usize) -> Option<Bytes>,
    ) -> Result<Vec<Result<CaseEstimate, InferError>>, InferError> {
        if let Some(steps) = steps_of(&self.model().preparation) {
            return Ok(requests.iter().map(|request| self.estimate_located(steps, request)).collect());
        }
        if !matches!(self.model().windows, WindowLayout::Whole { .. }) {
            return self.planning().plan_beside(requests, ahead);
        }
        let mut plans = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate() {
            let one = std::slice::from_ref(request);
            let fitted = self.planning().window_by_headers(request).and_then(|window| self.fitted_to(window));
            match fitted {
                Ok(Some((fitted, _))) => plans.extend(fitted.planning().plan_beside(one, |_| ahead(number))?),
                Ok(None) => plans.extend(self.planning().plan_beside(one, |_| ahead(number))?),
                Err(error) => plans.push(Err(error)),
            }
        }
        Ok(plans)
    }

    /// The model.
    pub fn model(&self) -> &SegmentationModel {
        &self.network.model
    }

    /// Sees a case at another spacing than the model's from now on, wherever it is planned or predicted. Labels are on the grid of its images
    /// whatever the spacing is.
    pub fn see_at(&mut self, case: &Case, spacing: CaseSpacing) {
        self.spacings.insert(case.id.clone(), spacing);
    }

    /// Frees the engine of the last case if it leaves no room for `bytes` beside it. The next case opens another one.
    pub fn make_room(&mut self, bytes: Bytes) {
        if bytes > self.network.budget.free() {
            self.network.running = None;
        }
    }

    /// Plans some cases, one after the other as [`predict_cases`](crate::predict_cases) predicts them, so that beside each but the last the
    /// next one is read. Headers alone are opened: nothing is allocated, and no voxel is read.
    ///
    /// # Errors
    /// Returns an error if the network cannot be planned. The result of a case is an error if a header cannot be read, its spacing is not
    /// plausible, or the memory limit is too low for it.
    pub fn plan(
        &self,
        requests: &[CaseRequest<'_>],
    ) -> Result<Vec<Result<CaseEstimate, InferError>>, InferError> {
        self.plan_each(requests, |number| {
            // What is wrong with the next case is told at its turn.
            let next = requests.get(number + 1)?;
            Some(Needed::read(next.case, next.earlier).ok()??.ahead())
        })
    }

    /// Plans each of some cases as [`plan`](Predictor::plan) does, but as if it were predicted alone: no other is read beside it.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Predictor::plan).
    pub fn plan_alone(
        &self,
        requests: &[CaseRequest<'_>],
    ) -> Result<Vec<Result<CaseEstimate, InferError>>, InferError> {
        self.plan_each(requests, |_| None)
    }

    /// Returns the view on a case at a spacing, or at the model's, from the headers of its images alone.
    ///
    /// # Errors
    /// Returns an error if a header cannot be read, the spacing is not plausible, or the model cannot see cases at another one than its own.
    pub fn view(
        &self,
        request: &CaseRequest<'_>,
        spacing: Option<CaseSpacing>,
    ) -> Result<CaseView, InferError> {
        self.planning().view(request, spacing)
    }

    /// Plans a case of which only the grid is known, as if no plane of it were empty: a model that cuts images to what is not zero may need
    /// less for the case itself. Nothing is allocated for it.
    ///
    /// # Errors
    /// Returns an error if the memory limit is too low for it, or its spacing is not plausible.
    pub fn plan_grid(&self, planned: &CaseGrid<'_>) -> Result<PredictPlan, InferError> {
        if steps_of(&self.model().preparation).is_some() {
            return Ok(self.estimate_grid(planned)?.plan);
        }
        match self.fitted_to(self.planning().window_of_grid(planned)?)? {
            Some((fitted, _others)) => fitted.planning().plan_grid(planned),
            None => self.planning().plan_grid(planned),
        }
    }

    /// Plans a case as [`plan_grid`](Predictor::plan_grid) does, and finds the least limit that would do.
    ///
    /// # Errors
    /// Returns the errors of [`plan_grid`](Predictor::plan_grid).
    pub fn estimate_grid(&self, planned: &CaseGrid<'_>) -> Result<CaseEstimate, InferError> {
        if let Some(steps) = steps_of(&self.model().preparation) {
            return self.estimate_located_grid(steps, planned.name, &planned.geometry, Bytes::ZERO);
        }
        match self.fitted_to(self.planning().window_of_grid(planned)?)? {
            Some((fitted, _others)) => fitted.planning().estimate_grid(planned),
            None => self.planning().estimate_grid(planned),
        }
    }

    /// Predicts a case and writes its labels, with the geometry and header of its first image. Returns its plan and its times.
    /// [`predict_cases`](crate::predict_cases) keeps files that exist, and refuses to replace images.
    ///
    /// # Errors
    /// Returns an error if an image is not sound, its spacing is not plausible, the network's output is not finite, memory or disk are
    /// refused, or `stop` is set; then nothing is written.
    pub fn predict(
        &mut self,
        request: &CaseRequest<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        self.predict_between(request, LookAhead::default(), stop, observe)
    }

    /// Predicts a case as [`predict`](Self::predict) does. Models that are given the same `shared` inspect the image once, and resample it once
    /// if they see it alike; labels are the same.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Self::predict).
    pub fn predict_shared(
        &mut self,
        request: &CaseRequest<'_>,
        shared: &mut SharedImage,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        let around = LookAhead { shared: Some(shared), ..LookAhead::default() };
        self.predict_between(request, around, stop, observe)
    }

    /// Predicts a case and hands its labels over plane by plane, and probabilities to a file where one is named. Returns its plan and its
    /// times.
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

    /// Predicts a case into its files, with inspections that go along with it.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Self::predict). The next case may have been inspected then, or not.
    pub(crate) fn predict_between(
        &mut self,
        request: &CaseRequest<'_>,
        around: LookAhead<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        let CaseRequest { case, earlier, within, labels, probabilities } = *request;
        let mut labels = LabelFile::new(labels);
        let output = CaseOutput { labels: &mut labels, probabilities };
        self.predict_case(CaseInput { case, earlier, within }, output, around, stop, observe)
    }

    /// Returns what planning needs of it.
    pub(crate) fn planning(&self) -> Planning<'_> {
        let Predictor { network, overhead, spacings, alternatives, .. } = self;
        Planning { network, spacings, overhead: overhead.bytes(), alternatives }
    }
}
