//! Writing a page about a run or a sweep.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_data::Dataset;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_report::Unavailable;
use plimsoll_report::report_page::{Wanted, folds, pairs_page, run_page, sweep_page};
use plimsoll_run::{FoldFolder, Settings, SweepFolder};
use serde::Serialize;

use super::listed::{Listed, Opening};
use super::memory_limit::MemoryLimit;
use super::pairs::pairs_of;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::write;

/// A page to write.
#[derive(Clone, Debug)]
pub struct ReportRequest {
    /// The folder of a run, of one of its folds, or of a sweep.
    pub run: PathBuf,
    /// The file of the page.
    pub page: PathBuf,
    /// The data set, for pictures of cases; none for the one that the run was trained on.
    pub dataset: Option<PathBuf>,
    /// Allows lists to name files outside of the data set's folder.
    pub allow_outside: bool,
    /// The number of the worst cases that have pictures, and of the best.
    pub cases: usize,
    /// The number of the worst cases that have volumes to be sliced and turned.
    pub volumes: usize,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

impl ReportRequest {
    /// A page about a run with pictures of its three worst and three best cases.
    pub fn new(run: impl Into<PathBuf>, page: impl Into<PathBuf>) -> ReportRequest {
        ReportRequest {
            run: run.into(),
            page: page.into(),
            dataset: None,
            allow_outside: false,
            cases: 3,
            volumes: 0,
            ram: None,
        }
    }
}

/// A page that was written.
#[derive(Clone, Debug, Serialize)]
pub struct WrittenPage {
    /// Its file.
    pub page: PathBuf,
    /// The length of the file.
    pub bytes: u64,
}

/// The subject of a page.
enum Found {
    Sweep,
    /// A classifier for each pair of classes.
    Pairs(Vec<(u32, u32)>),
    Folds(Vec<FoldFolder>),
}

/// Writes a page about a run or a sweep: one file that needs no network.
///
/// # Errors
/// Returns an error if the folder holds neither, or a file cannot be read or written. Then no page is left.
pub fn report(request: &ReportRequest, context: &Context) -> Outcome<WrittenPage> {
    let memory = MemoryLimit::set(request.ram, 1, context)?;
    let sweep = SweepFolder::new(&request.run);
    // A folder that is no run is reported before anything is written.
    let found = match (sweep.is_begun(), pairs_of(&request.run)?) {
        (true, _) => Found::Sweep,
        (false, pairs) if !pairs.is_empty() => Found::Pairs(pairs),
        (false, _) => Found::Folds(folds(&request.run)?),
    };
    let open = |place: &Path, settings: &Settings, budget: &Budget| {
        let context = context.silent();
        let opening =
            Opening { settings, allow_outside: request.allow_outside, threads: 1, context: &context };
        open_volumes(place, &opening, budget)
            .map_err(|failure| Unavailable { error: failure.line(), hint: failure.remedy().clone().into() })
    };
    let wanted = Wanted {
        dataset: request.dataset.as_deref(),
        open: &open,
        count: request.cases,
        volumes: request.volumes,
    };
    let mut fault = None;
    let written = write(&request.page, |file| {
        let to = (request.page.as_path(), file);
        let made = match found {
            Found::Sweep => sweep_page(to, &sweep, &wanted, &memory.budget),
            Found::Pairs(pairs) => pairs_page(to, &request.run, &pairs, &memory.budget),
            Found::Folds(folds) => run_page(to, &request.run, folds, &wanted, &memory.budget),
        };
        made.map_err(|failure| {
            fault = Some(failure);
            io::Error::other("the page is incomplete")
        })
    });
    fault.map_or(written, |error| Err(error.into()))?;
    let bytes = plimsoll_disk::metadata(&request.page)?.len();
    Ok(WrittenPage { page: request.page.clone(), bytes })
}

/// Opens the data set that a page has pictures of.
fn open_volumes(place: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Dataset> {
    match Listed::open(place, opening, budget)? {
        Listed::Volumes(dataset) => Ok(dataset),
        Listed::Images { .. } => {
            let message = format!("{} has no label maps", place.display());
            Err(Error::new(message, "name the data set of the training: ‹dataset›"))
        }
    }
}
