//! Files of a run for other programs: event files of TensorBoard, and a text file for Prometheus.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use plimsoll_disk::expect_writable;
use plimsoll_memory::Bytes;
use plimsoll_monitor::openmetrics::{FoldNumbers, OpenMetrics};
use plimsoll_monitor::tensorboard::EventFile;
use plimsoll_run::{EpochCost, EpochRecord, FoldFolder, RunFolder, RunPlan, Sample};
use plimsoll_train::StepReport;

use crate::error::{Error, Outcome};

/// About how many pictures of the curves are kept of a run: each has all epochs before it.
const PICTURES: u64 = 20;

/// The requested files beside those that each run writes.
#[derive(Clone, Debug, Default)]
pub struct Monitoring {
    /// Writes the numbers of each step.
    pub steps: bool,
    /// Writes event files of TensorBoard into the folder of each fold.
    pub tensorboard: bool,
    /// A text file of the numbers of all folds in OpenMetrics.
    pub openmetrics: Option<PathBuf>,
}

impl Monitoring {
    /// Checks that the requested files can be written, as far as that is known in advance.
    pub fn check(&self) -> Outcome {
        let Some(path) = &self.openmetrics else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if path.is_dir() || path.file_name().is_none() || !folder.is_dir() {
            let what = if folder.is_dir() {
                "is not the name of a file"
            } else {
                "is in a folder that does not exist"
            };
            let message = format!("‹openmetrics={}› {what}", path.display());
            return Err(Error::new(message, "name a file, like /var/lib/node_exporter/plimsoll.prom"));
        }
        expect_writable(folder).map_err(|error| Error::at_path(folder, &error))
    }

    /// Opens the monitors of a run.
    pub fn open(&self, run: &RunFolder) -> Monitors {
        let name = run.path().display().to_string();
        let metrics = self.openmetrics.as_ref().map(|path| OpenMetrics::new(path, &name));
        Monitors { asked: self.clone(), metrics: metrics.map(|metrics| Arc::new(Mutex::new(metrics))) }
    }
}

/// The monitors that the folds of a run share.
#[derive(Clone)]
pub struct Monitors {
    asked: Monitoring,
    metrics: Option<Arc<Mutex<OpenMetrics>>>,
}

impl Monitors {
    /// Those of a fold.
    pub fn for_fold(&self, folder: &FoldFolder, numbers: &RunPlan) -> FoldMonitors {
        FoldMonitors {
            asked: self.asked.clone(),
            metrics: self.metrics.clone(),
            events: None,
            folder: folder.clone(),
            limit: numbers.ram_budget_bytes,
            planned: numbers.total_bytes,
            epochs: 0,
            last: 0,
        }
    }
}

/// The monitors of one fold.
pub struct FoldMonitors {
    asked: Monitoring,
    metrics: Option<Arc<Mutex<OpenMetrics>>>,
    /// None before the run begins.
    events: Option<EventFile>,
    folder: FoldFolder,
    limit: Bytes,
    planned: Bytes,
    epochs: u64,
    /// The last step that was seen.
    last: u64,
}

impl FoldMonitors {
    /// Begins a run of `steps` steps and `epochs` epochs after `first_step`.
    pub fn begin(&mut self, first_step: u64, steps: u64, epochs: u64) -> io::Result<()> {
        (self.epochs, self.last) = (epochs, first_step);
        if self.asked.tensorboard {
            self.events = Some(EventFile::open(self.folder.path(), first_step)?);
        }
        let (limit, planned) = (self.limit, self.planned);
        self.tell(|numbers| (numbers.steps, numbers.limit, numbers.planned) = (steps, limit, planned))
    }

    /// A step is done.
    pub fn step(&mut self, report: &StepReport) -> io::Result<()> {
        let is_written = self.asked.steps;
        // Also where steps are not written: by the first one after going back it is seen that the run went back.
        let events = self.events_at(report.steps.saturating_sub(1), report.steps)?;
        let Some(events) = events.filter(|_| is_written) else { return Ok(()) };
        let numbers = [
            ("step/loss", f64::from(report.loss)),
            ("step/gradient_norm", f64::from(report.grad_norm)),
            ("step/learning_rate", report.learning_rate),
            ("step/seconds", report.seconds),
        ];
        events.scalars(report.steps, numbers)
    }

