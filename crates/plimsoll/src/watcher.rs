//! The progress of a fold's training for people: a bar or lines, a log file, a picture.

use std::time::Instant;

use plimsoll_disk::{Appender, atomic};
use plimsoll_memory::Bytes;
use plimsoll_remedy::Remedy;
use plimsoll_report::arena::draw_step;
use plimsoll_report::duration::duration;
use plimsoll_report::progress_picture::{self, EpochPoint, History};
use plimsoll_report::svg::Drawing;
use plimsoll_run::{
    EpochCost, EpochRecord, Event, FoldFolder, Sample, Specification, each_epoch, each_event,
};
use plimsoll_train::{Observer, PlannedRun, StepReport};

use crate::context::{Context, Progress};
use crate::events;
use crate::monitors::{FoldMonitors, Monitors};

/// Shows how a run goes.
pub struct Watcher {
    context: Context,
    progress: Progress,
    /// Before each line that is printed, where several folds train at once.
    prefix: String,
    folder: FoldFolder,
    planned: Bytes,
    /// A moving average of the loss.
    mean: Option<f64>,
    /// The time of this process's first step, and the number of steps before it.
    began: Option<(Instant, u64)>,
    of: u64,
    /// Steps done.
    steps: u64,
    history: History,
    /// The drawing of the arena until the run begins, when it is written: it is drawn before the run reserves memory.
    arena: Option<Drawing>,
    /// None where it cannot be written.
    log: Option<Appender>,
    monitors: FoldMonitors,
    /// `true` if a failure to write the log, the picture or a monitor was reported.
    has_failed: bool,
}

impl Watcher {
    /// The watcher of a fold.
    pub fn new(folder: &FoldFolder, planned: &PlannedRun, monitors: &Monitors, context: &Context) -> Watcher {
        let progress = context.work("training", planned.numbers.steps);
        Watcher::with(context, progress, String::new(), folder, planned, monitors)
    }

    /// The watcher of one of several folds, which reports lines that begin with a title.
    pub fn with_title(
        title: &str,
        folder: &FoldFolder,
        planned: &PlannedRun,
        monitors: &Monitors,
        context: &Context,
    ) -> Watcher {
        let prefix = format!("{title}: ");
        let progress = context.work_beside(format!("{prefix}training"), planned.numbers.steps);
        Watcher::with(context, progress, prefix, folder, planned, monitors)
    }

    fn with(
        context: &Context,
        progress: Progress,
        prefix: String,
        folder: &FoldFolder,
        planned: &PlannedRun,
        monitors: &Monitors,
    ) -> Watcher {
        let numbers = &planned.numbers;
        Watcher {
            context: context.clone(),
            progress,
            prefix,
            folder: folder.clone(),
            planned: numbers.total_bytes,
            mean: None,
            began: None,
            of: numbers.steps,
            steps: 0,
            history: History::default(),
            arena: Some(draw_step(&planned.plan, planned.programs.fullest(), numbers)),
            log: None,
            monitors: monitors.for_fold(folder, numbers),
            has_failed: false,
        }
    }

    fn say(&mut self, line: String) {
        let time = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
        let logged = self
            .log
            .as_mut()
            .map(|log| log.append(format!("{time} {}", Remedy::from(line.as_str())).as_bytes()));
        if let Some(Err(error)) = logged {
            self.failed(&format!("log.txt: {error}"));
        }
        self.progress.say(format!("{}{line}", self.prefix));
    }

    /// Reports a failed write of a monitor once.
    fn monitored(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.failed(&format!("monitoring: {error}"));
        }
    }

    /// None of this is worth ending a run for.
    fn failed(&mut self, what: &str) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.progress.say(format!("{}warning: {what}", self.prefix));
        }
    }

    /// Time left, by the steps of this process with all that came between them.
    fn left(&self, steps: u64) -> Option<f64> {
        let (began, first) = self.began?;
        let done = steps.checked_sub(first).filter(|done| *done > 0)?;
        Some(began.elapsed().as_secs_f64() / done as f64 * self.of.saturating_sub(steps) as f64)
    }
}

/// The time left, behind other numbers of a line.
fn words_of(left: Option<f64>) -> String {
    left.map_or(String::new(), |seconds| format!(", {} left", duration(seconds)))
}

/// Passes the epochs of a fold that are done, in order.
fn each_point(folder: &FoldFolder, each: &mut dyn FnMut(EpochPoint)) -> Result<(), plimsoll_run::RunError> {
    let mut costs = std::collections::BTreeMap::new();
    each_event(folder, |timed| {
        if let Event::Epoch(cost) = timed.event {
            costs.insert(cost.epoch, cost);
        }
    })?;
    each_epoch(folder, |record| {
        let cost = costs.get(&record.epoch);
        if cost.is_some() {
            each(EpochPoint::new(&record, cost));
        }
    })
}

/// The most resident memory against the limit, like `170.9 of 192.0 MiB`.
fn memory(cost: &EpochCost) -> Option<String> {
    let (peak, limit) = (Bytes(cost.peak_resident_bytes?).to_string(), Bytes(cost.ram_budget_bytes?));
    let limit = limit.to_string();
    let peak = match (peak.rsplit_once(' '), limit.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => number,
        _ => &peak,
    };
    Some(format!("{peak} of {limit}"))
}

