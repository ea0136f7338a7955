//! `plimsoll report`

use std::io;
use std::path::Path;

use plimsoll_data::Dataset;
use plimsoll_memory::Budget;
use plimsoll_report::Unavailable;
use plimsoll_report::report_page::{Wanted, folds, pairs_page, run_page, sweep_page};
use plimsoll_run::{FoldFolder, Settings, SweepFolder};
use serde::Serialize;

use crate::args;
use crate::failure::{Failure, Outcome};
use crate::report::{json, write};
use plimsoll::Context;
use plimsoll::jobs::line::Line;
use plimsoll::jobs::listed::{Listed, Opening};
use plimsoll::jobs::pairs::pairs_of;

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
    let open = |place: &Path, settings: &Settings, budget: &Budget| {
        let context = Context::unobserved();
        let opening = Opening { settings, allow_outside: args.allow_outside, threads: 1, context: &context };
        open_volumes(place, &opening, budget)
            .map_err(|failure| Unavailable { error: failure.line().to_string(), hint: failure.hint().into() })
    };
    let wanted =
        Wanted { dataset: args.dataset.as_deref(), open: &open, count: args.cases, volumes: args.volumes };
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
    fault.map_or(written, |error| Err(error.into()))?;
    let bytes = plimsoll_disk::metadata(&args.output)?.len();
    if as_json {
        return json(&Written { page: args.output.clone(), bytes });
    }
    println!("{}: {:.2} MB; it needs no network", args.output.display(), bytes as f64 / 1e6);
    Ok(())
}

/// Opens the data set that a page has pictures of.
fn open_volumes(place: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Dataset> {
    match Listed::open(place, opening, budget)? {
        Listed::Volumes(dataset) => Ok(dataset),
        Listed::Images { .. } => {
            let message = format!("{} has no label maps", place.display());
            Err(Failure::new(message, "name the data set that was trained with: --dataset"))
        }
    }
}
