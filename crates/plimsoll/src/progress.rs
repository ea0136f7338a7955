//! Progress: a bar on a terminal, plain lines elsewhere, nothing where a machine reads.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Plain lines are at least this far apart.
const LINES_EVERY: Duration = Duration::from_secs(15);

/// Progress of one piece of work.
pub struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    /// When the last plain line was printed.
    last_line: Option<Mutex<Instant>>,
    of: u64,
}

impl Progress {
    /// Of `of` pieces of work.
    pub fn new(what: &'static str, of: u64, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta} {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(what);
            bar
        });
        let last_line = (!quiet && !terminal).then(|| Mutex::new(Instant::now()));
        Progress { what, bar, last_line, of }
    }

    /// So much is done.
    pub fn set(&self, done: u64, note: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(note);
            bar.set_position(done);
        } else if let Some(last_line) = &self.last_line
            && let Ok(mut last) = last_line.lock()
            && last.elapsed() >= LINES_EVERY
        {
            eprintln!("{} {done}/{} {note}", self.what, self.of);
            *last = Instant::now();
        }
    }

    /// Prints a line of its own.
    pub fn say(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.last_line.is_some() => eprintln!("{line}"),
            None => {}
        }
    }

    /// All is done.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