impl Observer for Watcher {
    fn begin(&mut self, specification: &Specification, first_step: u64, engine: &str) {
        match Appender::open(self.folder.log()) {
            Ok(log) => self.log = Some(log),
            Err(error) => self.failed(&format!("log.txt: {error}")),
        }
        let history = &mut self.history;
        if let Err(error) = each_point(&self.folder, &mut |point| history.push(point)) {
            self.failed(&error.to_string());
        }
        self.of = specification.config.schedule.total_steps;
        match specification.lines() {
            Ok(lines) => lines.into_iter().for_each(|line| self.say(line)),
            Err(error) => self.failed(&error.to_string()),
        }
        let from =
            if first_step > 0 { format!(", continuing after step {first_step}") } else { String::new() };
        self.say(format!("fold {}: {} steps on {engine}{from}", specification.fold, self.of));
        if let Some(drawing) = self.arena.take()
            && let Err(error) = atomic::write(&self.folder.arena(), |file| drawing.write(file))
        {
            self.failed(&format!("arena.svg: {error}"));
        }
        let begun = self.monitors.begin(first_step, self.of, specification.config.epochs);
        self.monitored(begun);
        self.progress.set(first_step, String::new());
        self.began = Some((Instant::now(), first_step));
    }

    fn loaded(&mut self, what: &str) {
        self.say(what.into());
    }

    fn step(&mut self, report: &StepReport) {
        let loss = f64::from(report.loss);
        let mean = self.mean.map_or(loss, |mean| 0.95 * mean + 0.05 * loss);
        self.mean = Some(mean);
        self.steps = report.steps;
        let written = self.monitors.step(report);
        self.monitored(written);
        let left = self.left(report.steps);
        let note = format!("loss {mean:.4}, {:.2} s{}", report.seconds, words_of(left));
        self.progress.set_with_left(report.steps, note, left);
    }

    fn validating(&mut self, done: u64, of: u64) {
        self.progress.set(self.steps, format!("validating {done}/{of}"));
    }

    fn epoch(&mut self, record: &EpochRecord, cost: &EpochCost) {
        let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
        let left = words_of(self.left(record.steps));
        let scores = match &record.classification {
            Some(scores) => format!(
                "accuracy {:.4} (balanced {:.4}), kappa {}",
                scores.accuracy,
                scores.balanced_accuracy,
                number(scores.kappa)
            ),
            None => format!(
                "pseudo-Dice {} (average {})",
                number(record.mean_pseudo_dice),
                number(record.ema_pseudo_dice)
            ),
        };
        self.say(format!(
            "epoch {}: loss {}, validation {}, {scores}, {}{:.1} s{left}",
            record.epoch,
            number(record.train_loss),
            number(record.validation_loss),
            memory(cost).map_or(String::new(), |memory| format!("{memory}, ")),
            cost.seconds
        ));
        self.context.emit(&events::Event::Epoch { fold: self.folder.name(), record, cost });
        let (history, folder) = (&mut self.history, &self.folder);
        let pushed =
            history.push_or_read(EpochPoint::new(record, Some(cost)), |each| each_point(folder, each));
        if let Err(error) = pushed {
            self.failed(&error.to_string());
        }
        let run = self.folder.path().parent().unwrap_or(self.folder.path());
        let title = format!("fold {} of {}", self.folder.name(), run.display());
        let drawn = progress_picture::png(&title, &self.history, self.planned).and_then(|picture| {
            atomic::write(&self.folder.picture(), |file| file.write_all(&picture))?;
            Ok(picture)
        });
        if let Err(error) = &drawn {
            self.failed(&format!("progress.png: {error}"));
        }
        let written = self.monitors.epoch(record, cost, drawn.as_deref().ok());
        self.monitored(written);
    }

    fn sample(&mut self, sample: &Sample) {
        let written = self.monitors.sample(sample);
        self.monitored(written);
    }

    fn saving(&mut self) {
        let written = self.monitors.saving();
        self.monitored(written);
    }

    fn notice(&mut self) -> Option<String> {
        self.context.take_journal_line()
    }

    fn warning(&mut self, what: &str) {
        self.say(format!("warning: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_unit_once_where_both_numbers_share_it() {
        let cost = |peak: Option<Bytes>, limit: Bytes| EpochCost {
            epoch: 0,
            seconds: 1.0,
            validation_seconds: 0.5,
            resident_bytes: None,
            peak_resident_bytes: peak.map(|peak| peak.0),
            ram_budget_bytes: Some(limit.0),
        };
        let shown = |peak, limit| memory(&cost(peak, limit));
        assert_eq!(shown(Some(Bytes(179_201_638)), Bytes::mib(192)).unwrap(), "170.9 of 192.0 MiB");
        assert_eq!(shown(Some(Bytes::mib(512)), Bytes::mib(2048)).unwrap(), "512.0 MiB of 2.00 GiB");
        assert_eq!(shown(None, Bytes::mib(192)), None);
    }
}
