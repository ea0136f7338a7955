//! The command line as a function: arguments, progress, reports. No algorithm lives here.
//!
//! The program `plimsoll` calls it, and so does the Python package: its module has this function, since a wheel with the program would carry
//! the whole of Plimsoll twice.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

// First, so that all others print through it.
#[macro_use]
mod output;

mod args;
mod commands;
mod failure;
mod invocation;
mod launch;
mod report;
mod signals;
mod terminal;
mod watch;
mod wording;

use std::ffi::OsString;
use std::iter;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as NO_COMMAND;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use failure::Failure;
use plimsoll_memory::{CountingAllocator, keep_resident_small};
use plimsoll_run::{SETTING_LINES, SettingLine};

pub use invocation::Invocation;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The exit status of a call with wrong arguments.
const WRONG_ARGUMENTS: u8 = 2;

/// Runs a command in this process, which it takes over: it prints, handles signals, and may end the process. Returns the exit status.
pub fn run(invocation: &Invocation) -> u8 {
    keep_resident_small();
    plimsoll_dicom::register();
    signals::end_with_the_pipe();
    signals::keep_over_file_limit();
    // The parser takes the first word for the name of the program.
    let words = iter::once("plimsoll".into()).chain(invocation.arguments().iter().cloned());
    let arguments = match args::with_own_names(words) {
        Ok(arguments) => arguments,
        Err(refused) => {
            refused.print();
            return WRONG_ARGUMENTS;
        }
    };
    let mut args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        // Help and version are not errors, and whoever names no command is helped too.
        Err(told) if !told.use_stderr() || told.kind() == NO_COMMAND => told.exit(),
        Err(wrong) => {
            wrong_arguments(&wrong, invocation.arguments()).print();
            return WRONG_ARGUMENTS;
        }
    };
    let mut watch = None;
    let begun = launch::choose_part(&mut args).map(|found| watch = found);
    let ended =
        begun.and_then(|()| commands::run(&args, invocation)).and_then(|()| match args.may_lose_output() {
            true => Ok(()),
            false => output::check(),
        });
    let status = match ended {
        Ok(()) => 0,
        Err(failure) => {
            let failure = signals::with_received_signal(failure);
            failure.print();
            failure.status()
        }
    };
    // Waits for the other processes, unless they do not know of each other.
    drop(watch);
    status
}

/// The parser's message, a paragraph that may list arguments, tips and the usage, as one line and a hint.
fn wrong_arguments(wrong: &clap::Error, given: &[OsString]) -> Failure {
    let text = wrong.to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let words: Vec<&str> = what.trim_start_matches("error: ").split_whitespace().collect();
    let near = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(|kind| match wrong.get(kind)? {
            ContextValue::String(one) => Some(one.clone()),
            // The parser lists the most similar one last.
            ContextValue::Strings(several) => several.last().cloned(),
            _ => None,
        });
    let command = command_given(given);
    let setting = match wrong.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if wrong.kind() == ErrorKind::UnknownArgument => {
            setting_of(flag, &command)
        }
        _ => None,
    };
    // The parser proposes to pass unknown flags as values, which no command accepts.
    let usage = rest.lines().map(str::trim).find(|line| line.starts_with("Usage: "));
    let hint = match (setting.or(near.map(|near| format!("did you mean `{near}`?"))), wrong.kind(), usage) {
        (Some(hint), ..) => hint,
        (None, ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict, Some(usage)) => {
            usage.to_string()
        }
        _ => format!("`{} --help` lists commands and options", command),
    };
    Failure::new(words.join(" "), hint)
}

/// The way to a setting that has no flag, where an unknown flag is called like it: `--image-size` like `size` of `[images]`.
fn setting_of(flag: &str, command: &str) -> Option<String> {
    // No other command takes settings from a file.
    if !["plimsoll plan", "plimsoll train"].contains(&command) {
        return None;
    }
    let name = flag.trim_start_matches('-').split('=').next()?.replace('-', "_");
    let is_it = |line: &&SettingLine| {
        let table = line.table.trim_end_matches('s');
        name == line.key
            || name == format!("{table}_{}", line.key)
            || name == format!("{}_{}", line.table, line.key)
    };
    let line = SETTING_LINES.iter().find(is_it)?;
    let table = if line.table.is_empty() { String::new() } else { format!(" of [{}]", line.table) };
    Some(format!(
        "`{}`{table} has no flag here: set it in plimsoll.toml; `plimsoll settings` lists its values",
        line.key
    ))
}

/// The command that was given, as far as it is one.
fn command_given(given: &[OsString]) -> String {
    let mut command = args::Args::command();
    let mut words = vec![command.get_name().to_string()];
    for argument in given {
        let Some(below) = command.find_subcommand(argument).cloned() else { break };
        words.push(below.get_name().to_string());
        command = below;
    }
    words.join(" ")
}
