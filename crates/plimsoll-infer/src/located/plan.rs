//! The memory of both looks at an image, from its header.

use plimsoll_data::{Case, LocatedSteps, Preparation};
use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::Geometry;

use crate::cases::headers::Headers;
use crate::cases::request::CaseRequest;
use crate::error::{InferError, unreadable};
use crate::located::fault::LocatedFault;
use crate::located::mark;
use crate::options::{RingStorage, Summed};
use crate::planning::case_planner::PlannedCase;
use crate::planning::engines::least_engine;
use crate::planning::needs::{CaseNeeds, LogitsBytes, LogitsNeeds, SpoolNeeds};
use crate::planning::plan::{CaseEstimate, PredictPlan};
use crate::predicting::predictor::Predictor;

/// Two windows: all of the image, and the box.
pub(super) const LOOKS: usize = 2;

/// The properties of a case on which both looks depend.
pub(super) struct LocatedCase<'a> {
    pub(super) name: &'a str,
    pub(super) geometry: &'a Geometry,
    /// The bytes that decoding the image takes.
    pub(super) decoding: Bytes,
}

/// The plan of both looks.
pub(super) struct LocatedPlan {
    /// The plan of the look that takes more, with the windows and seconds of both.
    pub(super) plan: PredictPlan,
    /// The least limit that would do.
    pub(super) least: Bytes,
}

/// The steps of a model of two networks.
pub(crate) fn steps_of(preparation: &Preparation) -> Option<&LocatedSteps> {
    match preparation {
        Preparation::Located(steps) => Some(steps),
        _ => None,
    }
}

impl Predictor {
    /// Plans both looks at a case by the header of its image.
    ///
    /// # Errors
    /// Returns an error if the header cannot be read, probabilities are wanted, or the memory limit is too low.
    pub(crate) fn estimate_located(
        &self,
        steps: &LocatedSteps,
        request: &CaseRequest<'_>,
    ) -> Result<CaseEstimate, InferError> {
        let CaseRequest { case, earlier, probabilities, .. } = *request;
        expect_labels_alone(case, probabilities.is_some())?;
        let headers = Headers::read(case, earlier)?.ok_or_else(|| unreadable(case))?;
        let (geometry, decoding) = (&headers.geometry, headers.decoding);
        self.estimate_located_grid(steps, &case.id, geometry, decoding)
    }

    /// Plans both looks at a case of which only the grid is known, and the bytes that decoding it takes.
    ///
    /// # Errors
    /// Returns an error if the memory limit is too low.
    pub(crate) fn estimate_located_grid(
        &self,
        steps: &LocatedSteps,
        name: &str,
        geometry: &Geometry,
        decoding: Bytes,
    ) -> Result<CaseEstimate, InferError> {
        let LocatedPlan { plan, least } =
            self.plan_located(steps, &LocatedCase { name, geometry, decoding })?;
        Ok(CaseEstimate { plan, least_ram_bytes: least })
    }

    /// Plans both looks, each with the network fitted to it.
    ///
    /// # Errors
    /// Returns the error of the look that needs the higher limit, so that its remedy suffices for both.
    pub(super) fn plan_located(
        &self,
        steps: &LocatedSteps,
        case: &LocatedCase<'_>,
    ) -> Result<LocatedPlan, InferError> {
        let looks = [steps.coarse, steps.fine].map(|window| self.plan_look(steps, case, window));
        let [coarse, fine] = match looks {
            [Ok(coarse), Ok(fine)] => [coarse, fine],
            [Err(coarse), Err(fine)] if needed(&fine) > needed(&coarse) => return Err(fine),
            [Err(error), _] | [_, Err(error)] => return Err(error),
        };
        let seconds = coarse.plan.predicted_seconds + fine.plan.predicted_seconds;
        let least = coarse.least.max(fine.least);
        let larger = if coarse.plan.total_bytes > fine.plan.total_bytes { coarse } else { fine };
        let plan = PredictPlan { windows: LOOKS, predicted_seconds: seconds, ..larger.plan };
        Ok(LocatedPlan { plan, least })
    }

    /// Plans a look at a window with a network that is fitted to it. If the limit has no room for its windows, the least limit is found on a ledger
    /// without one.
    fn plan_look(
        &self,
        steps: &LocatedSteps,
        case: &LocatedCase<'_>,
        window: [usize; 3],
    ) -> Result<LocatedPlan, InferError> {
        match self.fitted_to(window) {
            Ok(Some((fitted, _others))) => fitted.plan_fitted_look(steps, case),
            Ok(None) => self.plan_fitted_look(steps, case),
            Err(InferError::Memory(_) | InferError::OverBudget(_) | InferError::Overhead(_)) => {
                let (fitted, _others) = self.fitted_on(window, Budget::new(Bytes(u64::MAX / 2)))?;
                let LocatedPlan { plan, least } = fitted.plan_fitted_look(steps, case)?;
                Err(self.too_large(case, least, plan.window_bytes))
            }
            Err(error) => Err(error),
        }
    }

