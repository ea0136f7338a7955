//! Planning runs.

use plimsoll::{Context, PlanDetails, PlanReport, plan_with_details};
use plimsoll_run::Part;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::RunArguments;
use super::data::problem;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanArguments {
    run: RunArguments,
    patches: bool,
    pareto: bool,
    explain: Option<String>,
}

#[derive(Serialize)]
struct PlanResult<'a> {
    #[serde(flatten)]
    report: &'a PlanReport,
    parts: Vec<Part>,
    device_parts: Vec<Part>,
    larger_patch: Option<[usize; 3]>,
    /// The arena over one step, as SVG.
    drawing: String,
    /// The error of a run that does not fit.
    problem: Option<Value>,
}

/// Plans a run. A run that does not fit is no error here.
pub(super) fn plan(arguments: &str, context: &Context) -> Result<String, Failure> {
    let PlanArguments { run, patches, pareto, explain } = parsed(arguments)?;
    let backend = run.machine.open_to_plan()?;
    let details = PlanDetails { patches, curve: pareto, explain, drawing: None };
    let report =
        plan_with_details(&run.request(false, backend)?, &details, context).map_err(JobFailure::wrap)?;
    let numbers = &report.numbers;
    written(&PlanResult {
        parts: numbers.parts(),
        device_parts: numbers.device_parts(),
        larger_patch: report.larger_patch(),
        drawing: report.arena_svg().map_err(JobFailure::wrap)?,
        problem: numbers.check().err().map(|error| problem(&JobFailure::wrap(error))),
        report: &report,
    })
}
