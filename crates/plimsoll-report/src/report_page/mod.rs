//! A page about a run or a sweep: one file that needs nothing else, neither a network nor, but for sorting tables, scripts.

mod cases;
mod classifier;
mod curves;
mod failures;
mod history;
mod memory;
mod methods;
mod overview;
mod pairs;
mod provenance;
mod read;
mod record;
mod samples;
mod scores;
mod sweep;
mod table;
mod time;
mod volumes;

use std::io;
use std::path::Path;

use plimsoll_memory::Budget;

pub use cases::{OpenDataset, Wanted};
pub use classifier::labelling_of;
pub use pairs::pairs_page;
pub use read::folds;
pub use sweep::sweep_page;

use self::read::Fold;
use self::scores::Cases;
use crate::epoch_chart;
use crate::error::{Outcome, ReportError};
use crate::markup::beginning;

const STYLE: &str = "h3{font-size:1rem;margin:1.2rem 0 .4rem}p{max-width:60rem}nav{margin:.8rem 0;font-size:.9rem}nav a{margin-right:.9rem;color:#0b5394}\
    .numbers{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0}.numbers div{border:1px solid #dfe4ea;border-radius:6px;padding:.5rem .9rem;\
    color:#55606e;font-size:.85rem}.numbers b{display:block;font-size:1.3rem;color:#1d232b}\
    .wide{overflow-x:auto;margin:.6rem 0}table{border-collapse:collapse;font-size:.85rem}th,td{padding:.25rem .6rem;border-bottom:1px solid #e3e7ec;\
    text-align:left;vertical-align:top}th{background:#f4f6f8;cursor:pointer;white-space:nowrap}\
    th[aria-sort=ascending]::after{content:' ▲'}th[aria-sort=descending]::after{content:' ▼'}td.n{text-align:right;font-variant-numeric:tabular-nums;\
    white-space:nowrap}td small{color:#55606e}pre,code{font:12px ui-monospace,monospace}pre{background:#f4f6f8;padding:.6rem .8rem;overflow-x:auto;\
    border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}summary{cursor:pointer;color:#33404f;margin:.5rem 0}.flag{color:#9a3412}\
    blockquote{margin:.6rem 0;padding:.6rem 1rem;border-left:4px solid #0072b2;background:#f4f8fc;max-width:60rem}\
    .pictures{display:flex;flex-wrap:wrap;gap:1.2rem}.pictures figure{max-width:100%}.pictures img{display:block;max-width:100%;border-radius:4px}\
    .viewer{width:100%;height:36rem}.viewer canvas{width:100%;height:100%}@media print{nav,.viewer{display:none}}";

/// The destination of the page: its path and the open file.
pub type To<'p, 'w> = (&'p Path, &'w mut (dyn io::Write + 'w));

/// Writes what of a page is made.
struct Page<'p, 'w> {
    to: To<'p, 'w>,
}

impl Page<'_, '_> {
    fn put(&mut self, part: &str) -> Outcome {
        self.to.1.write_all(part.as_bytes()).map_err(|error| ReportError::at_path(self.to.0, error))
    }

    fn begin(&mut self, title: &str) -> Outcome {
        self.put(&beginning(title, "", &[epoch_chart::STYLE, STYLE]))
    }

    fn end(&mut self) -> Outcome {
        self.put(table::SCRIPT)?;
        self.put("</body></html>\n")
    }
}

/// Links to the parts of a page, to the cases where any are shown.
fn navigation(has_cases: bool) -> String {
    let parts = [
        ("run", "Settings"),
        ("memory", "Memory"),
        ("curves", "Curves"),
        ("scores", "Scores"),
        ("cases", "Worst and best cases"),
        ("failures", "Failures"),
        ("time", "Time"),
        ("provenance", "Provenance"),
        ("methods", "Methods"),
    ];
    let shown = parts.iter().filter(|(part, _)| has_cases || *part != "cases");
    let links = shown.map(|(part, name)| format!("<a href=\"#{part}\">{name}</a>"));
    format!("<nav>{}</nav>\n", links.collect::<String>())
}

/// Writes a page about a run: the folder `run`, of which these folds are shown.
pub fn run_page(
    to: To<'_, '_>,
    run: &Path,
    folders: Vec<plimsoll_run::FoldFolder>,
    wanted: &Wanted<'_>,
    budget: &Budget,
) -> Outcome {
    let folds = folders.into_iter().map(|folder| Fold::read(folder, budget)).collect::<Outcome<Vec<_>>>()?;
    let cases = Cases::new(&folds);
    let mut page = Page { to };
    page.begin(&run.display().to_string())?;
    page.put(&overview::heading(run, &folds, &cases, budget)?)?;
    page.put(&navigation(wanted.count > 0 && !cases::ranked(&cases).is_empty()))?;
    page.put(&overview::section(&folds)?)?;
    memory::section(&folds, budget, &mut |part| page.put(part))?;
    page.put(&curves::section(&folds))?;
    match folds.iter().any(classifier::is_of_images) {
        true => classifier::section(&folds, budget, &mut |part| page.put(part))?,
        false => {
            page.put(&scores::section(&folds, &cases, budget)?)?;
            page.put(&cases::section(&folds, &cases, wanted, budget))?;
            volumes::section(&folds, &cases, wanted, budget, &mut |part| page.put(part))?;
        }
    }
    page.put(&failures::section(&folds))?;
    page.put(&time::section(&folds))?;
    page.put(&provenance::section(&folds)?)?;
    page.put(&methods::section(&folds)?)?;
    page.end()
}
