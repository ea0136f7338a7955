//! A plan with details: the curve of memory against time, explanations of tensors, a drawing of the arena.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_data::Fold;
use plimsoll_plan::explain::{Explanation, explain};
use plimsoll_report::arena::draw_step;
use plimsoll_run::RunPlan;
use plimsoll_train::{CurveProgress, PlannedRun, RunPoint, run_curve};
use serde::Serialize;

use super::plan::{Opened, PlanRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// The most names of other tensors that an error proposes.
const MOST_NAMES: usize = 5;

/// Details of a plan that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanDetails {
    /// Adds the cost of smaller and larger patches.
    pub patches: bool,
    /// Searches the curve of memory against time.
    pub curve: bool,
    /// Explains the tensors of this name: the launches over which each is held, or why it is recomputed.
    pub explain: Option<String>,
    /// Draws the arena over one step into this file, as SVG.
    pub drawing: Option<PathBuf>,
}

/// The plan of a run with the requested details.
#[derive(Serialize)]
pub struct PlanReport {
    /// The numbers of the plan.
    pub numbers: RunPlan,
    /// The network in a few words.
    pub network: String,
    /// The points of the curve of memory against time, the fastest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Vec<RunPoint>>,
    /// The explanations of the tensors of the requested name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanations: Option<Vec<Explanation>>,
    /// The planned run itself.
    #[serde(skip)]
    pub planned: PlannedRun,
}

/// Plans the first fold of a run with details.
///
/// # Errors
/// Returns an error if the data set cannot be read, a setting is impossible, the plan has no tensor of the requested name, or the drawing
/// cannot be written. A run that does not fit is no error here: see [`RunPlan::check`].
pub fn plan_with_details(
    request: &PlanRequest,
    details: &PlanDetails,
    context: &Context,
) -> Outcome<PlanReport> {
    let (opened, mut planned, fold) = request.prepare(context)?;
    if details.patches {
        planned.numbers.patches = request.patch_costs(&opened, &planned, &fold)?;
    }
    if let Some(file) = &details.drawing {
        draw(&planned, file)?;
    }
    let curve = match details.curve {
        true => Some(curve(request, &opened, &planned, &fold, context)?),
        false => None,
    };
    let explanations = details.explain.as_ref().map(|name| explanations(&planned, name)).transpose()?;
    Ok(PlanReport {
        numbers: planned.numbers.clone(),
        network: planned.config.training.net.describe(),
        curve,
        explanations,
        planned,
    })
}

impl PlanReport {
    /// Draws the arena over one step as SVG.
    ///
    /// # Errors
    /// Returns an error if the drawing is not written.
    pub fn draw(&self, out: &mut dyn Write) -> io::Result<()> {
        draw_step(&self.planned.plan, self.planned.programs.fullest(), &self.numbers).write(out)
    }

    /// The drawing of the arena over one step as a text of SVG.
    ///
    /// # Errors
    /// Returns an error if the drawing is no text.
    pub fn arena_svg(&self) -> io::Result<String> {
        let mut drawing = Vec::new();
        self.draw(&mut drawing)?;
        String::from_utf8(drawing).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The largest patch that fits, in voxels, if it has more than one and a half times as many voxels as the plan's.
    pub fn larger_patch(&self) -> Option<[usize; 3]> {
        let voxels = |patch: [usize; 3]| patch.iter().product::<usize>();
        let largest = self.numbers.patches.iter().rfind(|cost| cost.fits)?.patch_size;
        (voxels(largest) * 2 > voxels(self.numbers.patch_size) * 3).then_some(largest)
    }
}

/// Searches the curve of memory against time over all micro-batches.
fn curve(
    request: &PlanRequest,
    opened: &Opened,
    planned: &PlannedRun,
    fold: &Fold,
    context: &Context,
) -> Outcome<Vec<RunPoint>> {
    let facts = opened.facts(&planned.config, fold)?;
    let progress = context.work("searching", 100);
    let mut observe = |CurveProgress { share, micro_batch, points }| {
        progress.set((100.0 * share) as u64, format!("micro-batch {micro_batch}, {points} points"));
    };
    Ok(run_curve(
        &planned.config,
        request.settings.micro_batch.is_some(),
        opened.machine,
        &*planned.backend,
        facts,
        opened.cache.as_ref(),
        &mut observe,
    )?)
}

/// Draws the arena over one step as SVG.
fn draw(planned: &PlannedRun, file: &Path) -> Outcome {
    let drawing = draw_step(&planned.plan, planned.programs.fullest(), &planned.numbers);
    write(file, |out| drawing.write(out))
}

/// Explains the tensors of a name.
fn explanations(planned: &PlannedRun, name: &str) -> Outcome<Vec<Explanation>> {
    let fullest = planned.programs.fullest();
    let program = &planned.programs[fullest];
    let found = explain(&planned.plan, fullest, name);
    if !found.is_empty() {
        return Ok(found);
    }
    let near = program.tensors.iter().map(|tensor| tensor.name.as_str()).filter(|other| other.contains(name));
    let near: Vec<&str> = near.take(MOST_NAMES).collect();
    let remedy = match near.as_slice() {
        [] => "the boxes of a ‹draw› file have names".into(),
        near => format!("names like it: {}", near.join(", ")),
    };
    Err(Error::new(format!("the program `{}` has no tensor `{name}`", program.name), remedy))
}