    /// The error of a case that needs a higher limit than there is.
    fn too_large(&self, case: &LocatedCase<'_>, needed: Bytes, windows: Bytes) -> InferError {
        let (case, limit, overhead) = (case.name.into(), self.network.budget.limit(), self.overhead());
        let rest = needed - windows - overhead;
        let parts = format!("windows {windows}, arena and marks {rest}, overhead {overhead}");
        InferError::Infeasible { case, needed, limit, parts, alternatives: Vec::new() }
    }

    /// Plans a look at the window that the network is fitted to.
    fn plan_fitted_look(
        &self,
        steps: &LocatedSteps,
        case: &LocatedCase<'_>,
    ) -> Result<LocatedPlan, InferError> {
        let network = &self.network;
        let needs = self.located_needs(steps, case)?;
        let least = least_engine(&network.forward.program, &*network.backend)?.arena;
        let least_with = |otherwise| self.planning().alternatives.least_with(otherwise, network);
        let planning = self.planning();
        let planner = planning.planner(&least_with, Bytes::ZERO);
        let PlannedCase { plan, left_there, .. } = planner.plan(&needs)?;
        let least = planner.least_limit(&needs, least, left_there);
        // The planner fits the arena; what follows it may take more.
        match least > network.budget.limit() {
            true => Err(self.too_large(case, least, plan.window_bytes)),
            false => Ok(LocatedPlan { plan: with_marks(plan, least), least }),
        }
    }

    /// Returns the needs of a look at the window that the network is fitted to.
    pub(super) fn located_needs(
        &self,
        steps: &LocatedSteps,
        case: &LocatedCase<'_>,
    ) -> Result<CaseNeeds, InferError> {
        let (network, threads) = (&self.network, self.network.options.threads);
        let window = network.model.patch;
        let none = LogitsBytes { in_f32: Bytes::ZERO, in_f16: Bytes::ZERO };
        let [_, height, width] = case.geometry.shape();
        let plane = Mapped::<f32>::bytes(height.saturating_mul(width))?;
        let marked = Mapped::<u8>::bytes(window.iter().product())?;
        // Once the network has run, its arena is room for this if there is no other.
        let afterwards = if window == steps.fine {
            // The box may be all of the image.
            mark::bytes(case.geometry.shape(), threads)
        } else {
            mark::bytes(window, threads)
        };
        Ok(CaseNeeds {
            case: case.name.into(),
            slab_axis: 0,
            logits: LogitsNeeds { by_host: none, by_host_of_one: none, by_device: None },
            strips: Vec::new(),
            spool: SpoolNeeds { labels: Bytes::ZERO, is_in_memory: false, probabilities: Bytes::ZERO },
            summed: Summed::Logits,
            ring: Some(RingStorage::F32),
            inspection: plane + marked + case.decoding + afterwards,
            preparation: plane + marked,
            decoding: case.decoding,
            decoded: Bytes::ZERO,
            compressed: Bytes::ZERO,
            queue: Bytes::ZERO,
            least_queue: Bytes::ZERO,
            ahead: Bytes::ZERO,
            windows: 1,
            looks: 1,
            runs: 1,
            window_batch: network.options.window_batch,
        })
    }
}

/// The limit that an error asks for; `None` for other faults.
fn needed(error: &InferError) -> Option<Bytes> {
    match error {
        InferError::Infeasible { needed, .. } => Some(*needed),
        _ => None,
    }
}

/// A plan that counts what follows the network as preparation, where that takes more than the network.
fn with_marks(plan: PredictPlan, least: Bytes) -> PredictPlan {
    let more = least.max(plan.total_bytes) - plan.total_bytes;
    PredictPlan {
        preparation_bytes: plan.preparation_bytes + more,
        total_bytes: plan.total_bytes + more,
        minimum_ram_bytes: plan.minimum_ram_bytes.max(least),
        ..plan
    }
}

/// Checks that only labels are wanted.
///
/// # Errors
/// Returns an error if probabilities are.
pub(super) fn expect_labels_alone(case: &Case, probabilities: bool) -> Result<(), InferError> {
    match probabilities {
        false => Ok(()),
        true => Err(InferError::Located { case: case.id.clone(), source: LocatedFault::Probabilities }),
    }
}
