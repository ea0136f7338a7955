//! Reading cases by several threads: the findings about each, and the intensities of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_memory::{Budget, Bytes, MapError, Reservation};
use plimsoll_random::mix;
use plimsoll_volume::IndexFolder;

use crate::dataset::{Channel, Dataset};
use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::inspect::case::{CaseInspection, CaseReport};
use crate::inspect::foreground::ForegroundIndex;
use crate::inspect::histogram::Histogram;
use crate::inspect::problem::Problem;
use crate::inspect::stamp::FileStamp;
use crate::inspect::threads::on_threads;
use crate::inspect::{InspectConfig, InspectError, Inspection, blow_ups, clipped_away, far, hounsfield};
use crate::moments::Moments;
use crate::statistics::IntensityProperties;

/// The surroundings of reading the cases of a data set.
pub struct InspectionScan<'a> {
    /// The data set.
    pub dataset: &'a Dataset,
    /// The settings.
    pub config: InspectConfig,
    /// The folder of access points of compressed files.
    pub indexes: Option<&'a IndexFolder>,
    /// Set by others to end the inspection.
    pub asked: &'a AtomicBool,
    /// The budget of planes, positions and statistics.
    pub budget: &'a Budget,
    /// Sees the number of finished cases, and of all that are read.
    pub observe: &'a (dyn Fn(usize, usize) + Sync),
}

impl InspectionScan<'_> {
    /// Reads the cases of these numbers, and counts the intensities of all but some.
    pub(crate) fn run(
        &self,
        numbers: &[usize],
        uncounted: &BTreeSet<usize>,
    ) -> Result<(Histograms, Findings), InspectError> {
        let shared = SharedScan {
            scan: self,
            numbers,
            weight: u64::MAX / 2 / (self.dataset.cases.len().max(1) as u64),
            uncounted,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            histograms: Histograms::new(self.dataset, self.budget)?,
            findings: Mutex::new(Findings::new(self.dataset)),
        };
        let threads = self.config.threads.clamp(1, numbers.len().max(1));
        on_threads("inspect", threads, &shared.stop, || shared.work())?;
        let findings = shared.findings.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((shared.histograms, findings))
    }
}

/// Shared by the threads of an inspection.
struct SharedScan<'a> {
    scan: &'a InspectionScan<'a>,
    /// The numbers of the cases that are read.
    numbers: &'a [usize],
    /// The weight of each case in the histograms.
    weight: u64,
    /// Cases whose intensities are not counted.
    uncounted: &'a BTreeSet<usize>,
    next: AtomicUsize,
    /// Set by the thread that fails.
    stop: AtomicBool,
    histograms: Histograms,
    findings: Mutex<Findings>,
}

impl SharedScan<'_> {
    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> Result<(), InspectError> {
        let InspectionScan { dataset, config, indexes, asked, budget, observe } = *self.scan;
        let Dataset { cases, channels, labels, .. } = dataset;
        while !self.stop.load(Ordering::Relaxed) {
            let next = self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed)).copied();
            let Some((number, case)) = next.and_then(|number| Some((number, cases.get(number)?))) else {
                break;
            };
            let key = mix(config.seed ^ mix(number as u64));
            let task = CaseInspection {
                case,
                channels,
                labels: Some(labels),
                histograms: if self.uncounted.contains(&number) { &[] } else { &self.histograms.channels },
                weight: self.weight,
                key,
                decoded: None,
                indexes,
                stop: Some(asked),
            };
            let report = task.run(budget);
            let kept = report.and_then(|report| self.lock().keep(number, report, budget));
            match kept {
                Ok(done) => observe(done, self.numbers.len()),
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
pub(crate) type SoundCase = (CaseFingerprint, ForegroundIndex);

/// The findings so far, by the number of the case.
pub(crate) struct Findings {
    /// The problems of each case and, if it is valid, its fingerprint and index.
    pub(crate) reports: Vec<Option<(Vec<Problem>, Option<SoundCase>)>>,
    /// For each case, the moments of the foreground by channel, and whether it is in the histograms.
    pub(crate) foreground: Vec<(Vec<Moments>, bool)>,
    pub(crate) done: usize,
    /// The most memory that reading a case takes.
    pub(crate) largest: Bytes,
}

/// The intensities of the foreground of all cases.
pub(crate) struct Histograms {
    pub(crate) channels: Vec<Mutex<Histogram>>,
    /// The reservation for the moments of each case.
    _moments: Reservation,
    /// The bytes reserved for histograms and moments.
    reserved: Bytes,
}

impl Histograms {
    pub(crate) fn new(dataset: &Dataset, budget: &Budget) -> Result<Histograms, InspectError> {
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

    /// Takes cases out that were counted.
    pub(crate) fn subtract(&mut self, others: &Histograms) {
        for (all, others) in self.channels.iter_mut().zip(&others.channels) {
            let others = others.lock().unwrap_or_else(PoisonError::into_inner);
            all.get_mut().unwrap_or_else(PoisonError::into_inner).subtract(&others);
        }
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
    pub(crate) fn new(dataset: &Dataset) -> Findings {
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
    pub(crate) fn finish(
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
