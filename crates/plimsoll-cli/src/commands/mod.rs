//! The commands.

mod bench;
mod bench_curve;
mod bench_data;
mod bench_kernels;
mod bench_plan;
mod bench_predict;
mod bench_scaling;
mod bench_step;
mod classification;
mod compare;
mod compare_images;
mod compared;
mod completions;
mod demo;
mod demo_images;
mod doctor;
mod evaluate;
mod export;
mod inspect;
mod interact;
mod manual;
mod models;
mod plan;
mod plan_ranks;
mod postprocess;
mod predict;
mod predicted_step;
mod prediction_plan;
mod report;
mod scores;
mod segment;
mod serve;
mod settings;
mod status;
mod sweep;
mod train;
#[cfg_attr(not(unix), path = "no_train_ranks.rs")]
mod train_ranks;
mod watch;

use std::path::PathBuf;

use crate::args::{Args, Command};
use crate::failure::{Failure, Outcome};
use crate::invocation::Invocation;
use crate::terminal;
use plimsoll::backend::limit_instruction_set;
use plimsoll::expect_apart_from_data;

pub use plan::print as print_plan;
pub use serve::failed as failed_service;

/// The environment variable that names the instruction set of kernels.
const INSTRUCTION_SET: &str = "PLIMSOLL_SIMD";

/// Limits the instruction set of kernels to the one that the environment names, if it names one.
fn limit_by_environment() -> Outcome {
    let Some(name) = std::env::var_os(INSTRUCTION_SET) else { return Ok(()) };
    limit_instruction_set(&name.to_string_lossy()).map_err(|error| {
        Failure::new(format!("{INSTRUCTION_SET}: {error}"), String::from(error.remedy().clone()))
    })
}

/// Runs a command.
pub fn run(args: &Args, invocation: &Invocation) -> Outcome {
    limit_by_environment()?;
    let files = args.command.files()?;
    files.check()?;
    let models = args.command.models()?;
    expect_apart_from_data(models.paths.iter().map(PathBuf::as_path), &files, models.ram)?;
    terminal::write_only(files);
    match &args.command {
        Command::Demo(demo) => demo::run(demo, args.json),
        Command::Doctor(ram) => doctor::run(ram, args.json),
        Command::Inspect(inspect) => inspect::run(inspect, args.json),
        Command::Plan(plan) => plan::run(plan, args.json),
        Command::Settings => settings::run(args.json),
        Command::Train(train) => train::run(train, invocation, args.json),
        Command::Sweep(sweep) => sweep::run(sweep, invocation, args.json),
        Command::Predict(predict) => predict::run(predict, args.json),
        Command::Segment(segment) => segment::run(segment, args.json),
        Command::Interact(interact) => interact::run(interact, args.json),
        Command::Serve(serve) => serve::run(serve, args.json),
        Command::Postprocess(postprocess) => postprocess::run(postprocess, args.json),
        Command::Models(models) => models::run(models, args.json),
        Command::Evaluate(evaluate) => evaluate::run(evaluate, args.json),
        Command::Compare(compare) => compare::run(compare, args.json),
        Command::Export(export) => export::run(export, args.json),
        Command::Report(report) => report::run(report, args.json),
        Command::Status(status) => status::run(status, args.json),
        Command::Watch(watch) => watch::run(watch, args.json),
        Command::Bench(bench) => bench::run(bench, args.json),
        Command::Completions(completions) => completions::run(completions),
        Command::Manual(manual) => manual::run(manual, args.json),
    }
}
