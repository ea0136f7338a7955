//! Looking through a whole data set once: what is wrong with it, and what it is like.
//!
//! Every file is read once, plane by plane. All problems of all cases are collected; sound cases make the
//! [`Fingerprint`] and each of them a [`ForegroundIndex`]. Several cases are read at a time; the result does not depend
//! on how many, nor on which is done first.

mod case;
mod error;
mod foreground;
mod image_scan;
mod judge;
mod label_scan;
mod moments;
mod problem;
mod sample;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::Spacing;

pub use error::InspectError;
pub use foreground::{ForegroundIndex, Positions};
pub use problem::{Problem, Severity};

use crate::PatchGrid;
use crate::dataset::{Case, Channel, Dataset};
use crate::fingerprint::{CaseFingerprint, Fingerprint, IntensityProperties};
use crate::inspect::case::{CaseReport, Task};
use crate::inspect::store::FileStamp;
use crate::random::mix;

/// The most foreground voxels of a case that count for the statistics of intensities, and of all cases together.
const INTENSITIES_OF_A_CASE: usize = 10_000;
const INTENSITIES_IN_ALL: usize = 4_000_000;

/// The stack of a thread that reads images: what is large is mapped.
const STACK: usize = 512 << 10;

/// The patch that cases which would blow up are compared with.
const USUAL_PATCH: [usize; 3] = [96; 3];

/// How a data set is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectConfig {
    /// How many cases are read at a time, at least 1. The result does not depend on it.
    pub threads: usize,
    /// Of the samples of foreground voxels.
    pub seed: u64,
}

/// What was found out about a data set.
#[derive(Debug)]
pub struct Inspection {
    /// Everything that is wrong, case by case.
    pub problems: Vec<Problem>,
    /// What the sound cases are like; `None` if there are none.
    pub fingerprint: Option<Fingerprint>,
    /// Where the classes are, of each case of the fingerprint.
    pub foreground: Vec<ForegroundIndex>,
    /// The files that were read, as they were.
    stamps: Vec<FileStamp>,
    seed: u64,
}

impl Inspection {
    /// Reads all training cases of a data set. `observe` is told how many cases are done, of how many.
    ///
    /// Planes of images are reserved from `budget` while they are read, the index of foreground voxels for as long as the
    /// inspection lives.
    ///
    /// # Errors
    /// If the budget has no room for a plane, or the system refuses a thread. What is wrong with images is no error
    /// here: see [`problems`](Self::problems).
    pub fn run(
        dataset: &Dataset,
        config: InspectConfig,
        budget: &Budget,
        observe: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Inspection, InspectError> {
        let cases = &dataset.cases;
        let samples = (INTENSITIES_IN_ALL / cases.len().max(1)).clamp(1, INTENSITIES_OF_A_CASE);
        // Taken before anything is read: a file that changes meanwhile will not look current later.
        let stamps = store::stamps(dataset);
        let shared = Shared {
            dataset,
            seed: config.seed,
            samples,
            budget,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            gathered: Mutex::new(Gathered::new(dataset, samples, budget)?),
        };
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for _ in 0..config.threads.clamp(1, cases.len().max(1)) {
                let worker = thread::Builder::new().name("inspect".into()).stack_size(STACK);
                match worker.spawn_scoped(scope, || shared.work(observe)) {
                    Ok(worker) => workers.push(worker),
                    Err(problem) => {
                        shared.stop.store(true, Ordering::Relaxed);
                        return Err(InspectError::Thread(problem));
                    }
                }
            }
            let mut outcome = Ok(());
            for worker in workers {
                outcome = outcome.and(worker.join().unwrap_or(Err(InspectError::ThreadLost)));
            }
            outcome
        })?;
        let gathered = shared.gathered.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(gathered.finish(dataset, samples, config.seed, stamps))
    }

    /// Whether a problem is an error, so that its case cannot be used.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// What is reserved for the indices of foreground voxels.
    pub fn index_bytes(&self) -> Bytes {
        self.foreground.iter().map(ForegroundIndex::bytes).sum()
    }
}

/// Reads the images of a case that is to be predicted: what is wrong with them and, if no problem is an error, what they
/// are like. Its label map is not read.
///
/// # Errors
/// If the budget has no room for a plane.
pub fn inspect_images(
    case: &Case,
    channels: &[Channel],
    budget: &Budget,
) -> Result<(Vec<Problem>, Option<CaseFingerprint>), InspectError> {
    let task = Task { case, channels, labels: None, intensities: 0, key: 0 };
    let report = task.run(budget).map_err(|problem| problem.in_case(&case.id))?;
    Ok((report.problems, report.fingerprint))
}

/// What the threads of an inspection have in common.
struct Shared<'a> {
    dataset: &'a Dataset,
    seed: u64,
    samples: usize,
    budget: &'a Budget,
    next: AtomicUsize,
    stop: AtomicBool,
    gathered: Mutex<Gathered>,
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, observe: &(dyn Fn(usize, usize) + Sync)) -> Result<(), InspectError> {
        let Dataset { cases, channels, labels, .. } = self.dataset;
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { break };
            let key = mix(self.seed ^ mix(number as u64));
            let task = Task { case, channels, labels: Some(labels), intensities: self.samples, key };
            let report = task.run(self.budget);
            let kept = report.and_then(|report| self.lock().keep(number, report, self.budget));
            match kept {
                Ok(done) => observe(done, cases.len()),
                Err(problem) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(problem.in_case(&case.id));
                }
            }
        }
        Ok(())
    }
}

