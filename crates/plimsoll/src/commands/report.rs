//! `plimsoll report`

use std::io;

use plimsoll_run::{FoldFolder, SweepFolder};
use serde::Serialize;

use crate::args;
use crate::failure::Outcome;
use crate::jobs::line::Line;
use crate::jobs::pairs::pairs_of;
use crate::report::{json, write};
use crate::report_page::{Wanted, folds, pairs_page, run_page, sweep_page};

/// What was written.
#[derive(Serialize)]
struct Written {
    page: std::path::PathBuf,
    bytes: u64,
}

/// What a page is about.
enum Found {
    Sweep,
    /// A classifier for each pair of classes.
    Pairs(Vec<(u32, u32)>),
    Folds(Vec<FoldFolder>),
}

/// Writes a page about a run or a sweep.
pub fn run(args: &args::Report, as_json: bool) -> Outcome {
    let line = Line::draw(args.ram.ram, 1)?;
    let sweep = SweepFolder::new(&args.run);
    // What is no run is told before anything is written.
    let found = match (sweep.is_begun(), pairs_of(&args.run)?) {
        (true, _) => Found::Sweep,
        (false, pairs) if !pairs.is_empty() => Found::Pairs(pairs),
        (false, _) => Found::Folds(folds(&args.run)?),
    };
    let wanted = Wanted {
        dataset: args.dataset.as_deref(),
        allow_outside: args.allow_outside,
        count: args.cases,
        volumes: args.volumes,
    };
    let mut fault = None;
    let written = write(&args.output, |file| {
        let to = (args.output.as_path(), file);
        let made = match found {
            Found::Sweep => sweep_page(to, &sweep, &wanted, &line.budget),
            Found::Pairs(pairs) => pairs_page(to, &args.run, &pairs, &line.budget),
            Found::Folds(folds) => run_page(to, &args.run, folds, &wanted, &line.budget),
        };
        made.map_err(|failure| {
            fault = Some(failure);
            io::Error::other("the page is not whole")
        })
    });
    fault.map_or(written, Err)?;
    let bytes = plimsoll_disk::metadata(&args.output)?.len();
    if as_json {
        return json(&Written { page: args.output.clone(), bytes });
    }
    println!("{}: {:.2} MB; it needs no network", args.output.display(), bytes as f64 / 1e6);
    Ok(())
}
