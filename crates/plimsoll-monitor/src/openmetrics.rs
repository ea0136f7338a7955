//! Numbers of a run for Prometheus: a text file that is replaced whole.
//!
//! Syntax: OpenMetrics 1.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>. The collector `textfile` of node_exporter reads it from
//! its folder where its name ends with `.prom`. There are no times in it, which that collector refuses.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic;
use plimsoll_memory::Bytes;
use plimsoll_run::{DeviceState, EpochCost, EpochRecord, Sample};

/// The numbers of a fold.
#[derive(Clone, Debug, Default)]
pub struct FoldNumbers {
    /// Steps of the run.
    pub steps: u64,
    /// The memory limit.
    pub limit: Bytes,
    /// The planned memory.
    pub planned: Bytes,
    /// The last epoch, its cost, and the time of its end, in seconds since 1970.
    pub epoch: Option<(EpochRecord, EpochCost, f64)>,
    /// The last moment that was looked at.
    pub sample: Option<Sample>,
}

/// The text file of a process, with all folds that it trains.
#[derive(Debug)]
pub struct OpenMetrics {
    path: PathBuf,
    run: String,
    folds: BTreeMap<String, FoldNumbers>,
}

impl OpenMetrics {
    /// Creates the metrics of the run `run`, to be written to the file `path`.
    pub fn new(path: &Path, run: &str) -> OpenMetrics {
        OpenMetrics { path: path.into(), run: run.into(), folds: BTreeMap::new() }
    }

    /// The numbers of a fold, to be changed.
    pub fn fold(&mut self, name: &str) -> &mut FoldNumbers {
        self.folds.entry(name.into()).or_default()
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&self) -> io::Result<()> {
        let text = self.text();
        atomic::write(&self.path, |file| file.write_all(text.as_bytes()))
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut families: Vec<(Family, Vec<String>)> = Vec::new();
        for (fold, numbers) in &self.folds {
            let labels = format!("run=\"{}\",fold=\"{}\"", escaped(&self.run), escaped(fold));
            each_number(numbers, &mut |family, own, number| {
                let own = own.map_or(String::new(), |(key, value)| format!(",{key}=\"{}\"", escaped(value)));
                let total = if family.kind == Kind::Counter { "_total" } else { "" };
                let line = format!("{}{total}{{{labels}{own}}} {}", family.name, text_of(number));
                match families.iter_mut().find(|(known, _)| known.name == family.name) {
                    Some((_, lines)) => lines.push(line),
                    None => families.push((family, vec![line])),
                }
            });
        }
        let mut text = String::new();
        for (Family { name, kind, unit, help }, lines) in families {
            let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE {name} {kind}");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {help}");
            lines.iter().for_each(|line| text.extend([line, "\n"]));
        }
        text + "# EOF\n"
    }
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows, from the beginning of the run or of the process.
    Counter,
}

/// Numbers of one name.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    kind: Kind,
    /// The unit at the end of the name; empty for numbers without one.
    unit: &'static str,
    help: &'static str,
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit, help }
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, help }
}

/// Takes a number, with a label of its own if it has one.
type Put<'a> = &'a mut dyn FnMut(Family, Option<(&str, &str)>, f64);

fn put_some(put: Put<'_>, family: Family, own: Option<(&str, &str)>, number: Option<f64>) {
    if let Some(number) = number {
        put(family, own, number);
    }
}

/// Passes each number of a fold, with a label of its own if it has one.
fn each_number(numbers: &FoldNumbers, put: Put<'_>) {
    let bytes = |bytes: Bytes| bytes.0 as f64;
    put(gauge("plimsoll_run_steps", "steps", "Steps of the whole run."), None, numbers.steps as f64);
    put(gauge("plimsoll_memory_limit_bytes", "bytes", "The memory limit."), None, bytes(numbers.limit));
    let help = "Planned memory.";
    put(gauge("plimsoll_memory_planned_bytes", "bytes", help), None, bytes(numbers.planned));
    if let Some((record, cost, when)) = &numbers.epoch {
        each_of_epoch(record, cost, put);
        let help = "The end of the last epoch, since 1970.";
        put(gauge("plimsoll_last_epoch_seconds", "seconds", help), None, *when);
    }
    if let Some(sample) = &numbers.sample {
        each_of_sample(sample, put);
    }
}

