//! A page about a run of one classifier for each pair of classes.

use std::fmt::Write;
use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_run::RunFolder;

use super::read::Fold;
use super::table::{Cell, Table};
use super::{Page, To, curves};
use crate::duration::duration;
use crate::error::Outcome;
use crate::markup::escaped;

/// The folds of the classifier of one pair.
struct PairRun {
    /// Its folder within the run.
    folder: String,
    /// Its classes.
    classes: String,
    folds: Vec<Fold>,
}

impl PairRun {
    /// Reads the folds of the classifier of the classes `one` and `other`.
    fn read(run: &Path, one: u32, other: u32, budget: &Budget) -> Outcome<PairRun> {
        let folder = format!("pair_{one}_{other}");
        let folders = RunFolder::for_pair(run, (one, other)).folds()?;
        let folds = folders.into_iter().map(|fold| Fold::read(fold, budget)).collect::<Outcome<Vec<_>>>()?;
        let classes = match folds.first() {
            Some(fold) => fold.classes().join(" and "),
            None => format!("{one} and {other}"),
        };
        Ok(PairRun { folder, classes, folds })
    }

    fn finished(&self) -> usize {
        self.folds.iter().filter(|fold| fold.weights.is_some()).count()
    }
}

/// Writes a page about all pairs of a run: how each stands, what it took, and its curves. Each pair is a run of its own, with a page of its
/// own.
pub fn pairs_page(to: To<'_, '_>, run: &Path, pairs: &[(u32, u32)], budget: &Budget) -> Outcome {
    let read = pairs.iter().map(|(one, other)| PairRun::read(run, *one, *other, budget));
    let all = read.collect::<Outcome<Vec<PairRun>>>()?;
    let name = run.display().to_string();
    let mut page = Page { to };
    page.begin(&name)?;
    let finished = all.iter().filter(|pair| !pair.folds.is_empty() && pair.finished() == pair.folds.len());
    let seconds: f64 = all.iter().flat_map(|pair| &pair.folds).map(|fold| fold.history.seconds()[0]).sum();
    page.put(&format!(
        "<h1>{}</h1>\n<p class=\"lead\">A classifier for each pair of classes, which vote together.</p>\n\
         <div class=\"numbers\">\n<div><b>{} of {}</b>pairs finished</div>\n<div><b>{}</b>of training in all</div>\n</div>\n",
        escaped(&name),
        finished.count(),
        all.len(),
        escaped(&duration(seconds))
    ))?;
    page.put(&table(&all))?;
    for pair in &all {
        let mut html = format!("<h2>{}</h2>\n", escaped(&pair.classes));
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<p><code>plimsoll report {}</code> writes its page.</p>",
            escaped(&run.join(&pair.folder).display().to_string())
        );
        html.push_str(&curves::charts(&pair.folds));
        page.put(&html)?;
    }
    page.end()
}

/// Each fold of each pair: how it stands, and what came of it.
fn table(all: &[PairRun]) -> String {
    let mut table = Table::new([
        "classes",
        "folder",
        "fold",
        "state",
        "epochs",
        "best balanced accuracy",
        "time",
        "resident at most",
    ]);
    for pair in all {
        for fold in &pair.folds {
            let best = fold.epochs.iter().filter_map(|point| point.accuracy).reduce(f64::max);
            let peak = fold.record.as_ref().and_then(|record| record.peak_rss_bytes);
            table.row([
                Cell::text(&pair.classes),
                Cell::text(&pair.folder),
                Cell::text(&fold.folder.name().to_string()),
                Cell::text(&fold.state.describe()),
                Cell::text(&format!("{} of {}", fold.epochs.len(), fold.specification.config.epochs)),
                Cell::number(best, |score| format!("{score:.4}")),
                Cell::number(Some(fold.history.seconds()[0]), duration),
                Cell::bytes(peak),
            ]);
        }
    }
    table.html()
}
