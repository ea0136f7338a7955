//! The commands.

mod bench;
mod bench_curve;
mod bench_kernels;
mod bench_step;
mod classification;
mod demo;
mod doctor;
mod evaluate;
mod inspect;
mod plan;
mod predict;
mod prepare;
mod train;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::args::{Args, Command};
use crate::backend::check_environment;
use crate::failure::Outcome;

/// Runs the command that was asked for.
pub fn run(args: &Args) -> Outcome {
    check_environment()?;
    match &args.command {
        Command::Demo(demo) => demo::run(demo, args.json),
        Command::Doctor(ram) => doctor::run(ram, args.json),
        Command::Inspect(inspect) => inspect::run(inspect, args.json),
        Command::Plan(plan) => plan::run(plan, args.json),
        Command::Train(train) => train::run(train, args.json),
        Command::Predict(predict) => predict::run(predict, args.json),
        Command::Evaluate(evaluate) => evaluate::run(evaluate, args.json),
        Command::Bench(bench) => bench::run(bench, args.json),
    }
}

/// A flag that SIGINT and SIGTERM set; a second signal ends the process at once.
fn stop_on_signals() -> Outcome<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