    /// Writes the memory of the process.
    pub fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        if let Some(events) = self.events_at(sample.steps, sample.steps)? {
            let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
            let resident = sample.resident_bytes.map(|bytes| ("memory/resident_MiB".to_string(), mib(bytes)));
            let device = sample.device_bytes.map(|bytes| ("memory/device_MiB".to_string(), mib(bytes)));
            let state = sample.device_state;
            let of_device = [
                ("memory/gpu_used_MiB", state.and_then(|state| state.used_bytes).map(mib)),
                ("machine/gpu_busy_percent", state.and_then(|state| state.busy_percent).map(f64::from)),
                ("machine/gpu_celsius", state.and_then(|state| state.temperature_celsius).map(f64::from)),
            ];
            let of_device =
                of_device.into_iter().filter_map(|(name, number)| Some((name.to_string(), number?)));
            let held =
                sample.held_bytes.iter().map(|(holder, held)| (format!("held_MiB/{holder}"), mib(*held)));
            let ops =
                sample.op_seconds.iter().map(|(op, seconds)| (format!("operation_seconds/{op}"), *seconds));
            let pressure = sample.system.pressure;
            let pressure = pressure
                .map(|pressure| ("machine/memory_pressure_percent".to_string(), pressure.some_percent));
            let faults = sample.system.major_faults;
            let faults = faults.map(|faults| ("machine/major_page_faults".to_string(), faults as f64));
            let times = [
                ("process/processor_seconds".to_string(), sample.system.processor_seconds),
                ("process/batch_seconds".to_string(), sample.batch_seconds),
                ("process/waiting_seconds".to_string(), sample.waiting_seconds),
            ];
            let numbers: Vec<(String, f64)> = resident
                .into_iter()
                .chain(device)
                .chain(of_device)
                .chain(held)
                .chain(ops)
                .chain(pressure)
                .chain(faults)
                .chain(times)
                .collect();
            let numbers = numbers.iter().map(|(tag, number)| (tag.as_str(), *number));
            events.scalars(sample.steps, numbers)?;
            events.flush()?;
        }
        self.tell(|numbers| numbers.sample = Some(sample.clone()))
    }

    /// An epoch is done, and the picture of all so far is this.
    pub fn epoch(
        &mut self,
        record: &EpochRecord,
        cost: &EpochCost,
        picture: Option<&[u8]>,
    ) -> io::Result<()> {
        let epochs = self.epochs;
        if let Some(events) = self.events_at(record.steps, record.steps)? {
            let numbers = numbers_of_epoch(record, cost);
            events.scalars(record.steps, numbers.iter().map(|(tag, number)| (tag.as_str(), *number)))?;
            let done = record.epoch + 1;
            let is_due = done.is_multiple_of((epochs / PICTURES).max(1)) || done == epochs;
            if let Some(picture) = picture.filter(|_| is_due) {
                events.image(record.steps, "progress", picture.to_vec())?;
            }
            events.flush()?;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A clock before 1970 is wrong anyway.
        let now = now.map_or(0.0, |since| since.as_secs_f64());
        self.tell(|numbers| numbers.epoch = Some((record.clone(), *cost, now)))
    }

    /// A checkpoint is about to be written.
    pub fn saving(&mut self) -> io::Result<()> {
        self.events.as_mut().map_or(Ok(()), EventFile::flush)
    }

    /// The event file, to write of a step, of which `done` steps are not done again. Where the run went back to a checkpoint, a new one begins.
    fn events_at(&mut self, done: u64, step: u64) -> io::Result<Option<&mut EventFile>> {
        if done < self.last && self.events.take().is_some() {
            self.events = Some(EventFile::open(self.folder.path(), done)?);
        }
        self.last = step;
        Ok(self.events.as_mut())
    }

    /// Changes what the text file has of this fold, and writes it.
    fn tell(&self, change: impl FnOnce(&mut FoldNumbers)) -> io::Result<()> {
        let Some(metrics) = &self.metrics else { return Ok(()) };
        // The data that a panicking fold leaves is as valid as before.
        let mut metrics = metrics.lock().unwrap_or_else(PoisonError::into_inner);
        change(metrics.fold(&self.folder.name().to_string()));
        metrics.write()
    }
}