fn each_of_epoch(record: &EpochRecord, cost: &EpochCost, put: Put<'_>) {
    put(counter("plimsoll_epochs", "", "Epochs done since the beginning of the run."), None, {
        record.epoch as f64 + 1.0
    });
    let help = "Steps of the run that were skipped because a loss or gradient was not finite.";
    put(counter("plimsoll_skipped_steps", "steps", help), None, record.skipped_steps as f64);
    put(
        gauge("plimsoll_learning_rate", "", "The learning rate of the last epoch's last step."),
        None,
        record.learning_rate,
    );
    put_some(
        put,
        gauge("plimsoll_train_loss", "", "The mean loss of the last epoch's steps."),
        None,
        record.train_loss,
    );
    let help = "The mean loss of the samples that were validated after the last epoch.";
    put_some(put, gauge("plimsoll_validation_loss", "", help), None, record.validation_loss);
    let of_class =
        gauge("plimsoll_pseudo_dice", "", "Dice over all voxels that were validated after the last epoch.");
    for (class, dice) in record.pseudo_dice.iter().enumerate() {
        put_some(put, of_class, Some(("class", &(class + 1).to_string())), *dice);
    }
    let help = "The mean of the pseudo-Dice over classes.";
    put_some(put, gauge("plimsoll_mean_pseudo_dice", "", help), None, record.mean_pseudo_dice);
    let help = "The moving average of the mean pseudo-Dice.";
    put_some(put, gauge("plimsoll_average_pseudo_dice", "", help), None, record.ema_pseudo_dice);
    let scores = record.classification.as_ref();
    let help = "Balanced accuracy: the mean over classes of the share of correctly classified images.";
    put_some(
        put,
        gauge("plimsoll_balanced_accuracy", "", help),
        None,
        scores.map(|scores| scores.balanced_accuracy),
    );
    let help = "Quadratic weighted kappa.";
    put_some(put, gauge("plimsoll_kappa", "", help), None, scores.and_then(|scores| scores.kappa));
    put(gauge("plimsoll_epoch_seconds", "seconds", "The time of the last epoch."), None, cost.seconds);
    let help = "The time of validation in the last epoch.";
    put(gauge("plimsoll_validation_seconds", "seconds", help), None, cost.validation_seconds);
}

/// The state of a device that reports nothing.
const NOTHING_KNOWN: DeviceState =
    DeviceState { used_bytes: None, total_bytes: None, busy_percent: None, temperature_celsius: None };

