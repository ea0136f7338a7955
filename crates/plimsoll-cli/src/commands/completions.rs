//! `plimsoll completions`

use clap::CommandFactory;
use clap_complete::generate;

use crate::args::{Args, Completions};
use crate::failure::{Failure, Outcome};

/// Prints the completions of all commands and options for a shell.
pub fn run(completions: &Completions) -> Outcome {
    let mut script = Vec::new();
    let mut command = Args::command();
    let name = command.get_name().to_string();
    generate(completions.shell, &mut command, name, &mut script);
    let script = String::from_utf8(script).map_err(|error| {
        Failure::new(format!("internal error: completions are no text: {error}"), "report this as a bug")
    })?;
    print!("{script}");
    Ok(())
}
