//! The command line. No algorithm lives here: arguments, progress, reports.

mod args;
mod commands;
mod drawing;
mod failure;
mod picture;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;
use failure::Failure;
use plimsoll_memory::{CountingAllocator, keep_resident_small};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    keep_resident_small();
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        // Help and version are not errors.
        Err(told) if !told.use_stderr() => told.exit(),
        Err(wrong) => {
            let text = wrong.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::new(line, "`plimsoll help`, or a command with --help, lists what there is").print();
            return ExitCode::from(2);
        }
    };
    match commands::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::FAILURE
        }
    }
}
