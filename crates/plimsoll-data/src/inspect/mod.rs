//! The inspection of a data set: its faults, its fingerprint, and an index of foreground voxels.
//!
//! Every file is read once, plane by plane. All problems of all cases are collected; the valid cases give the
//! [`Fingerprint`], and each of them a [`ForegroundIndex`]. Several cases are read in parallel; the result does not
//! depend on their number or order. Where channels are normalised inside of masks, images are read a second time to find these.

mod case;
mod error;
mod far;
mod foreground;
mod histogram;
mod hounsfield;
mod image_scan;
mod judge;
mod label_scan;
mod masks;
mod problem;
mod record_lines;
mod sample;
mod stamp;
mod store;
mod threads;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_memory::{Budget, Bytes, MapError, Reservation};
use plimsoll_volume::{IndexFolder, Spacing};

pub use case::inspection_bytes;
pub use error::InspectError;
pub use far::{far_apart, meant_unit};
pub use foreground::{ForegroundIndex, Positions};
pub use problem::{Problem, Severity};
pub use values::LabelCensus;

use crate::Normalisation;
use crate::PatchGrid;
use crate::VolumeCache;
use crate::dataset::{Case, Channel, Dataset};
use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::inspect::case::{CaseInspection, CaseReport};
use crate::inspect::histogram::Histogram;
use crate::inspect::stamp::FileStamp;
use crate::inspect::threads::on_threads;
use crate::mask::MaskRuns;
use crate::moments::Moments;
use crate::statistics::IntensityProperties;
use plimsoll_random::mix;

/// The patch shape that is quoted in warnings about cases that would grow.
const USUAL_PATCH: [usize; 3] = [96; 3];

/// The settings of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectConfig {
    /// The number of cases that are read in parallel, at least 1. The result does not depend on it.
    pub threads: usize,
    /// The seed of the samples of foreground voxels.
    pub seed: u64,
}

/// The findings about a data set.
#[derive(Debug)]
pub struct Inspection {
    /// All problems, case by case.
    pub problems: Vec<Problem>,
    /// The fingerprint of the valid cases; `None` if there are none.
    pub fingerprint: Option<Fingerprint>,
    /// The index of foreground voxels of each case of the fingerprint.
    pub foreground: Vec<ForegroundIndex>,
    /// The mask of each case of the fingerprint, where channels are normalised inside of it; else none.
    masks: Vec<Arc<MaskRuns>>,
    /// The state of the files when they were read.
    stamps: Vec<FileStamp>,
    seed: u64,
    /// The least budget in which the data set can be inspected again.
    least: Bytes,
}

impl Inspection {
    /// The first file of the training cases of the data set in a folder that has another length or modification time than when it was
    /// inspected; none if all are as they were.
    pub fn changed_file(&self, folder: &Path) -> Option<PathBuf> {
        let changed = self.stamps.iter().find(|known| stamp::stamp(folder, &known.place(folder)) != **known);
        changed.map(|known| known.place(folder))
    }

