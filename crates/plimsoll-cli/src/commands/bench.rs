//! `plimsoll bench`

use super::bench_data::Part;
use super::{bench_curve, bench_data, bench_kernels, bench_plan, bench_predict, bench_scaling, bench_step};
use crate::args::Bench;
use crate::failure::Outcome;

/// Runs a benchmark.
pub fn run(bench: &Bench, as_json: bool) -> Outcome {
    match bench {
        Bench::Load(data) => bench_data::run(data, Part::Load, as_json),
        Bench::Patch(data) => bench_data::run(data, Part::Patch, as_json),
        Bench::System(data) => bench_data::run(data, Part::System, as_json),
        Bench::Step(step) => bench_step::run(step, as_json),
        Bench::Curve(curve) => bench_curve::run(curve, as_json),
        Bench::Plan(plan) => bench_plan::run(plan, as_json),
        Bench::Kernels(kernels) => bench_kernels::run(kernels, as_json),
        Bench::Predict(prediction) => bench_predict::run(prediction, as_json),
        Bench::Scaling(scaling) => bench_scaling::run(scaling, as_json),
    }
}
