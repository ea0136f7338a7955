//! The surroundings of a job: a stop token, an observer of its events and a cache folder.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_disk::outputs::CommandFiles;
use plimsoll_memory::{Bytes, Limits, System, limits};
use plimsoll_run::CacheFolder;

use crate::error::Outcome;
use crate::events::{Event, Observer, Unobserved, Work};

/// The surroundings of a job, which never change its result: a stop token, an observer of its events and a cache folder.
///
/// With [`Context::default`] a job runs to its end, nothing observes it, and nothing is cached.
#[derive(Clone)]
pub struct Context {
    /// Ends the job early.
    pub stop: StopToken,
    observer: Arc<dyn Observer>,
    cache: Option<CacheFolder>,
    system: System,
    /// The files of the system whose failure to be read was reported.
    reported: Arc<Mutex<BTreeSet<PathBuf>>>,
    outputs: Arc<CommandFiles>,
}

impl Default for Context {
    fn default() -> Context {
        Context::observed(Unobserved)
    }
}

impl Context {
    /// A context whose events go to an observer, such as a closure that takes `&Event<'_>`.
    pub fn observed(observer: impl Observer + 'static) -> Context {
        Context {
            stop: StopToken::default(),
            observer: Arc::new(observer),
            cache: None,
            system: System::default(),
            reported: Arc::default(),
            outputs: Arc::default(),
        }
    }

    /// The same context for a job that writes these files: it ends before it begins if its data set lists one of them.
    #[must_use]
    pub fn writing(self, outputs: Arc<CommandFiles>) -> Context {
        Context { outputs, ..self }
    }

    /// Checks that the job writes none of the files that an input lists.
    pub(crate) fn expect_unlisted<'a>(
        &self,
        input: &'static str,
        listed: impl IntoIterator<Item = &'a Path>,
    ) -> Outcome {
        Ok(self.outputs.check_listed(input, listed)?)
    }

    /// The same context with memory limits that are read from another system. Tests use it.
    #[must_use]
    pub fn with_system(self, system: System) -> Context {
        Context { system, ..self }
    }

    /// The same context with a folder for files that can be computed again, such as inspections of data sets.
    #[must_use]
    pub fn with_cache(self, cache: Option<CacheFolder>) -> Context {
        Context { cache, ..self }
    }

    /// The folder of files that can be computed again.
    pub fn cache(&self) -> Option<&CacheFolder> {
        self.cache.as_ref()
    }

    /// The same context for a part of a job whose events would repeat others.
    pub(crate) fn silent(&self) -> Context {
        Context { observer: Arc::new(Unobserved), reported: Arc::default(), ..self.clone() }
    }

    /// Passes an event to the observer.
    pub fn emit(&self, event: &Event<'_>) {
        self.observer.event(event);
    }

    /// Reports something that a user should check; the job goes on.
    pub fn warn(&self, text: impl fmt::Display) {
        self.emit(&Event::Warning { text: &text.to_string() });
    }

    /// Reads the memory limits of this process, and warns of each file of the system that exists but cannot be read, since a
    /// limit in it may be lower than all others. A context and its clones warn of a file once.
    pub fn limits(&self, asked: Option<Bytes>) -> Limits {
        let limits = limits(&self.system, asked);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        for unread in &limits.unread {
            if reported.insert(unread.path.clone()) {
                self.warn(unread);
            }
        }
        limits
    }

    /// Reports a choice or a fact that a user may want to know.
    pub fn note(&self, text: impl fmt::Display) {
        self.emit(&Event::Note { text: &text.to_string() });
    }

    /// Begins work of a known number of pieces.
    pub fn work(&self, title: impl Into<String>, pieces: u64) -> Progress {
        self.begin(Work { id: 0, title: title.into(), pieces: Some(pieces), is_beside_others: false })
    }

    /// Begins work that runs at the same time as other work.
    pub fn work_beside(&self, title: impl Into<String>, pieces: u64) -> Progress {
        self.begin(Work { id: 0, title: title.into(), pieces: Some(pieces), is_beside_others: true })
    }

    /// Begins work whose number of pieces is not known.
    pub fn work_without_end(&self, title: impl Into<String>) -> Progress {
        self.begin(Work { id: 0, title: title.into(), pieces: None, is_beside_others: false })
    }

    fn begin(&self, work: Work) -> Progress {
        // Numbers of pieces of work only have to differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let work = Work { id: NEXT.fetch_add(1, Ordering::Relaxed), ..work };
        self.emit(&Event::WorkBegan { work: &work });
        Progress { work, observer: Arc::clone(&self.observer) }
    }

    /// Declares that the job has results from now on, which it saves when it is asked to stop.
    pub fn keep_results(&self) {
        self.stop.state.has_results.store(true, Ordering::Relaxed);
        self.emit(&Event::ResultsToKeep);
    }

    /// A line that the journal of a run must keep, such as lost output, once.
    pub(crate) fn take_journal_line(&self) -> Option<String> {
        self.observer.take_journal_line()
    }
}