/// What is known of a case that can be used.
type Sound = (CaseFingerprint, ForegroundIndex);

/// What is known so far, by the number of the case.
struct Gathered {
    /// What is wrong with the case and, if it is sound, what it is like.
    reports: Vec<Option<(Vec<Problem>, Option<Sound>)>>,
    /// `[channel][case][sample]`.
    intensities: Mapped<f32>,
    /// Whether a case has any.
    has_intensities: Vec<bool>,
    samples: usize,
    done: usize,
}

impl Gathered {
    fn new(dataset: &Dataset, samples: usize, budget: &Budget) -> Result<Gathered, InspectError> {
        let cases = dataset.cases.len();
        let count = cases.saturating_mul(dataset.channels.len()).saturating_mul(samples);
        let reservation = budget.reserve("samples of intensities", Mapped::<f32>::bytes(count)?)?;
        Ok(Gathered {
            reports: (0..cases).map(|_| None).collect(),
            intensities: Mapped::within(reservation, count)?,
            has_intensities: vec![false; cases],
            samples,
            done: 0,
        })
    }

    /// Keeps what was found out about a case. Returns how many are done.
    fn keep(&mut self, number: usize, report: CaseReport, budget: &Budget) -> Result<usize, InspectError> {
        let CaseReport { problems, fingerprint, labels, intensities } = report;
        let sound = match (fingerprint, labels) {
            (Some(fingerprint), Some(labels)) => {
                let index = ForegroundIndex::new(&labels.classes, labels.unit, budget)?;
                let cases = self.reports.len();
                for (channel, values) in intensities.iter().enumerate() {
                    let first = (channel * cases + number) * self.samples;
                    // A case with few foreground voxels has each of them several times, so that every case counts as
                    // much as any other, as when they are drawn with replacement.
                    let slots = &mut self.intensities[first..first + self.samples];
                    slots.iter_mut().zip(values.iter().cycle()).for_each(|(slot, value)| *slot = *value);
                    self.has_intensities[number] |= !values.is_empty();
                }
                Some((fingerprint, index))
            }
            _ => None,
        };
        self.reports[number] = Some((problems, sound));
        self.done += 1;
        Ok(self.done)
    }

    fn finish(mut self, dataset: &Dataset, samples: usize, seed: u64, stamps: Vec<FileStamp>) -> Inspection {
        let cases = self.reports.len();
        let mut properties = BTreeMap::new();
        for channel in 0..dataset.channels.len() {
            let of_channel =
                &mut self.intensities[channel * cases * samples..(channel + 1) * cases * samples];
            let mut end = 0;
            for number in (0..cases).filter(|number| self.has_intensities[*number]) {
                of_channel.copy_within(number * samples..(number + 1) * samples, end);
                end += samples;
            }
            properties.extend(IntensityProperties::of(&mut of_channel[..end]).map(|found| (channel, found)));
        }
        let mut problems = Vec::new();
        let (mut fingerprints, mut foreground) = (Vec::new(), Vec::new());
        for (found, sound) in self.reports.into_iter().flatten() {
            problems.extend(found);
            if let Some((fingerprint, index)) = sound {
                fingerprints.push(fingerprint);
                foreground.push(index);
            }
        }
        let fingerprint = Fingerprint::of(fingerprints, properties);
        if let Some(fingerprint) = &fingerprint {
            problems.extend(blow_ups(dataset, fingerprint));
        }
        Inspection { problems, fingerprint, foreground, stamps, seed }
    }
}

/// Warnings about cases that would become far larger if they were resampled whole.
fn blow_ups(dataset: &Dataset, fingerprint: &Fingerprint) -> Vec<Problem> {
    let grid = PatchGrid { patch: USUAL_PATCH, spacing: fingerprint.target_spacing };
    let warn = |found: crate::BlowUp| {
        let case = dataset.cases.iter().find(|case| case.id == found.case)?;
        let [depth, height, width] = found.resampled_shape;
        let [patch, ..] = USUAL_PATCH;
        Some(Problem {
            severity: Severity::Warning,
            case: found.case,
            file: case.images.first()?.path.clone(),
            text: format!(
                "its spacing is {}, that of the data set {}: whole it would become {depth} × {height} × {width} voxels, \
                 {} in f32; a patch of {patch}³ voxels needs {} and reads {}",
                spacing(found.spacing),
                spacing(fingerprint.target_spacing),
                found.whole,
                found.patch,
                found.source
            ),
            hint: Some(
                "check whether the spacing in the file is right; if it is, nothing needs to be done".into(),
            ),
        })
    };
    fingerprint.blow_ups(&grid).into_iter().filter_map(warn).collect()
}

/// A spacing in the unit in which it has no leading zeros.
fn spacing(Spacing(lengths): Spacing) -> String {
    let (unit, factor) =
        if lengths.iter().any(|length| *length >= 0.1) { ("mm", 1.0) } else { ("µm", 1000.0) };
    let [depth, height, width] = lengths.map(|length| format!("{:.3}", length * factor));
    format!("{depth} × {height} × {width} {unit}")
}
