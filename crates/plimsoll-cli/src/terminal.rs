//! Events of jobs on a terminal: a bar where one can be drawn, plain lines elsewhere, warnings alone where a program reads the results.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll::{Context, Event, Observer, StopToken, Work};
use plimsoll_disk::outputs::CommandFiles;
use plimsoll_remedy::render;
use plimsoll_report::text::{escaped, in_line};
use plimsoll_run::CacheFolder;

use crate::commands::print_plan;
use crate::failure::Outcome;
use crate::output::take_notice;
use crate::signals;
use crate::wording::Flags;

/// The least time between two plain lines about the progress of one work.
const LINES_EVERY: Duration = Duration::from_secs(15);

/// The files that this process writes, by the arguments of its command.
static OUTPUTS: OnceLock<Arc<CommandFiles>> = OnceLock::new();

/// Sets the files that this process writes: contexts refuse data sets that list one of them.
pub fn write_only(outputs: CommandFiles) {
    // A process has one command.
    let _ = OUTPUTS.set(Arc::new(outputs));
}

/// A context whose job is ended by signals; only warnings are shown if the results are printed as JSON.
pub fn context(as_json: bool) -> Outcome<Context> {
    let stop = StopToken::default();
    signals::listen(&stop)?;
    let mut context = observed(as_json);
    context.stop = stop;
    Ok(context)
}

/// A context whose job is ended by signals and reports nothing: another process reports the same events.
#[cfg(unix)]
pub fn silent_context() -> Outcome<Context> {
    let stop = StopToken::default();
    signals::listen(&stop)?;
    let outputs = OUTPUTS.get().map(Arc::clone).unwrap_or_default();
    let mut context = Context::default().with_cache(cache_folder()).writing(outputs);
    context.stop = stop;
    Ok(context)
}

/// A context whose job ends with the process; only warnings are shown if the results are printed as JSON.
pub fn observed(as_json: bool) -> Context {
    let outputs = OUTPUTS.get().map(Arc::clone).unwrap_or_default();
    Context::observed(Terminal::new(as_json)).with_cache(cache_folder()).writing(outputs)
}

/// The cache folder of the user.
pub fn cache_folder() -> Option<CacheFolder> {
    CacheFolder::for_user(|name| std::env::var_os(name))
}

/// Shows the events of a job.
struct Terminal {
    is_quiet: bool,
    works: Mutex<BTreeMap<u64, Shown>>,
}

/// The progress of one work.
struct Shown {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Terminal {
    fn new(is_quiet: bool) -> Terminal {
        Terminal { is_quiet, works: Mutex::default() }
    }

    fn works(&self) -> MutexGuard<'_, BTreeMap<u64, Shown>> {
        // A thread that panicked while it drew has left the list as it was.
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, work: &Work) {
        let has_bar = std::io::stderr().is_terminal() && !work.is_beside_others;
        if work.pieces.is_none() && !has_bar {
            eprintln!("{} …", work.title);
        }
        let bar = has_bar.then(|| bar(work));
        self.works().insert(work.id, Shown { bar, last_line: Instant::now() });
    }

    fn advance(&self, work: &Work, done: u64, note: &str) {
        let mut works = self.works();
        let Some(shown) = works.get_mut(&work.id) else { return };
        match &shown.bar {
            Some(bar) => {
                bar.set_message(in_line(&render(note, &Flags)));
                if work.pieces.is_some() {
                    bar.set_position(done);
                }
            }
            None if shown.last_line.elapsed() >= LINES_EVERY => {
                shown.last_line = Instant::now();
                match work.pieces {
                    Some(pieces) => eprintln!("{} {done}/{pieces} {note}", work.title),
                    None => eprintln!("{} {note}", work.title),
                }
            }
            None => {}
        }
    }

    /// Prints a line of a work, or of the job where `work` is none, above all bars.
    fn line(&self, work: Option<&Work>, text: &str, repeats_progress: bool) {
        let works = self.works();
        let own = work.and_then(|work| works.get(&work.id)?.bar.as_ref());
        let any = || works.values().find_map(|shown| shown.bar.as_ref());
        match own {
            Some(_) if repeats_progress => {}
            Some(bar) => bar.println(escaped(&render(text, &Flags))),
            None => match any() {
                Some(bar) => bar.println(escaped(&render(text, &Flags))),
                None => eprintln!("{text}"),
            },
        }
    }
}

/// The bar of a work; a sign of life where its number of pieces is not known.
fn bar(work: &Work) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(work.pieces, ProgressDrawTarget::stderr_with_hz(4));
    let template = match work.pieces {
        Some(_) => "{prefix} {wide_bar} {pos}/{len} {eta} {msg}",
        None => "{spinner} {prefix} {elapsed} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(in_line(&work.title));
    if work.pieces.is_none() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

impl Observer for Terminal {
    fn event(&self, event: &Event<'_>) {
        if let Event::ResultsToKeep = event {
            signals::keep_over_closed_pipe();
        }
        match event {
            // Also where a program reads the results: it reads the standard output stream.
            Event::Warning { text } => self.line(None, &format!("warning: {text}"), false),
            _ if self.is_quiet => {}
            Event::Note { text } => self.line(None, text, false),
            Event::WorkBegan { work } => self.begin(work),
            Event::WorkAdvanced { work, done, note, .. } => self.advance(work, *done, note),
            Event::WorkLine { work, text, repeats_progress } => {
                self.line(Some(work), text, *repeats_progress);
            }
            Event::WorkEnded { work } => {
                let ended = self.works().remove(&work.id);
                if let Some(bar) = ended.and_then(|shown| shown.bar) {
                    bar.finish_and_clear();
                }
            }
            Event::Planned { planned, at_once } => {
                print_plan(planned);
                if let Some(at_once) = at_once {
                    println!(
                        "{} folds at once, each with {} thread(s): {} planned for each, {} for all together, of the limit of {}",
                        at_once.folds,
                        at_once.threads_each,
                        at_once.planned_bytes_each,
                        at_once.planned_bytes,
                        at_once.ram_budget_bytes
                    );
                }
            }
            Event::Part { title } => println!("\n== {title}"),
            // The line of the epoch says the same.
            Event::Epoch { .. } | Event::ResultsToKeep => {}
            // Events that a later version of the library has are not shown.
            #[allow(unreachable_patterns, reason = "the library may gain events")]
            _ => {}
        }
    }

    fn take_journal_line(&self) -> Option<String> {
        take_notice()
    }
}