/// The numbers of an epoch with their names.
fn numbers_of_epoch(record: &EpochRecord, cost: &EpochCost) -> Vec<(String, f64)> {
    let mut numbers = vec![
        ("learning_rate".to_string(), record.learning_rate),
        ("epoch_seconds".to_string(), cost.seconds),
        ("skipped_steps".to_string(), record.skipped_steps as f64),
    ];
    let mut put = |tag: String, number: Option<f64>| numbers.extend(number.map(|number| (tag, number)));
    put("loss/train".into(), record.train_loss);
    put("loss/validation".into(), record.validation_loss);
    for (when, parts) in [("train", &record.train_loss_parts), ("validation", &record.validation_loss_parts)]
    {
        for (place, part) in parts.iter().enumerate() {
            // A loss may have several parts of one name.
            put(format!("loss_part_{}/{}_{when}", place + 1, part.name), Some(part.value));
        }
    }
    put("pseudo_dice/mean".into(), record.mean_pseudo_dice);
    put("pseudo_dice/moving_average".into(), record.ema_pseudo_dice);
    for (class, dice) in record.pseudo_dice.iter().enumerate() {
        put(format!("pseudo_dice/class_{}", class + 1), *dice);
    }
    if let Some(scores) = &record.classification {
        put("classification/accuracy".into(), Some(scores.accuracy));
        put("classification/balanced_accuracy".into(), Some(scores.balanced_accuracy));
        put("classification/kappa".into(), scores.kappa);
        for label in &scores.labels {
            put(format!("sensitivity/{}", label.label), label.sensitivity);
            put(format!("specificity/{}", label.label), label.specificity);
            put(format!("f1/{}", label.label), label.f1);
        }
    }
    numbers
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_monitor::tensorboard::each_event;
    use plimsoll_run::FoldName;

    use super::*;

    /// The steps of what is written of samples, in the order of the files.
    fn sampled(folder: &Path) -> Vec<i64> {
        let mut steps = Vec::new();
        for path in plimsoll_disk::read_dir(folder).unwrap() {
            each_event(&path, |event, _| {
                steps.extend(event.summary.map(|_| event.step));
                true
            })
            .unwrap();
        }
        steps
    }

    #[test]
    fn what_is_written_of_steps_that_are_done_again_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path()).fold(FoldName::Number(0));
        plimsoll_disk::create_dir_all(folder.path()).unwrap();
        let mut monitors = FoldMonitors {
            asked: Monitoring { tensorboard: true, ..Monitoring::default() },
            metrics: None,
            events: None,
            folder: folder.clone(),
            limit: Bytes::ZERO,
            planned: Bytes::ZERO,
            epochs: 1,
            last: 0,
        };
        let step = |steps| StepReport {
            steps,
            of: 9,
            loss: 0.5,
            grad_norm: 1.0,
            learning_rate: 0.01,
            loss_scale: None,
            seconds: 0.1,
        };
        let sample = |steps| Sample { steps, ..Sample::default() };
        monitors.begin(0, 9, 1).unwrap();
        (1..=5).for_each(|steps| monitors.step(&step(steps)).unwrap());
        monitors.sample(&sample(5)).unwrap();
        assert_eq!(sampled(folder.path()), [5]);
        // Back to step 4, which is not done again, and on.
        monitors.sample(&sample(4)).unwrap();
        monitors.step(&step(5)).unwrap();
        monitors.sample(&sample(5)).unwrap();
        assert_eq!(sampled(folder.path()), [4, 5]);
        // Back to step 4 once more: seen by the first step after it, though steps are not written.
        monitors.step(&step(5)).unwrap();
        monitors.sample(&sample(6)).unwrap();
        assert_eq!(sampled(folder.path()), [4, 6]);
        // Back to the beginning.
        monitors.sample(&sample(0)).unwrap();
        assert_eq!(sampled(folder.path()), [0]);
    }
}
