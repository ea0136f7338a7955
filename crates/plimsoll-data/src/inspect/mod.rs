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
mod parts;
mod problem;
mod record_lines;
mod sample;
mod scan;
mod stamp;
mod store;
mod threads;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{IndexFolder, Spacing};

pub use case::inspection_bytes;
pub use error::InspectError;
pub use far::{far_apart, meant_unit};
pub use foreground::{ForegroundIndex, Positions};
pub use parts::{MergedParts, PartFiles};
pub use problem::{Problem, Severity};
pub use scan::InspectionScan;
pub use values::LabelCensus;

use crate::Normalisation;
use crate::PatchGrid;
use crate::VolumeCache;
use crate::dataset::{Case, Channel, Dataset};
use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::inspect::case::CaseInspection;
use crate::inspect::scan::SoundCase;
use crate::inspect::stamp::FileStamp;
use crate::mask::MaskRuns;

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
        // Taken before anything is read, so that a file that changes meanwhile is not considered current later.
        let stamps = stamp::stamps(dataset);
        let scan = InspectionScan { dataset, config, indexes, asked, budget, observe };
        let all: Vec<usize> = (0..dataset.cases.len()).collect();
        let mut uncounted = BTreeSet::new();
        let inspection = loop {
            let (histograms, findings) = scan.run(&all, &uncounted)?;
            let (inspection, unsound) = findings.finish(dataset, &histograms, config.seed, &stamps);
            if unsound.is_empty() {
                break inspection;
            }
            // An error was found in cases only after their intensities had been counted: they are read again without these.
            uncounted.extend(unsound);
        };
        inspection.with_masks(&scan)
    }

    /// Finds the masks of the cases, if channels are normalised inside of them.
    fn with_masks(mut self, scan: &InspectionScan<'_>) -> Result<Inspection, InspectError> {
        let InspectionScan { dataset, config, budget, observe, .. } = *scan;
        if let Some(fingerprint) = self.fingerprint.as_mut().filter(|all| masks::are_used(dataset, all)) {
            let (masks, largest) = masks::find(dataset, fingerprint, config.threads, budget, observe)?;
            self.masks = masks;
            self.least = self.least.max(self.index_bytes() + largest);
        }
        Ok(self)
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
