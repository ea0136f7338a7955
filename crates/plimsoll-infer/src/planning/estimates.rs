//! The plans of cases of which only headers are read, or only the grid is known.

use plimsoll_data::{Case, Reading};
use plimsoll_memory::Bytes;
use plimsoll_plan::VerifiedPlan;
use plimsoll_volume::{Spacing, VoxelBox};

use crate::cases::case_spacing::{CaseSpacing, CaseView};
use crate::cases::case_windows::{CaseImages, CasePlace};
use crate::cases::headers::Headers;
use crate::cases::request::{CaseGrid, CaseRequest};
use crate::error::{InferError, unreadable};
use crate::planning::case_needs::{CaseMemory, Planning};
use crate::planning::case_planner::PlannedCase;
use crate::planning::engines::least_engine;
use crate::planning::needs::CaseNeeds;
use crate::planning::plan::{CaseEstimate, PredictPlan};

impl Planning<'_> {
    /// Returns the window of a case from the headers of its images.
    ///
    /// # Errors
    /// Returns an error if a header cannot be read, or its spacing cannot be meant.
    pub(crate) fn window_by_headers(&self, request: &CaseRequest<'_>) -> Result<[usize; 3], InferError> {
        let case = request.case;
        let headers = Headers::read(case, request.earlier)?.ok_or_else(|| unreadable(case))?;
        let images = CaseImages {
            case,
            geometry: &headers.geometry,
            stated: headers.stated,
            nonzero_box: VoxelBox::whole(headers.geometry.shape()),
            earlier: request.earlier,
            within: request.within,
            spacing: self.spacing_of(case),
        };
        Ok(CasePlace::new(&self.network.model, images)?.window(&self.network.model))
    }

    /// Returns the window of a case of which only the grid is known.
    ///
    /// # Errors
    /// Returns an error if its spacing cannot be meant.
    pub(crate) fn window_of_grid(&self, planned: &CaseGrid<'_>) -> Result<[usize; 3], InferError> {
        let case = case_of_grid(planned);
        let place = CasePlace::new(&self.network.model, images_of_grid(&case, planned))?;
        Ok(place.window(&self.network.model))
    }

    /// Plans cases; `ahead` says what the case behind each is read in meanwhile.
    pub(crate) fn plan_beside(
        &self,
        requests: &[CaseRequest<'_>],
        ahead: impl Fn(usize) -> Option<Bytes>,
    ) -> Result<Vec<Result<CaseEstimate, InferError>>, InferError> {
        let least = least_engine(&self.network.forward.program, &*self.network.backend)?.arena;
        let least_with = |otherwise| self.alternatives.least_with(otherwise, self.network);
        let mut known: Option<VerifiedPlan> = None;
        let mut plans = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate() {
            let mut planner = self.planner(&least_with, Bytes::ZERO);
            // An arena that fits beside one case is kept for the next one, if it fits.
            planner.running = known.as_ref().or(planner.running);
            let planned = self.needs_by_headers(request, ahead(number)).and_then(|needs| {
                let planned = planner.plan(&needs)?;
                let least_ram_bytes = planner.least_limit(&needs, least, planned.left_there);
                planner.expect_inspection(&needs, least_ram_bytes)?;
                Ok((planned, least_ram_bytes))
            });
            plans.push(planned.map(|(PlannedCase { plan, next, .. }, least_ram_bytes)| {
                known = next.or(known.take());
                CaseEstimate { plan, least_ram_bytes }
            }));
        }
        Ok(plans)
    }

    /// Returns the view on a case at a spacing, or at the model's, from the headers of its images alone.
    ///
    /// # Errors
    /// Returns an error if a header cannot be read, the spacing cannot be meant, or the model cannot see cases at another one than its own.
    pub(crate) fn view(
        &self,
        request: &CaseRequest<'_>,
        spacing: Option<CaseSpacing>,
    ) -> Result<CaseView, InferError> {
        let (needs, spacing) = self.seen_by_headers(request, spacing, None)?;
        Ok(CaseView { windows: needs.windows, spacing })
    }

    fn needs_by_headers(
        &self,
        request: &CaseRequest<'_>,
        ahead: Option<Bytes>,
    ) -> Result<CaseNeeds, InferError> {
        Ok(self.seen_by_headers(request, self.spacing_of(request.case), ahead)?.0)
    }

    /// Returns the needs of a case at a spacing, or at the model's, and the spacing to which its images are resampled.
    fn seen_by_headers(
        &self,
        request: &CaseRequest<'_>,
        spacing: Option<CaseSpacing>,
        ahead: Option<Bytes>,
    ) -> Result<(CaseNeeds, Spacing), InferError> {
        let case = request.case;
        let headers = Headers::read(case, request.earlier)?;
        let headers = headers.ok_or_else(|| unreadable(case))?;
        let images = CaseImages {
            case,
            geometry: &headers.geometry,
            stated: headers.stated,
            nonzero_box: VoxelBox::whole(headers.geometry.shape()),
            earlier: request.earlier,
            within: request.within,
            spacing,
        };
        let place = CasePlace::new(&self.network.model, images)?;
        let ahead = ahead.unwrap_or(Bytes::ZERO);
        let memory = CaseMemory {
            decoded: headers.decoded,
            compressed: headers.compressed,
            decoding: headers.decoding,
            ahead,
            is_cut: false,
            waits_in_memory: false,
        };
        let needs = self.needs(images, &place, request.probabilities.is_some(), memory)?;
        Ok((needs, place.target()))
    }

    /// Plans what predicting a case would hold and take of which only the grid is known, as if no plane of it were empty: a model that
    /// cuts images to what is not zero may hold less of the case itself. Nothing is allocated for it.
    ///
    /// # Errors
    /// Returns an error if the limit is too low for it, or its spacing cannot be meant.
    pub(crate) fn plan_grid(&self, planned: &CaseGrid<'_>) -> Result<PredictPlan, InferError> {
        let needs = self.needs_of_grid(planned)?;
        Ok(self.plan_needs(&needs, Bytes::ZERO)?.plan)
    }

    /// Plans a case as [`plan_grid`](Planning::plan_grid) does, and finds the least limit that would do.
    ///
    /// # Errors
    /// Returns the errors of [`plan_grid`](Planning::plan_grid).
    pub(crate) fn estimate_grid(&self, planned: &CaseGrid<'_>) -> Result<CaseEstimate, InferError> {
        let needs = self.needs_of_grid(planned)?;
        let least = least_engine(&self.network.forward.program, &*self.network.backend)?.arena;
        let least_with = |otherwise| self.alternatives.least_with(otherwise, self.network);
        let planner = self.planner(&least_with, Bytes::ZERO);
        let planned = planner.plan(&needs)?;
        let least_ram_bytes = planner.least_limit(&needs, least, planned.left_there);
        Ok(CaseEstimate { plan: planned.plan, least_ram_bytes })
    }

    /// Returns the needs of a case of which only the grid is known.
    fn needs_of_grid(&self, planned: &CaseGrid<'_>) -> Result<CaseNeeds, InferError> {
        let CaseGrid { geometry, element, .. } = *planned;
        let case = case_of_grid(planned);
        let images = images_of_grid(&case, planned);
        let place = CasePlace::new(&self.network.model, images)?;
        let voxels = (geometry.voxel_count() as u64).saturating_mul(element.size() as u64);
        let decoded = Bytes(voxels.saturating_mul(self.network.model.channels.len() as u64));
        let memory = CaseMemory {
            decoded,
            compressed: Bytes::ZERO,
            decoding: Bytes::ZERO,
            ahead: Bytes::ZERO,
            is_cut: false,
            waits_in_memory: true,
        };
        self.needs(images, &place, false, memory)
    }
}

/// A case of a grid, without files.
fn case_of_grid(planned: &CaseGrid<'_>) -> Case {
    Case { id: planned.name.into(), images: Vec::new(), label: None, reading: Reading::default() }
}

/// The images of a case of which only the grid is known.
fn images_of_grid<'a>(case: &'a Case, planned: &'a CaseGrid<'_>) -> CaseImages<'a> {
    let geometry = &planned.geometry;
    CaseImages {
        case,
        geometry,
        stated: geometry.spacing(),
        nonzero_box: VoxelBox::whole(geometry.shape()),
        earlier: None,
        within: None,
        spacing: None,
    }
}
