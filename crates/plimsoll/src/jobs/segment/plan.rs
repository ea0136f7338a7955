//! What a task would hold and take, from the headers of images alone.

use std::sync::atomic::AtomicBool;

use plimsoll_data::Case;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::{Budget, System, limits};
use plimsoll_run::total_segmentator::{Task, weights_folder};
use plimsoll_volume::is_segmentation;

use super::input::{Kind, images};
use super::{ENDING, Job, STEPS, SegmentRequest, open};
use crate::failure::{Failure, Outcome};
use crate::jobs::prediction_plan::{CaseFiles, ModelToPlan, PredictionPlan};

/// Plans each model of a task, and before them those that find where to look: for the whole images, of which what is looked at may be a part.
pub fn plan_all(request: &SegmentRequest, quiet: bool) -> Outcome<Vec<PredictionPlan>> {
    let task = Task::named(&request.task)?;
    let models = task.models(&request.task, request.mode)?;
    expect_known(request, task)?;
    let weights = match &request.weights {
        Some(folder) => folder.clone(),
        None => weights_folder()?,
    };
    let kind = Kind::of(&request.input)?;
    if let Kind::Series(_) = kind {
        let message = format!("{} is a series of DICOM, which is not planned", request.input.display());
        return Err(Failure::new(message, "leave --plan out: the series is brought into one image first"));
    }
    let cases = images(&request.input)?;
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let never = AtomicBool::new(false);
    let job = Job { request, task, models, weights, budget, stop: &never, quiet };
    job.expect_writable(kind.is_one())?;
    job.expect_findable()?;
    job.expect_weights()?;
    let (kept, cases): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| job.is_kept(case, kind.is_one()));
    let of =
        |case: Case| CaseFiles { case, earlier: None, labels: request.output.clone(), probabilities: None };
    let files: Vec<CaseFiles> = cases.into_iter().map(of).collect();
    let mut plans = Vec::new();
    if let Some((name, mode)) = job.rough() {
        let rough = Task::named(&name)?;
        for part in &rough.models(&name, mode)?.parts {
            plans.push(job.plan_part(&name, rough.models(&name, mode)?, part, (&files, kept.len()))?);
        }
    }
    let is_needed = |part: &&plimsoll_run::total_segmentator::PartModel| {
        request.subset.is_empty() || task.has_any(part, &request.subset)
    };
    for part in models.parts.iter().filter(is_needed) {
        plans.push(job.plan_part(&request.task, models, part, (&files, kept.len()))?);
    }
    Ok(plans)
}

/// Refuses labels that the task does not have.
fn expect_known(request: &SegmentRequest, task: &Task) -> Outcome {
    match request.subset.iter().find(|class| task.value(class).is_none()) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("`{unknown}` is no label of {}", request.task);
            Err(Failure::new(message, "`plimsoll segment --list` names the labels of each task"))
        }
    }
}

impl Job<'_> {
    /// Whether an image is not segmented again.
    fn is_kept(&self, case: &Case, is_one: bool) -> bool {
        let SegmentRequest { output, one_file, overwrite, .. } = self.request;
        let output = match (is_one, one_file) {
            (true, _) => output.clone(),
            (false, true) => output.join(format!("{}{ENDING}", case.id)),
            (false, false) => output.join(&case.id),
        };
        let Some(labels) = self.labels_written(&output).filter(|_| !overwrite) else { return false };
        // What is missing beside a label map is made of it.
        (*one_file && !is_segmentation(&output)) || self.extras(&output).missing(labels).is_empty()
    }

    fn plan_part(
        &self,
        name: &str,
        models: &plimsoll_run::total_segmentator::TaskModels,
        part: &plimsoll_run::total_segmentator::PartModel,
        (files, kept): (&[CaseFiles], usize),
    ) -> Outcome<PredictionPlan> {
        let model = open(&models.folder(part, &self.weights)?, models, &self.budget)?;
        let options = PredictOptions {
            ring: self.request.ring,
            precision: self.request.precision,
            ..PredictOptions::new(STEPS[usize::from(!name.starts_with("total"))], false, self.request.threads)
        };
        let name = format!("{name}, data set {}", part.dataset);
        let (backend, budget) = (&*self.request.backend, &self.budget);
        // Each image is predicted alone, and `segment` has no `--overlap`.
        let (can_overlap, is_ahead) = (false, false);
        ModelToPlan { name, model, options, backend, budget, can_overlap, is_ahead }
            .plan(files, kept, self.quiet)
    }
}
