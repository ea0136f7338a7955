//! The memory and the time of a prediction, from the headers of images alone.

use std::sync::Arc;

use plimsoll_data::{Case, FoundImages};
use plimsoll_infer::{
    CaseEstimate, CaseRequest, Destination, HostSums, PredictOptions, PredictPlan, Predictor, RingStorage,
    forward_program,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::SegmentationModel;
use plimsoll_plan::Backend;
use plimsoll_report::duration::grouped;
use plimsoll_run::Machine;
use plimsoll_train::measured;
use serde::Serialize;

use super::cascade::earlier_stage;
use super::case_files::CaseFiles;
use super::job::PredictionJob;
use super::label_folder::LabelFolder;
use super::model::{Opened, can_overlap, expect_earlier_used, open};
use super::output::{destination, expect_sound};
use super::request::PredictRequest;
use super::results::{Failed, refuse};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::outliers::{Counting, Outlier, OutlierRemedy, WindowCounts};

/// The reason that a plan has no parts.
pub(in crate::jobs) const PLANS_ALL: &str = "a plan is of all images";

/// A case that would be predicted.
#[derive(Serialize)]
pub struct PlannedCase {
    /// The name of the case.
    pub case: String,
    /// The plan.
    pub plan: PredictPlan,
    /// The least limit that would do, with the least arena and sums that take least.
    pub least_ram_bytes: Bytes,
    /// The case as an outlier, if it has far more windows than the others.
    pub outlier: Option<Outlier>,
}

/// The plan of a prediction.
#[derive(Serialize)]
pub struct PredictionPlan {
    /// The model.
    pub model: String,
    /// The backend and its instruction set.
    pub engine: String,
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// Folds of weights that are averaged.
    pub folds: usize,
    /// The cases.
    pub cases: Vec<PlannedCase>,
    /// Cases that could not be predicted.
    pub refused: Vec<Failed>,
    /// The number of cases whose predictions exist and are kept.
    pub kept: usize,
    /// Windows of the case in the middle at the spacing of training, of those that are kept as well; none without a case.
    pub median_windows: Option<usize>,
    /// All forward passes.
    pub predicted_seconds: f64,
    /// `true` if the request sets the storage of sums.
    #[serde(skip)]
    pub is_ring_asked: bool,
    /// `true` if `--overlap` would reduce the windows.
    #[serde(skip)]
    pub can_overlap: bool,
}

impl PredictionPlan {
    /// Checks that no case would be refused.
    pub fn check(&self) -> Outcome {
        let Some(first) = self.refused.first() else { return Ok(()) };
        let refused = self.refused.len();
        let of = refused + self.cases.len() + self.kept;
        let which = if refused == 1 { "" } else { ", the first" };
        let message = format!("{refused} of {of} cases could not be predicted{which}: {}", first.error);
        Err(Error::new(message, first.hint.as_str()))
    }
}

/// A model that would predict cases below a limit.
pub(in crate::jobs) struct ModelToPlan<'a> {
    /// The name of the model.
    pub(in crate::jobs) name: String,
    pub(in crate::jobs) model: SegmentationModel,
    pub(in crate::jobs) options: PredictOptions,
    pub(in crate::jobs) backend: &'a dyn Backend,
    pub(in crate::jobs) budget: &'a Budget,
    /// `true` if `--overlap` would reduce its windows.
    pub(in crate::jobs) can_overlap: bool,
    /// `true` if the next case is read while one is computed.
    pub(in crate::jobs) is_ahead: bool,
    /// The treatment of outliers.
    pub(in crate::jobs) remedy: OutlierRemedy,
}

