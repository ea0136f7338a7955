//! `plimsoll bench curve`: what memory costs, as planned and as measured.

use std::time::Instant;

use plimsoll_graph::Program;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::quantile;
use plimsoll_plan::{Backend, Options, Plan, PlanError, Planner, VerifiedPlan, open_engine, plan};
use serde::Serialize;

use super::bench_step::{ONLY, backend, fill};
use crate::args::BenchCurve;
use crate::failure::Outcome;
use crate::report::{Table, json};

#[derive(Serialize)]
struct Point {
    what: &'static str,
    /// Features, their gradients and scratch: the arena without parameters, moments and gradients of parameters.
    features_bytes: usize,
    /// The ratio to the lower bound over all placements of the schedule.
    over_lower_bound: f64,
    recompute_flops_fraction: f64,
    predicted_seconds: f64,
    /// The median, and the best.
    measured_seconds: Option<[f64; 2]>,
}

/// Plans the points, runs each in turn, and prints them.
pub fn run(args: &BenchCurve, as_json: bool) -> Outcome {
    // The program of one micro-batch of several: gradients of parameters are added up as they come. Of a network that takes a batch in
    // one piece, the step.
    let mut training = args.step.training(2)?;
    if training.needs_whole_batch().is_some() {
        training = args.step.training(1)?;
    }
    let program = training.programs()?.gradients.swap_remove(0);
    let backend = backend(&args.step, &program, false)?;
    let plans = points(&program, &*backend)?;
    let limit = args.step.machine().limit;
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); plans.len()];
    for _ in 0..args.rounds {
        for ((_, plan), seconds) in plans.iter().zip(&mut seconds) {
            let mut engine = open_engine(&*backend, plan.clone(), &Budget::new(limit))?;
            fill(&mut *engine, &program, &training)?;
            // The first run finds pages that were never touched.
            engine.run(ONLY)?;
            let start = Instant::now();
            engine.run(ONLY)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let rows: Vec<Point> =
        plans.iter().zip(seconds).map(|((what, plan), seconds)| row(what, plan, seconds)).collect();
    if as_json {
        return json(&rows);
    }
    let mut table =
        Table::new(["", "features", "over its bound", "operations", "predicted", "median", "best"]);
    for row in rows {
        let [median, best] = row
            .measured_seconds
            .map_or_else(Default::default, |times| times.map(|time| format!("{time:.3} s")));
        table.row([
            row.what.to_string(),
            Bytes::from_len(row.features_bytes).to_string(),
            format!("{:.2} %", 100.0 * row.over_lower_bound),
            format!("{:+.1} %", 100.0 * row.recompute_flops_fraction),
            format!("{:.3} s", row.predicted_seconds),
            median,
            best,
        ]);
    }
    table.print();
    Ok(())
}

/// All values stored; normalisation computed by the convolutions that read it, so that its results are not stored; half of what is kept at first; the least.
fn points(program: &Program, backend: &dyn Backend) -> Result<Vec<(&'static str, VerifiedPlan)>, PlanError> {
    let given = std::slice::from_ref(program);
    let kept = plan(given, backend, Options { inline: false, ..Options::default() })?;
    let planner = Planner::new(given, backend, Options::default())?;
    let inlined = planner.plan(None)?;
    let persistent = inlined.persistent_bytes();
    let half = planner.plan(Some(persistent + (kept.arena_bytes - persistent) / 2))?;
    Ok(vec![
        ("all kept", kept),
        ("normalised on the way", inlined),
        ("half of all", half),
        ("the least", planner.plan(Some(0))?),
    ])
}

fn row(what: &'static str, plan: &Plan, mut seconds: Vec<f64>) -> Point {
    let persistent = plan.persistent_bytes();
    let features = plan.arena_bytes - persistent;
    seconds.sort_by(f64::total_cmp);
    let median = quantile(seconds.len(), |at| seconds[at], 0.5);
    Point {
        what,
        features_bytes: features,
        over_lower_bound: features as f64 / (plan.lower_bound_bytes - persistent) as f64 - 1.0,
        recompute_flops_fraction: plan.schedules[0].recompute_flops_fraction,
        predicted_seconds: plan.schedules[0].predicted_seconds,
        measured_seconds: median.zip(seconds.first()).map(|(median, best)| [median, *best]),
    }
}