fn each_of_sample(sample: &Sample, put: Put<'_>) {
    let system = &sample.system;
    let help = "Steps done since the beginning of the run.";
    put(counter("plimsoll_steps", "steps", help), None, sample.steps as f64);
    let mut bytes = |name, help, own, bytes: Option<Bytes>| {
        if let Some(Bytes(bytes)) = bytes {
            put(gauge(name, "bytes", help), own, bytes as f64);
        }
    };
    let help = "Resident memory of the process.";
    bytes("plimsoll_memory_resident_bytes", help, None, sample.resident_bytes);
    let help = "The most resident memory since the process began to train.";
    bytes("plimsoll_memory_peak_resident_bytes", help, None, sample.peak_resident_bytes);
    for (holder, held) in &sample.held_bytes {
        let help = "Memory reserved by each part of the program.";
        bytes("plimsoll_memory_held_bytes", help, Some(("holder", holder)), Some(*held));
    }
    let help = "GPU memory of the engine.";
    bytes("plimsoll_device_memory_bytes", help, None, sample.device_bytes);
    let state = sample.device_state.unwrap_or(NOTHING_KNOWN);
    let help = "Used memory of the GPU, by all processes.";
    bytes("plimsoll_gpu_memory_used_bytes", help, None, state.used_bytes);
    let help = "Total memory of the GPU.";
    bytes("plimsoll_gpu_memory_total_bytes", help, None, state.total_bytes);
    let help = "Free space on the disk of the run.";
    bytes("plimsoll_disk_free_bytes", help, None, system.free_disk_bytes);
    let group = system.cgroup.as_ref();
    let help = "The limit of the control group that limits memory the most.";
    bytes("plimsoll_cgroup_limit_bytes", help, None, group.map(|group| group.limit_bytes));
    let help = "Used memory of that control group, cached files included.";
    bytes("plimsoll_cgroup_used_bytes", help, None, group.and_then(|group| group.used_bytes));
    if let Some(percent) = state.busy_percent {
        let help = "The share of the last second in which a kernel of any process ran on the GPU.";
        put(gauge("plimsoll_gpu_busy_ratio", "ratio", help), None, f64::from(percent) / 100.0);
    }
    if let Some(celsius) = state.temperature_celsius {
        let help = "The temperature of the GPU.";
        put(gauge("plimsoll_gpu_temperature_celsius", "celsius", help), None, f64::from(celsius));
    }
    if let Some(faults) = system.major_faults {
        let help = "Page faults of the process that waited for a disk.";
        put(counter("plimsoll_major_page_faults", "", help), None, faults as f64);
    }
    let pressures = [("machine", system.pressure), ("cgroup", group.and_then(|group| group.pressure))];
    for (of, pressure) in pressures {
        let Some(pressure) = pressure else { continue };
        let help = "Time in which some task waited for memory (PSI).";
        let some = counter("plimsoll_memory_pressure_some_seconds", "seconds", help);
        put(some, Some(("of", of)), pressure.some_seconds);
        let help = "Time in which all tasks waited for memory (PSI).";
        let full = counter("plimsoll_memory_pressure_full_seconds", "seconds", help);
        put(full, Some(("of", of)), pressure.full_seconds);
    }
    let help = "Processor time of the process.";
    put(counter("plimsoll_processor_seconds", "seconds", help), None, system.processor_seconds);
    for (op, seconds) in &sample.op_seconds {
        let help = "Time of kernels, by kind of operation.";
        put(counter("plimsoll_operation_seconds", "seconds", help), Some(("op", op)), *seconds);
    }
    let help = "Processor time of preparing batches.";
    put(counter("plimsoll_batch_seconds", "seconds", help), None, sample.batch_seconds);
    let help = "Time that steps waited for batches.";
    put(counter("plimsoll_waiting_seconds", "seconds", help), None, sample.waiting_seconds);
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number as the format has it.
fn text_of(number: f64) -> String {
    match number {
        nan if nan.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_memory::{CgroupUse, Pressure};
    use plimsoll_run::SystemSample;

    use super::*;

    fn metrics(path: &Path) -> OpenMetrics {
        let record = EpochRecord {
            epoch: 4,
            steps: 1250,
            learning_rate: 0.01,
            train_loss: Some(-0.25),
            validation_loss: None,
            train_loss_parts: Vec::new(),
            validation_loss_parts: Vec::new(),
            pseudo_dice: vec![Some(0.5), None],
            mean_pseudo_dice: Some(0.5),
            ema_pseudo_dice: Some(f64::NAN),
            classification: None,
            skipped_steps: 0,
            loss_scale: None,
        };
        let cost = EpochCost {
            epoch: 4,
            seconds: 12.5,
            validation_seconds: 1.0,
            resident_bytes: Some(1 << 20),
            peak_resident_bytes: None,
            ram_budget_bytes: None,
        };
        let pressure =
            Pressure { some_percent: 1.0, full_percent: 0.0, some_seconds: 2.5, full_seconds: 0.0 };
        let sample = Sample {
            steps: 1250,
            resident_bytes: Some(Bytes::mib(1)),
            held_bytes: [("arena".to_string(), Bytes(4096)), ("a \"b\"\\\n".into(), Bytes(1))].into(),
            device_state: Some(DeviceState {
                used_bytes: Some(Bytes::gib(7)),
                total_bytes: Some(Bytes::gib(12)),
                busy_percent: Some(87),
                temperature_celsius: None,
            }),
            op_seconds: [("conv3d".to_string(), 1e-7)].into(),
            system: SystemSample {
                pressure: Some(pressure),
                cgroup: Some(CgroupUse {
                    limit_bytes: Bytes::gib(1),
                    used_bytes: None,
                    pressure: Some(pressure),
                }),
                ..SystemSample::default()
            },
            ..Sample::default()
        };
        let mut metrics = OpenMetrics::new(path, "runs/a");
        for fold in ["0", "1"] {
            *metrics.fold(fold) = FoldNumbers {
                steps: 250_000,
                limit: Bytes::gib(2),
                planned: Bytes::gib(1),
                epoch: Some((record.clone(), cost, 1.8e9)),
                sample: Some(sample.clone()),
            };
        }
        metrics
    }

    /// Checks the grammar of OpenMetrics, as far as there are gauges and counters, and returns each sample's name and labels.
    fn samples(text: &str) -> Vec<(String, String)> {
        let is_name = |name: &str| {
            let mut letters = name.chars();
            letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
                && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        let body = text.strip_suffix("# EOF\n").unwrap();
        let (mut families, mut found) = (BTreeSet::new(), Vec::new());
        let (mut family, mut kind) = (String::new(), String::new());
        for line in body.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let [what, name, rest] = [(); 3].map(|()| words.next().unwrap());
                match what {
                    "TYPE" => {
                        assert!(is_name(name) && families.insert(name.to_string()), "{line}");
                        assert!(["gauge", "counter"].contains(&rest), "{line}");
                        (family, kind) = (name.into(), rest.into());
                    }
                    "UNIT" => assert!(name == family && name.ends_with(&format!("_{rest}")), "{line}"),
                    "HELP" => assert!(name == family && !rest.contains('\\'), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, number) = rest.rsplit_once("} ").unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert_eq!(name, format!("{family}{suffix}"), "{line}");
            let number = number.replace("Inf", "inf").parse::<f64>().unwrap();
            assert!(kind == "gauge" || number >= 0.0, "{line}");
            found.push((name.to_string(), labels.to_string()));
        }
        let different: BTreeSet<_> = found.iter().collect();
        assert_eq!(different.len(), found.len(), "a sample stands twice");
        found
    }

    #[test]
    fn the_text_keeps_to_the_grammar_and_has_all_folds() {
        let text = metrics(Path::new("x.prom")).text();
        let found = samples(&text);
        for (name, count) in [
            ("plimsoll_epochs_total", 2),
            ("plimsoll_pseudo_dice", 2),
            ("plimsoll_validation_loss", 0),
            ("plimsoll_memory_held_bytes", 4),
            ("plimsoll_memory_pressure_some_seconds_total", 4),
            ("plimsoll_operation_seconds_total", 2),
            ("plimsoll_gpu_memory_used_bytes", 2),
            ("plimsoll_gpu_temperature_celsius", 0),
        ] {
            assert_eq!(found.iter().filter(|(known, _)| known == name).count(), count, "{name}\n{text}");
        }
        assert!(text.contains("plimsoll_train_loss{run=\"runs/a\",fold=\"0\"} -0.25\n"), "{text}");
        assert!(text.contains("plimsoll_gpu_busy_ratio{run=\"runs/a\",fold=\"1\"} 0.87\n"), "{text}");
        assert!(text.contains(",holder=\"a \\\"b\\\"\\\\\\n\"} 1\n"), "{text}");
        assert!(text.contains("plimsoll_average_pseudo_dice{run=\"runs/a\",fold=\"1\"} NaN\n"), "{text}");
    }

    #[test]
    fn the_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plimsoll.prom");
        let metrics = metrics(&path);
        for _ in 0..2 {
            metrics.write().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), metrics.text());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
