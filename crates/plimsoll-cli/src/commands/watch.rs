//! `plimsoll watch`

use plimsoll_report::live::Watched;

use crate::args;
use crate::failure::Outcome;
use crate::report::json;
use crate::watch::{once, serve, show};

/// Shows how runs go, in a terminal, as one frame of text, or as a page.
pub fn run(args: &args::Watch, as_json: bool) -> Outcome {
    let mut watched = Watched::open(&args.runs)?;
    if as_json {
        return json(&watched.reports());
    }
    if args.once {
        print!("{}", once(&watched));
        return Ok(());
    }
    match args.serve {
        Some(port) => serve(&mut watched, port),
        None => show(&mut watched),
    }
}
