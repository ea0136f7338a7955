//! Progress: a bar on a terminal, plain lines elsewhere, nothing where a machine reads.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{escaped, in_line};

/// Plain lines are at least this far apart.
const LINES_EVERY: Duration = Duration::from_secs(15);

/// Progress of one piece of work.
pub struct Progress {
    what: String,
    bar: Option<ProgressBar>,
    /// When the last plain line was printed.
    last_line: Option<Mutex<Instant>>,
    of: u64,
}

impl Progress {
    /// Of `of` pieces of work.
    pub fn new(what: impl Into<String>, of: u64, quiet: bool) -> Progress {
        let what = what.into();
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta} {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(in_line(&what));
            bar
        });
        let last_line = (!quiet && !terminal).then(|| Mutex::new(Instant::now()));
        Progress { what, bar, last_line, of }
    }

    /// Of `of` pieces of work, with other work beside it: plain lines even on a terminal, where bars would overwrite each other.
    pub fn lines(what: impl Into<String>, of: u64, quiet: bool) -> Progress {
        let last_line = (!quiet).then(|| Mutex::new(Instant::now()));
        Progress { what: what.into(), bar: None, last_line, of }
    }

    /// Of work whose end is not known: on a terminal a sign of life, elsewhere a line that it has begun.
    pub fn without_end(what: &'static str, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(what);
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        if !quiet && !terminal {
            eprintln!("{what} …");
        }
        let last_line = (!quiet && !terminal).then(|| Mutex::new(Instant::now()));
        Progress { what: what.into(), bar, last_line, of: 0 }
    }

    /// What is being done now, of work whose end is not known.
    pub fn show(&self, note: String) {
        match &self.bar {
            Some(bar) => bar.set_message(note),
            None => self.line(&note),
        }
    }

    /// Prints a plain line if the last one is long enough ago.
    fn line(&self, note: &str) {
        if let Some(last_line) = &self.last_line
            && let Ok(mut last) = last_line.lock()
            && last.elapsed() >= LINES_EVERY
        {
            eprintln!("{} {note}", self.what);
            *last = Instant::now();
        }
    }

    /// So much is done.
    pub fn set(&self, done: u64, note: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(in_line(&note));
            bar.set_position(done);
        } else {
            self.line(&format!("{done}/{} {note}", self.of));
        }
    }

    /// Prints a line of its own.
    pub fn say(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(escaped(&line)),
            None if self.last_line.is_some() => eprintln!("{line}"),
            None => {}
        }
    }

    /// Prints a line of its own where there is no bar to follow.
    pub fn note(&self, line: String) {
        if self.bar.is_none() {
            self.say(line);
        }
    }

    /// All is done.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An estimate of the time that cases still take: from those that are done, and from how far the present one is.
#[derive(Debug, Default)]
pub struct TimeLeft {
    cases: usize,
    seconds: f64,
}

impl TimeLeft {
    /// A case is done, and took so long.
    pub fn done(&mut self, seconds: f64) {
        self.cases += 1;
        self.seconds += seconds;
    }

    /// Seconds for `more` cases as long as those that are done are on average. None before one is done.
    pub fn of_cases(&self, more: f64) -> Option<f64> {
        (self.cases > 0).then(|| self.seconds / self.cases as f64 * more)
    }

    /// Seconds for the rest of the present case, of which `done` of `of` windows took `seconds`, and for all cases, of which
    /// `more` come after it that are as long as those up to it on average. None before a window is done.
    pub fn of_present(&self, seconds: f64, done: usize, of: usize, more: f64) -> Option<(f64, f64)> {
        if done == 0 {
            return None;
        }
        let case = seconds / done as f64 * (of - done) as f64;
        let mean = (self.seconds + seconds + case) / (self.cases + 1) as f64;
        Some((case, case + mean * more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_windows_and_of_cases_like_those_done() {
        let mut left = TimeLeft::default();
        assert_eq!((left.of_cases(3.0), left.of_present(5.0, 0, 10, 3.0)), (None, None));
        // The first case: 2 of 10 windows took 4 s, so 16 s are left, and three more cases take 20 s each.
        assert_eq!(left.of_present(4.0, 2, 10, 3.0), Some((16.0, 76.0)));
        left.done(20.0);
        assert_eq!(left.of_cases(3.0), Some(60.0));
        // The second will have taken 40 s, so that two more take 30 s each.
        assert_eq!(left.of_present(10.0, 5, 20, 2.0), Some((30.0, 90.0)));
    }
}