    /// Reads all training cases of a data set. `observe` is called with the number of finished cases and of all cases.
    ///
    /// Planes of images are reserved from `budget` while they are read, the index of foreground voxels for as long as the
    /// inspection lives.
    ///
    /// # Errors
    /// If the budget has no room for a plane, or a thread cannot be started. Faults of images are not errors here: see
    /// [`problems`](Self::problems).
    pub fn run(
        dataset: &Dataset,
        config: InspectConfig,
        budget: &Budget,
        observe: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Inspection, InspectError> {
        Inspection::run_indexing(dataset, config, None, &AtomicBool::new(false), budget, observe)
    }

    /// Inspects a data set as [`run`](Self::run) does, and keeps access points of compressed files in a folder,
    /// so that regions can be read without what precedes them. It ends early once `asked` is set.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run), and one if it is asked to stop.
    pub fn run_indexing(
        dataset: &Dataset,
        config: InspectConfig,
        indexes: Option<&IndexFolder>,
        asked: &AtomicBool,
        budget: &Budget,
        observe: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Inspection, InspectError> {
        let cases = &dataset.cases;
        // Taken before anything is read, so that a file that changes meanwhile is not considered current later.
        let stamps = stamp::stamps(dataset);
        let mut uncounted = BTreeSet::new();
        let mut inspection = loop {
            let shared = SharedScan {
                dataset,
                seed: config.seed,
                weight: u64::MAX / 2 / (cases.len().max(1) as u64),
                uncounted: &uncounted,
                indexes,
                budget,
                next: AtomicUsize::new(0),
                asked,
                stop: AtomicBool::new(false),
                histograms: Histograms::new(dataset, budget)?,
                findings: Mutex::new(Findings::new(dataset)),
            };
            let threads = config.threads.clamp(1, cases.len().max(1));
            on_threads("inspect", threads, &shared.stop, || shared.work(observe))?;
            let findings = shared.findings.into_inner().unwrap_or_else(PoisonError::into_inner);
            let (inspection, unsound) = findings.finish(dataset, &shared.histograms, config.seed, &stamps);
            if unsound.is_empty() {
                break inspection;
            }
            // An error was found in cases only after their intensities had been counted: they are read again without these.
            uncounted.extend(unsound);
        };
        if let Some(fingerprint) = inspection.fingerprint.as_mut().filter(|all| masks::are_used(dataset, all))
        {
            let (masks, largest) = masks::find(dataset, fingerprint, config.threads, budget, observe)?;
            inspection.masks = masks;
            inspection.least = inspection.least.max(inspection.index_bytes() + largest);
        }
        Ok(inspection)
    }

    /// Returns `true` if a problem is an error, so that its case cannot be used.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The bytes reserved for the indices of foreground voxels and for masks.
    pub fn index_bytes(&self) -> Bytes {
        let masks: Bytes = self.masks.iter().map(|mask| mask.reserved()).sum();
        self.foreground.iter().map(ForegroundIndex::bytes).sum::<Bytes>() + masks
    }

    /// The least budget, beside the memory of the process itself, in which the data set can be inspected again and this inspection can be
    /// loaded: the memory that a run needs before it begins, the first time and later.
    pub fn least_bytes(&self, dataset: &Dataset) -> Bytes {
        self.least.max(self.index_bytes() + self.loading_bytes(dataset))
    }

    /// Takes z-scores over the mask, by nnU-Net's rule (`use_mask_for_norm`): where cropping to what is not zero leaves less than
    /// three quarters of the median image.
    pub fn choose_masks(&self, channels: &mut [Channel]) {
        let z_scores = channels.iter_mut().filter(|channel| channel.normalisation == Normalisation::ZScore);
        if !self.masks.is_empty() {
            z_scores.for_each(|channel| channel.normalisation = Normalisation::ZScoreInMask);
        }
    }

    /// The mask of a case, by its number in the fingerprint.
    pub(crate) fn mask(&self, case: usize) -> Option<&Arc<MaskRuns>> {
        self.masks.get(case)
    }
}

/// Inspects the images of a case to predict: returns their problems and, if none is an error, the fingerprint. The
/// label map is not read. With a cache, images are decoded into it as far as it has room for them, and stay there, as they are to be used next; pictures,
/// which need room to be decoded in, must not be among them.
///
/// # Errors
/// If the budget has no room for a plane, or `stop` is set, which is looked at with every plane.
pub fn inspect_images(
    case: &Case,
    channels: &[Channel],
    decoded: Option<&VolumeCache>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(Vec<Problem>, Option<CaseFingerprint>), InspectError> {
    let stop = Some(stop);
    let task = CaseInspection {
        case,
        channels,
        labels: None,
        histograms: &[],
        weight: 0,
        key: 0,
        decoded,
        indexes: None,
        stop,
    };
    let report = task.run(budget).map_err(|problem| problem.in_case(&case.id))?;
    Ok((report.problems, report.fingerprint))
}

/// Shared by the threads of an inspection.
struct SharedScan<'a> {
    dataset: &'a Dataset,
    seed: u64,
    /// The weight of each case in the histograms.
    weight: u64,
    /// Cases whose intensities are not counted.
    uncounted: &'a BTreeSet<usize>,
    indexes: Option<&'a IndexFolder>,
    budget: &'a Budget,
    next: AtomicUsize,
    /// Set by others to end the inspection.
    asked: &'a AtomicBool,
    /// Set by the thread that fails.
    stop: AtomicBool,
    histograms: Histograms,
    findings: Mutex<Findings>,
}

impl SharedScan<'_> {
    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, observe: &(dyn Fn(usize, usize) + Sync)) -> Result<(), InspectError> {
        let Dataset { cases, channels, labels, .. } = self.dataset;
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { break };
            let key = mix(self.seed ^ mix(number as u64));
            let task = CaseInspection {
                case,
                channels,
                labels: Some(labels),
                histograms: if self.uncounted.contains(&number) { &[] } else { &self.histograms.channels },
                weight: self.weight,
                key,
                decoded: None,
                indexes: self.indexes,
                stop: Some(self.asked),
            };
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

/// A valid case.
type SoundCase = (CaseFingerprint, ForegroundIndex);

/// The findings so far, by the number of the case.
struct Findings {
    /// The problems of each case and, if it is valid, its fingerprint and index.
    reports: Vec<Option<(Vec<Problem>, Option<SoundCase>)>>,
    /// For each case, the moments of the foreground by channel, and whether it is in the histograms.
    foreground: Vec<(Vec<Moments>, bool)>,
    done: usize,
    /// The most memory that reading a case takes.
    largest: Bytes,
}

/// The intensities of the foreground of all cases.
struct Histograms {
    channels: Vec<Mutex<Histogram>>,
    /// The reservation for the moments of each case.
    _moments: Reservation,
    /// The bytes reserved for histograms and moments.
    reserved: Bytes,
}

impl Histograms {
    fn new(dataset: &Dataset, budget: &Budget) -> Result<Histograms, InspectError> {
        let moments = dataset.cases.len().saturating_mul(dataset.channels.len().max(1));
        let bytes = Bytes::from_len(moments.saturating_mul(size_of::<Moments>()));
        let all = Histogram::reserves()?.0.saturating_mul(dataset.channels.len() as u64);
        // All of them or none: what is missing is known at once.
        drop(budget.reserve("histograms of intensities", bytes + Bytes(all)).map_err(MapError::from)?);
        let one = |_: &Channel| Ok(Mutex::new(Histogram::new(budget)?));
        Ok(Histograms {
            reserved: bytes + Bytes(all),
            _moments: budget.reserve("moments of intensities", bytes).map_err(MapError::from)?,
            channels: dataset.channels.iter().map(one).collect::<Result<_, MapError>>()?,
        })
    }

    /// The properties of a channel, of which the moments of each case are given: cases weigh alike.
    fn properties(&self, channel: usize, cases: &[Moments]) -> Option<IntensityProperties> {
        let histogram = self.channels.get(channel)?.lock().unwrap_or_else(PoisonError::into_inner);
        let (mean, std) = Moments::from_equal_cases(cases)?;
        let all = cases.iter().fold(Moments::NONE, |all, case| all.and(*case));
        let [low, median, high] =
            histogram.percentiles([0.5, 50.0, 99.5])?.map(|value| value.clamp(all.min, all.max));
        Some(IntensityProperties {
            mean,
            median,
            std,
            min: all.min,
            max: all.max,
            percentile_99_5: high,
            percentile_00_5: low,
        })
    }
}

impl Findings {
    fn new(dataset: &Dataset) -> Findings {
        let cases = dataset.cases.len();
        Findings {
            reports: (0..cases).map(|_| None).collect(),
            foreground: vec![(Vec::new(), false); cases],
            done: 0,
            largest: Bytes::ZERO,
        }
    }

    /// Adds the findings about a case. Returns the number of finished cases.
    fn keep(&mut self, number: usize, report: CaseReport, budget: &Budget) -> Result<usize, InspectError> {
        let CaseReport { problems, fingerprint, labels, foreground, is_counted, needed } = report;
        self.largest = self.largest.max(needed);
        let sound = match (fingerprint, labels) {
            (Some(fingerprint), Some(labels)) => {
                let index = ForegroundIndex::new(&labels.classes, labels.unit, budget)?;
                Some((fingerprint, index))
            }
            _ => None,
        };
        self.reports[number] = Some((problems, sound));
        self.foreground[number] = (foreground, is_counted);
        self.done += 1;
        Ok(self.done)
    }

    /// The inspection; and the cases whose intensities were counted although they have an error.
    fn finish(
        self,
        dataset: &Dataset,
        histograms: &Histograms,
        seed: u64,
        stamps: &[FileStamp],
    ) -> (Inspection, Vec<usize>) {
        let mut problems = Vec::new();
        let mut sound = Vec::new();
        for (found, of_case) in self.reports.into_iter().flatten() {
            problems.extend(found);
            sound.extend(of_case);
        }
        let (sound, of_units) = far::take_out(dataset, sound);
        problems.extend(of_units);
        let (fingerprints, foreground): (Vec<CaseFingerprint>, Vec<ForegroundIndex>) =
            sound.into_iter().unzip();
        let is_sound: Vec<bool> = {
            let sound: BTreeSet<&str> = fingerprints.iter().map(|case| case.id.as_str()).collect();
            dataset.cases.iter().map(|case| sound.contains(case.id.as_str())).collect()
        };
        let counted = self.foreground.iter().zip(&is_sound).enumerate();
        let unsound =
            counted.filter(|(_, ((_, is_counted), is_sound))| *is_counted && !**is_sound).map(|(at, _)| at);
        let unsound: Vec<usize> = unsound.collect();
        let mut properties = BTreeMap::new();
        for channel in 0..dataset.channels.len() {
            let counted = self
                .foreground
                .iter()
                .zip(&is_sound)
                .filter(|((_, is_counted), is_sound)| *is_counted && **is_sound);
            let cases: Vec<Moments> = counted.filter_map(|((of, _), _)| of.get(channel).copied()).collect();
            properties.extend(histograms.properties(channel, &cases).map(|found| (channel, found)));
        }
        let fingerprint = Fingerprint::new(fingerprints, properties);
        if let Some(fingerprint) = &fingerprint {
            problems.extend(blow_ups(dataset, fingerprint));
            problems.extend(clipped_away(dataset, fingerprint));
            problems.extend(hounsfield::unnamed_ct(dataset, fingerprint));
        }
        let stamps = stamps.to_vec();
        // The largest case may be the last, while the indices of all others are kept.
        let indices: Bytes = foreground.iter().map(ForegroundIndex::bytes).sum();
        let least = histograms.reserved + indices + self.largest;
        (Inspection { problems, fingerprint, foreground, masks: Vec::new(), stamps, seed, least }, unsound)
    }
}

/// Warnings about cases that resampling as a whole would make far larger.
fn blow_ups(dataset: &Dataset, fingerprint: &Fingerprint) -> Vec<Problem> {
    let grid = PatchGrid { patch: USUAL_PATCH, spacing: fingerprint.target_spacing.into() };
    let warn = |found: crate::BlowUp| {
        let case = dataset.cases.iter().find(|case| case.id == found.case)?;
        let [depth, height, width] = found.resampled_shape;
        let [patch, ..] = USUAL_PATCH;
        Some(Problem {
            severity: Severity::Warning,
            case: found.case,
            file: case.images.first()?.path.clone(),
            text: format!(
                "its spacing is {}, the data set's {}: resampled it would have {depth} × {height} × {width} voxels, {} in f32; a patch of \
                 {patch}³ voxels needs {} and reads {}",
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

/// Warnings about images of which clipping to the data set's intensities leaves a single value.
fn clipped_away(dataset: &Dataset, fingerprint: &Fingerprint) -> Vec<Problem> {
    let properties = &fingerprint.foreground_intensity_properties_per_channel;
    let mut problems = Vec::new();
    for found in &fingerprint.cases {
        let Some(case) = dataset.cases.iter().find(|case| case.id == found.id) else { continue };
        let channels = dataset.channels.iter().zip(&found.channels).zip(&case.images).enumerate();
        for (index, ((channel, own), file)) in channels {
            let Some(bounds) = properties.get(&index).filter(|_| channel.normalisation == Normalisation::Ct)
            else {
                continue;
            };
            let (low, high) = (bounds.percentile_00_5, bounds.percentile_99_5);
            // An image that is constant by itself is reported as such.
            let is_flat = own.min < own.max && (own.max <= low || own.min >= high);
            if is_flat {
                problems.push(Problem {
                    severity: Severity::Warning,
                    case: found.id.clone(),
                    file: file.path.clone(),
                    text: format!(
                        "channel {} has values from {} to {}, which are all clipped to one: the foreground of the data set lies \
                         between {low} and {high}",
                        channel.name, own.min, own.max
                    ),
                    hint: Some("check the unit of its intensities, such as Hounsfield units".into()),
                });
            }
        }
    }
    problems
}

/// A spacing in millimetres or micrometres, whichever avoids leading zeros.
fn spacing(Spacing(lengths): Spacing) -> String {
    let (unit, factor) =
        if lengths.iter().any(|length| *length >= 0.1) { ("mm", 1.0) } else { ("µm", 1000.0) };
    let [depth, height, width] = lengths.map(|length| format!("{:.3}", length * factor));
    format!("{depth} × {height} × {width} {unit}")
}
