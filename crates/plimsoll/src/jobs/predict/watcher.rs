//! The progress of cases as events.

use std::time::Instant;

use plimsoll_infer::{CaseReport, FolderProgress, InferError, Outcome as CaseOutcome};
use plimsoll_report::duration::duration;
use plimsoll_run::one_line;

use super::results::case_error;
use crate::context::{Context, Progress, TimeLeft};
use crate::jobs::outliers::WindowCounts;

/// Shows how far the cases are.
pub struct PredictionWatcher<'a> {
    context: &'a Context,
    /// The bar of the present case, and when its first window began.
    case: Option<(Progress, Instant)>,
    left: TimeLeft,
    windows: WindowCounts,
    can_overlap: bool,
}

impl<'a> PredictionWatcher<'a> {
    /// A watcher whose events go to a context.
    pub fn new(context: &'a Context) -> PredictionWatcher<'a> {
        PredictionWatcher {
            context,
            case: None,
            left: TimeLeft::default(),
            windows: WindowCounts::default(),
            can_overlap: false,
        }
    }

    /// With the windows of all cases: one that has far more than the others is called out before it begins, with `--overlap` as a way out
    /// of it where that makes them fewer.
    #[must_use]
    pub fn knowing(self, windows: WindowCounts, can_overlap: bool) -> PredictionWatcher<'a> {
        PredictionWatcher { windows, can_overlap, ..self }
    }

    /// Passes progress on as events.
    pub fn see(&mut self, progress: FolderProgress<'_>) {
        match progress {
            FolderProgress::Window { number, of, case, windows } => {
                if self.case.is_none()
                    && let Some(outlier) = self.windows.outlier(&case.id)
                {
                    // Without the time: rates of this machine are measured for `--plan` alone.
                    self.context.warn(format_args!("{}", outlier.line(&case.id, None, self.can_overlap)));
                }
                let (bar, start) = self.case.get_or_insert_with(|| {
                    let what = format!("case {number} of {of}, windows");
                    (self.context.work(what, windows.of as u64), Instant::now())
                });
                let seconds = start.elapsed().as_secs_f64();
                let more = self.windows.behind(&case.id).unwrap_or((of - number) as f64);
                let left = self.left.for_present_case(seconds, windows.windows, windows.of, more);
                let note = left.map(|(this, all)| {
                    let (this, all) = (duration(this), duration(all));
                    format!("{}: {this} left, {all} for all", case.id)
                });
                bar.set(windows.windows as u64, note.unwrap_or_else(|| case.id.clone()));
            }
            FolderProgress::Case { number, of, report } => {
                let bar = self.case.take().map(|(bar, _)| bar);
                self.say_end(bar.as_ref(), number, of, report);
            }
        }
    }

    fn say_end(&mut self, bar: Option<&Progress>, number: usize, of: usize, report: &CaseReport) {
        let more = self.windows.behind(&report.case).unwrap_or((of - number) as f64);
        let left = |times: &TimeLeft| match times.for_cases(more) {
            Some(left) if number < of => format!("; about {} left", duration(left)),
            _ => String::new(),
        };
        match &report.outcome {
            CaseOutcome::Predicted { windows, seconds, .. } => {
                self.left.done(*seconds);
                let left = left(&self.left);
                let case = &report.case;
                let line =
                    format!("case {number} of {of}: {case}, {windows} windows in {seconds:.1} s{left}");
                match bar {
                    Some(bar) => bar.note(line),
                    None => self.context.note(line),
                }
            }
            CaseOutcome::Failed(error) => self.context.note(failure_line(&report.case, error)),
            CaseOutcome::Kept => {}
        }
    }
}

fn failure_line(case: &str, error: &InferError) -> String {
    case_error(case, one_line(error))
}
