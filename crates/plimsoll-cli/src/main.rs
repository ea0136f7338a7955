//! The command line. No algorithm lives here: arguments, progress, reports.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

// First, so that all others print through it.
#[macro_use]
mod output;

mod args;
mod commands;
mod failure;
mod launch;
mod report;
mod signals;
mod terminal;
mod watch;
mod wording;

use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as NO_COMMAND;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use failure::Failure;
use plimsoll_memory::{CountingAllocator, keep_resident_small};
use plimsoll_run::{SETTING_LINES, SettingLine};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    keep_resident_small();
    plimsoll_dicom::register();
    signals::end_with_the_pipe();
    signals::keep_over_file_limit();
    let arguments = match args::with_own_names(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(refused) => {
            refused.print();
            return ExitCode::from(2);
        }
    };
    let mut args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        // Help and version are not errors, and whoever names no command is helped too.
        Err(told) if !told.use_stderr() || told.kind() == NO_COMMAND => told.exit(),
        Err(wrong) => {
            wrong_arguments(&wrong).print();
            return ExitCode::from(2);
        }
    };
    let went = launch::choose_part(&mut args).and_then(|()| commands::run(&args)).and_then(|()| {
        match args.may_lose_output() {
            true => Ok(()),
            false => output::check(),
        }
    });
    match went {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = signals::with_received_signal(failure);
            failure.print();
            ExitCode::from(failure.status())
        }
    }
}

/// The parser's message, a paragraph that may list arguments, tips and the usage, as one line and a hint.
fn wrong_arguments(wrong: &clap::Error) -> Failure {
    let text = wrong.to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let words: Vec<&str> = what.trim_start_matches("error: ").split_whitespace().collect();
    let near = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(|kind| match wrong.get(kind)? {
            ContextValue::String(one) => Some(one.clone()),
            ContextValue::Strings(several) => several.first().cloned(),
            _ => None,
        });
    let setting = match wrong.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if wrong.kind() == ErrorKind::UnknownArgument => setting_of(flag),
        _ => None,
    };
    // The parser proposes to pass unknown flags as values, which no command accepts.
    let usage = rest.lines().map(str::trim).find(|line| line.starts_with("Usage: "));
    let hint = match (setting.or(near.map(|near| format!("did you mean `{near}`?"))), wrong.kind(), usage) {
        (Some(hint), ..) => hint,
        (None, ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict, Some(usage)) => {
            usage.to_string()
        }
        _ => format!("`{} --help` lists commands and options", command_given()),
    };
    Failure::new(words.join(" "), hint)
}

/// The way to a setting that has no flag, where an unknown flag is called like it: `--image-size` like `size` of `[images]`.
fn setting_of(flag: &str) -> Option<String> {
    // No other command takes settings from a file.
    if !["plimsoll plan", "plimsoll train"].contains(&command_given().as_str()) {
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
fn command_given() -> String {
    let mut command = args::Args::command();
    let mut words = vec![command.get_name().to_string()];
    for argument in std::env::args().skip(1) {
        let Some(below) = command.find_subcommand(&argument).cloned() else { break };
        words.push(argument);
        command = below;
    }
    words.join(" ")
}