impl ModelToPlan<'_> {
    /// Plans cases. The predictions of `kept` cases exist already.
    pub(in crate::jobs) fn plan(
        self,
        files: &[CaseFiles],
        kept: &[CaseFiles],
        context: &Context,
    ) -> Outcome<PredictionPlan> {
        let ModelToPlan { name, model, options, backend, budget, can_overlap, is_ahead, remedy } = self;
        let progress = context.work_without_end("planning");
        let program = forward_program(&model, &options, backend)?;
        let machine = Machine { limit: budget.limit(), threads: options.threads, loader_threads: 1 };
        let backend = measured(machine, backend, std::slice::from_ref(&program), context.cache());
        let folds = model.weights.len();
        let mut predictor = Predictor::new(model, options, Arc::clone(&backend), budget)?;
        let counting = files.iter().map(|files| (files, false)).chain(kept.iter().map(|files| (files, true)));
        let counting: Vec<Counting<'_>> =
            counting.map(|(files, is_kept)| Counting { request: files.request(), is_kept }).collect();
        let windows = WindowCounts::count(&mut predictor, &counting, remedy, context)?;
        let requests: Vec<CaseRequest<'_>> = files.iter().map(CaseFiles::request).collect();
        let planned = match is_ahead {
            true => predictor.plan(&requests),
            false => predictor.plan_alone(&requests),
        };
        drop(progress);
        let (mut fit, mut refused) = (Vec::new(), Vec::new());
        for (CaseFiles { case, .. }, planned) in files.iter().zip(planned?) {
            match planned {
                Ok(CaseEstimate { plan, least_ram_bytes }) => {
                    let (case, outlier) = (case.id.clone(), windows.outlier(&case.id));
                    fit.push(PlannedCase { case, plan, least_ram_bytes, outlier });
                }
                Err(error) if error.is_of_one_case() => refused.push(Failed::new(case.id.clone(), error)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(PredictionPlan {
            model: name,
            engine: backend.identity(),
            ram_budget_bytes: budget.limit(),
            folds,
            predicted_seconds: fit.iter().map(|case| case.plan.predicted_seconds).sum(),
            cases: fit,
            refused,
            kept: kept.len(),
            median_windows: windows.lower_median(),
            is_ring_asked: options.ring.is_some(),
            can_overlap,
        })
    }
}

/// Plans what a request would hold and take, with the earlier stages of a cascade first.
pub fn plan_prediction(request: &PredictRequest, context: &Context) -> Outcome<Vec<PredictionPlan>> {
    request.expect_all(PLANS_ALL)?;
    let budget = Budget::new(context.limits(request.ram).limit);
    expect_sound(request, &budget)?;
    let labels = LabelFolder::open(request, &budget, &context.silent())?;
    let opened = open(request, &budget, context)?;
    expect_earlier_used(request, &[&opened])?;
    let mut plans = earlier_plans(request, &opened, context)?;
    let model = &opened.model;
    let FoundImages { cases, refused, memory: _memory } = request.images(model, &budget)?;
    let to = destination(request, &opened, labels.folder.clone());
    to.check(&cases)?;
    labels.last(&to).check(&cases)?;
    let (kept, cases): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| labels.is_kept(case, &to));
    let job = PredictionJob { request, budget: &budget, context };
    let mut plan = plan_cases(job, &opened, cases, kept, &to)?;
    plan.refused.splice(..0, refuse(refused, &context.silent()));
    plans.push(plan);
    Ok(plans)
}

/// The plans of the earlier stage of a cascade that runs first; empty if there is none, or its labels are given.
pub(super) fn earlier_plans(
    request: &PredictRequest,
    opened: &Opened,
    context: &Context,
) -> Outcome<Vec<PredictionPlan>> {
    match earlier_stage(request, opened)? {
        Some(stage) => plan_prediction(&stage, context),
        None => Ok(Vec::new()),
    }
}

/// Plans cases of a request. The predictions of `kept` cases exist already.
pub(super) fn plan_cases(
    job: PredictionJob<'_>,
    opened: &Opened,
    cases: Vec<Case>,
    kept: Vec<Case>,
    to: &Destination,
) -> Outcome<PredictionPlan> {
    let PredictionJob { request, budget, context } = job;
    let files = |cases: Vec<Case>| -> Vec<CaseFiles> {
        cases.into_iter().map(|case| CaseFiles::new(case, to)).collect()
    };
    let (files, kept) = (files(cases), files(kept));
    let model = opened.model.clone();
    let to_plan = ModelToPlan {
        name: opened.folder.display().to_string(),
        can_overlap: can_overlap(&model, request.options),
        is_ahead: true,
        remedy: OutlierRemedy::asked(request.volumes.outlier_spacing),
        model,
        options: request.options,
        backend: &*request.backend,
        budget,
    };
    to_plan.plan(&files, &kept, context)
}

/// The note for sums in half precision, unless the request sets their storage.
pub fn ring_line(plan: &PredictPlan) -> Option<String> {
    (plan.ring == RingStorage::F16).then(|| {
        let on_device = plan.f32_ring_vram_bytes.map(|vram| format!(" or {}", limit_flag("vram", vram)));
        format!(
            "sums are stored as f16: a voxel may get another label where two classes are nearly equally likely; with {}{} they would be f32",
            limit_flag("ram", plan.f32_ring_ram_bytes),
            on_device.unwrap_or_default(),
        )
    })
}

/// A limit of at least these bytes, as texts mark it.
fn limit_flag(limit: &str, bytes: Bytes) -> String {
    format!("‹{limit}={}MiB›", bytes.0.div_ceil(1 << 20))
}

/// The note about why this process sums windows although a device could.
pub fn sums_line(plan: &PredictPlan) -> Option<String> {
    let why = match plan.host_sums? {
        HostSums::NoRoom { vram_bytes } => {
            let flag = limit_flag("vram", vram_bytes);
            format!("its memory has room for their sums beside this arena with {flag}")
        }
        HostSums::Weights => "devices do not support the weights that this model gives to voxels".into(),
    };
    Some(format!("the {} of every window are copied from the device, and summed here: {why}", plan.summed))
}

/// The note for a case that is predicted in strips: their number and their cost.
pub fn strips_line(plan: &PredictPlan) -> Option<String> {
    (plan.strips > 1).then(|| {
        let PredictPlan { strips, windows, repeated_windows, .. } = plan;
        let (windows, repeated) = (grouped(*windows as u64), grouped(*repeated_windows as u64));
        format!(
            "the limit has no room for sums of whole planes: in {strips} strips, {repeated} of {windows} windows are computed again for \
             another strip; labels are the same"
        )
    })
}