/// Asks a job to end early. Clones share the same state.
#[derive(Clone, Default)]
pub struct StopToken {
    state: Arc<StopState>,
}

#[derive(Default)]
struct StopState {
    is_asked: AtomicBool,
    has_results: AtomicBool,
}

impl StopToken {
    /// Asks the job to end as soon as its results are saved.
    pub fn ask(&self) {
        self.state.is_asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the job was asked to end.
    pub fn is_asked(&self) -> bool {
        self.state.is_asked.load(Ordering::Relaxed)
    }

    /// Returns whether the job has results to save, so that its process must not be killed at once.
    pub fn has_results(&self) -> bool {
        self.state.has_results.load(Ordering::Relaxed)
    }

    /// The flag that [`StopToken::ask`] sets.
    pub fn flag(&self) -> &AtomicBool {
        &self.state.is_asked
    }
}

/// Work of a job that emits its progress, and its end when it is dropped.
pub struct Progress {
    work: Work,
    observer: Arc<dyn Observer>,
}

impl Progress {
    /// Reports the number of finished pieces.
    pub fn set(&self, done: u64, note: String) {
        self.set_with_left(done, note, None);
    }

    /// Reports the number of finished pieces and an estimate of the seconds that are left.
    pub fn set_with_left(&self, done: u64, note: String, seconds_left: Option<f64>) {
        self.observer.event(&Event::WorkAdvanced { work: &self.work, done, note: &note, seconds_left });
    }

    /// Reports the present state of work whose number of pieces is not known.
    pub fn show(&self, note: String) {
        self.set(0, note);
    }

    /// Reports a line about the work, which observers show beside its progress.
    pub fn say(&self, line: String) {
        self.observer.event(&Event::WorkLine { work: &self.work, text: &line, repeats_progress: false });
    }

    /// Reports a line that repeats what the progress has shown, for observers that do not draw progress.
    pub fn note(&self, line: String) {
        self.observer.event(&Event::WorkLine { work: &self.work, text: &line, repeats_progress: true });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.observer.event(&Event::WorkEnded { work: &self.work });
    }
}

/// An estimate of the time that cases still take, from those that are done and from the progress of the present one.
#[derive(Debug, Default)]
pub struct TimeLeft {
    cases: usize,
    seconds: f64,
}
impl TimeLeft {
    /// Adds a finished case and the seconds that it took.
    pub fn done(&mut self, seconds: f64) {
        self.cases += 1;
        self.seconds += seconds;
    }

    /// Seconds that `more` cases take if they are as long as the finished ones on average. None before one is finished.
    pub fn for_cases(&self, more: f64) -> Option<f64> {
        (self.cases > 0).then(|| self.seconds / self.cases as f64 * more)
    }

    /// Seconds for the rest of the present case, of which `done` of `of` windows took `seconds`, and for all cases, of which
    /// `more` come after it that are as long as those up to it on average. None before a window is done.
    pub fn for_present_case(&self, seconds: f64, done: usize, of: usize, more: f64) -> Option<(f64, f64)> {
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
        assert_eq!((left.for_cases(3.0), left.for_present_case(5.0, 0, 10, 3.0)), (None, None));
        // The first case: 2 of 10 windows took 4 s, so 16 s are left, and three more cases take 20 s each.
        assert_eq!(left.for_present_case(4.0, 2, 10, 3.0), Some((16.0, 76.0)));
        left.done(20.0);
        assert_eq!(left.for_cases(3.0), Some(60.0));
        // The second will have taken 40 s, so that two more take 30 s each.
        assert_eq!(left.for_present_case(10.0, 5, 20, 2.0), Some((30.0, 90.0)));
    }
}
