//! The command line. No algorithm lives here: arguments, progress, reports.

mod args;
mod backend;
mod commands;
mod drawing;
mod failure;
mod picture;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as NO_COMMAND;
use failure::Failure;
use plimsoll_memory::{CountingAllocator, keep_resident_small};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    keep_resident_small();
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        // Help and version are not errors, and whoever names no command is helped too.
        Err(told) if !told.use_stderr() || told.kind() == NO_COMMAND => told.exit(),
        Err(wrong) => {
            wrong_arguments(&wrong.to_string()).print();
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

/// What the parser says, which is a paragraph that may list arguments, perhaps tips, and the usage, in one line and a hint.
fn wrong_arguments(text: &str) -> Failure {
    let (what, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let words: Vec<&str> = what.trim_start_matches("error: ").split_whitespace().collect();
    let line = |start: &str| rest.lines().map(str::trim).find(|line| line.starts_with(start));
    let hint = match (line("tip: "), line("Usage: ")) {
        (Some(tip), _) => tip.trim_start_matches("tip: "),
        (None, Some(usage)) => usage,
        (None, None) => "`plimsoll help`, or a command with --help, lists what there is",
    };
    Failure::new(words.join(" "), hint)
}
