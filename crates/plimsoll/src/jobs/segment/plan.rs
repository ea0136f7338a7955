//! The memory and the time of a task, from the headers of images alone.

use std::path::Path;

use plimsoll_data::{Case, FoundImages};
use plimsoll_infer::{PredictOptions, zoomed_image};
use plimsoll_memory::Bytes;
use plimsoll_models::total_segmentator::{PartModel, SegmentatorTask};

use super::encoded::is_encoded;
use super::input::images;
use super::stages::{Stage, least_limit, open};
use super::{Job, STEPS, SegmentRequest, Tasks};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::outliers::OutlierRemedy;
use crate::jobs::predict::case_files::CaseFiles;
use crate::jobs::predict::plan::{ModelToPlan, PLANS_ALL, PredictionPlan};
use crate::jobs::predict::results::Failed;

/// Plans each model of a task, before them those that find where to look, and after them those that refine it: for the whole images, of which
/// what is looked at may be a part.
pub fn plan_segmentation(request: &SegmentRequest, context: &Context) -> Outcome<Vec<PredictionPlan>> {
    if let Some(part) = request.part {
        let message = format!("‹part={part}› has no effect: {PLANS_ALL}");
        return Err(Error::new(message, "leave ‹part› out"));
    }
    let Tasks { jobs, kind, budget, .. } = Tasks::checked(request, context)?;
    if let Some(series) = kind.series(&budget)? {
        for job in &jobs {
            job.expect_no_slice(&series)?;
            job.expect_referable(&series)?;
        }
    }
    let FoundImages { cases, refused, memory: _memory } = images(&request.input, &kind, &budget)?;
    let refused: Vec<Failed> =
        refused.into_iter().map(|image| Failed::new(image.case, image.error)).collect();
    let mut plans = Vec::new();
    // Tasks whose labels are made once for all that need them.
    let mut shared = Vec::new();
    for job in &jobs {
        let (mut files, mut kept) = (Vec::new(), Vec::new());
        for (case, labels) in cases.iter().zip(job.outputs(&cases, &kind)?) {
            let of = if job.is_kept(&labels) { &mut kept } else { &mut files };
            of.push(CaseFiles { case: case.clone(), earlier: None, labels, probabilities: None });
        }
        let rough = job.rough_tasks()?;
        // All but the task itself run with all of their models, and with no changes but their own.
        for (name, mode) in job.tasks()? {
            let task = SegmentatorTask::named(&name)?;
            let models = task.models(&name, mode)?;
            let is_asked = (name.as_str(), mode) == (job.name, request.mode);
            let (subset, changes, spacing): (&[String], _, _) = match is_asked {
                true => (&request.subset, job.changes(), job.spacing()),
                false => (&[], models.changes.clone(), models.spacing()),
            };
            let key = (name.clone(), mode);
            let is_shared = if is_asked { job.is_shareable() } else { rough.contains(&key) };
            if is_shared {
                if shared.contains(&key) {
                    continue;
                }
                shared.push(key);
            }
            let stage = Stage { name: &name, task, models, spacing, within: None, subset, changes };
            for part in stage.parts() {
                let mut plan = job.plan_part(&stage, part, &files, &kept)?;
                plan.refused.splice(..0, refused.iter().cloned());
                plans.push(plan);
            }
        }
    }
    Ok(plans)
}

impl Job<'_> {
    /// Returns `true` if an image whose labels go to `output` is not segmented again.
    fn is_kept(&self, output: &Path) -> bool {
        let SegmentRequest { one_file, overwrite, .. } = self.request;
        let Some(labels) = self.labels_written(output).filter(|_| !overwrite) else { return false };
        // Missing files beside a label map are made from it.
        (*one_file && !is_encoded(output)) || self.extras(output).missing(labels).is_empty()
    }

    fn plan_part(
        &self,
        stage: &Stage<'_>,
        part: &PartModel,
        files: &[CaseFiles],
        kept: &[CaseFiles],
    ) -> Outcome<PredictionPlan> {
        let (name, models) = (stage.name, stage.models);
        let folder = models.folder(part, self.size_of(name), &self.weights)?;
        let model = open(&folder, models, stage.spacing, &self.budget)?;
        let step = STEPS[usize::from(!name.starts_with("total"))];
        let options = PredictOptions { step, ..self.request.options };
        let title = format!("{name}, data set {}", part.dataset);
        let (backend, budget) = (&*self.request.backend, &self.budget);
        let model = ModelToPlan {
            name: title,
            model,
            options,
            backend,
            budget,
            // Each image is predicted alone, and `segment` has neither `--overlap` nor `--outlier-spacing`.
            can_overlap: false,
            is_ahead: false,
            remedy: OutlierRemedy::None,
        };
        let mut plan = model.plan(files, kept, self.context)?;
        if !stage.changes.is_empty() {
            self.raise_limits(files, &mut plan, |case| {
                let image = zoomed_image(case, stage.within, stage.spacing)?;
                self.expect_room(stage, &case.id, &image)?;
                Ok(Some(least_limit(&image, self.overhead_bytes())))
            });
        }
        if stage.name == self.name {
            self.raise_limits(files, &mut plan, |case| match case.image_files().next() {
                Some(image) => self.expect_room_for_report(&case.id, image),
                None => Ok(None),
            });
        }
        Ok(plan)
    }

    /// Raises the least limits of images to those that changing or measuring their labels takes, and refuses images for which the limit is too
    /// low for that.
    fn raise_limits(
        &self,
        files: &[CaseFiles],
        plan: &mut PredictionPlan,
        least: impl Fn(&Case) -> Outcome<Option<Bytes>>,
    ) {
        for CaseFiles { case, .. } in files {
            // A refused case has its reason already.
            if !plan.cases.iter().any(|planned| planned.case == case.id) {
                continue;
            }
            match least(case) {
                Ok(None) => {}
                Ok(Some(least)) => {
                    for planned in plan.cases.iter_mut().filter(|planned| planned.case == case.id) {
                        planned.least_ram_bytes = planned.least_ram_bytes.max(least);
                    }
                }
                Err(failure) => {
                    if let Some(at) = plan.cases.iter().position(|planned| planned.case == case.id) {
                        plan.predicted_seconds -= plan.cases.remove(at).plan.predicted_seconds;
                        plan.refused.push(Failed::new(case.id.clone(), failure));
                    }
                }
            }
        }
    }
}
