//! The program `plimsoll`.

use std::process::ExitCode;

use plimsoll_cli::{Invocation, run};

fn main() -> ExitCode {
    ExitCode::from(run(&Invocation::of_this_process()))
}
