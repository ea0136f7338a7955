//! Cases of a folder, one after the other.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll_data::Case;

use crate::cases::ahead::{Ahead, LookAhead, Next};
use crate::cases::request::CaseRequest;
use crate::error::InferError;
use crate::planning::plan::PredictPlan;
use crate::predicting::destination::Destination;
use crate::predicting::predictor::{PredictedCase, Predictor};
use crate::progress::{CaseTimes, Progress};

/// The outcome of a case.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one is made for each case, and most cases are predicted")]
pub enum Outcome {
    /// It was predicted.
    Predicted {
        /// Windows, each fold counted.
        windows: usize,
        /// The duration in seconds.
        seconds: f64,
        /// Its plan.
        plan: PredictPlan,
        /// The parts of that time.
        times: CaseTimes,
    },
    /// A prediction was there already, and was kept.
    Kept,
    /// It could not be predicted, and nothing was written for it.
    Failed(InferError),
}

/// A case, and what came of it.
#[derive(Debug)]
pub struct CaseReport {
    /// Its name.
    pub case: String,
    /// The file of its labels.
    pub file: PathBuf,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcomes of all cases.
#[derive(Debug, Default)]
pub struct FolderReport {
    /// One for each case, in their order.
    pub cases: Vec<CaseReport>,
}

impl FolderReport {
    /// Returns the number of predictions that existed already.
    pub fn kept(&self) -> usize {
        self.cases.iter().filter(|case| matches!(case.outcome, Outcome::Kept)).count()
    }

    /// The cases that could not be predicted, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&CaseReport, &InferError)> {
        self.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::Failed(error) => Some((case, error)),
            Outcome::Predicted { .. } | Outcome::Kept => None,
        })
    }
}

/// The progress of a folder. Cases whose predictions are kept are not counted: they take no time.
#[derive(Clone, Copy, Debug)]
pub enum FolderProgress<'a> {
    /// A window of a case is done, or none is and the case begins to be summed.
    Window {
        /// The number of the case, from 1.
        number: usize,
        /// The number of all cases.
        of: usize,
        /// The case.
        case: &'a Case,
        /// Its windows.
        windows: Progress,
    },
    /// A case came to its end.
    Case {
        /// The number of the case, from 1.
        number: usize,
        /// The number of all cases.
        of: usize,
        /// Its outcome.
        report: &'a CaseReport,
    },
}

/// Predicts cases and writes their labels. While a case is computed, the next one is inspected and decoded, as far as the limit has room for
/// it. A case that cannot be predicted does not end the others: what came of each is in the
/// report. Called again after an interruption it goes on: predictions that are there are kept, unless they are to be replaced.
///
/// # Errors
/// Returns an error if labels would replace an image or earlier labels, before anything is read. If `stop` is set, at once. If a fault does not belong to one case:
/// the weights cannot be read, the backend fails, the disk has no room for labels.
pub fn predict_cases(
    predictor: &mut Predictor,
    cases: &[Case],
    to: &Destination,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(FolderProgress<'_>),
) -> Result<FolderReport, InferError> {
    let mut prepared: Option<Ahead> = None;
    predict_each(cases, to, observe, &mut |Turn { case, next }, labels, observe| {
        let (earlier, probabilities) = (to.earlier(case), to.probabilities(case));
        let request = CaseRequest {
            case,
            earlier: earlier.as_deref(),
            within: None,
            labels,
            probabilities: probabilities.as_deref(),
        };
        let before = prepared.take();
        let earlier_of_next = next.and_then(|case| to.earlier(case));
        let next = next.map(|case| Next { case, earlier: earlier_of_next.as_deref(), found: &mut prepared });
        predictor.predict_between(&request, LookAhead { before, next, shared: None }, stop, observe)
    })
}

/// The turn of a case of a folder.
struct Turn<'a> {
    case: &'a Case,
    /// The case that is predicted after it.
    next: Option<&'a Case>,
}

/// Predicts the case of a turn into a file.
type PredictOne<'a> =
    dyn FnMut(Turn<'_>, &Path, &mut dyn FnMut(Progress)) -> Result<PredictedCase, InferError> + 'a;

fn predict_each(
    cases: &[Case],
    to: &Destination,
    observe: &mut dyn FnMut(FolderProgress<'_>),
    predict: &mut PredictOne,
) -> Result<FolderReport, InferError> {
    to.check(cases)?;
    // Looked at once, so that what is counted as work does not change meanwhile.
    let kept: Vec<bool> = cases.iter().map(|case| to.keeps(case)).collect();
    let of = kept.iter().filter(|kept| !**kept).count();
    let mut number = 0;
    let mut report = FolderReport { cases: Vec::with_capacity(cases.len()) };
    for (place, (case, is_kept)) in cases.iter().zip(&kept).enumerate() {
        let (name, file) = (case.id.clone(), to.file(case));
        if *is_kept {
            report.cases.push(CaseReport { case: name, file, outcome: Outcome::Kept });
            continue;
        }
        number += 1;
        let start = Instant::now();
        let mut windows = Progress::default();
        let mut behind = cases.iter().zip(&kept).skip(place + 1).filter(|(_, kept)| !**kept);
        let next = behind.next().map(|(case, _)| case);
        let predicted = predict(Turn { case, next }, &file, &mut |progress| {
            windows = progress;
            observe(FolderProgress::Window { number, of, case, windows });
        });
        let outcome = match predicted {
            Ok(PredictedCase { plan, times }) => {
                let seconds = start.elapsed().as_secs_f64();
                Outcome::Predicted { windows: windows.windows, seconds, plan, times }
            }
            Err(error) if error.is_of_one_case() => Outcome::Failed(error),
            Err(error) => return Err(error),
        };
        let done = CaseReport { case: name, file, outcome };
        observe(FolderProgress::Case { number, of, report: &done });
        report.cases.push(done);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{RingStorage, Summed};
    use crate::predicting::destination::LabelNames;
    use plimsoll_data::{ChannelFile, Reading};
    use plimsoll_graph::DType;
    use plimsoll_memory::Bytes;
    use std::fs;

    fn predicted() -> PredictedCase {
        let plan = PredictPlan {
            ram_budget_bytes: Bytes(1),
            overhead_bytes: Bytes(1),
            arena_bytes: Bytes(1),
            device_bytes: None,
            device_logits_bytes: Bytes(0),
            host_sums: None,
            window_bytes: Bytes(1),
            logits_bytes: Bytes(1),
            preparation_bytes: Bytes(0),
            decoding_bytes: Bytes(1),
            cache_bytes: Bytes(1),
            decompressed_file_bytes: Bytes(0),
            spool_bytes: Bytes(0),
            spool_file_bytes: Bytes(0),
            queue_bytes: Bytes(0),
            ahead_bytes: Bytes(0),
            total_bytes: Bytes(1),
            minimum_ram_bytes: Bytes(1),
            summed: Summed::Logits,
            ring: RingStorage::F32,
            f32_ring_ram_bytes: Bytes(1),
            f32_ring_vram_bytes: None,
            precision: DType::F32,
            slab_axis: 0,
            strips: 1,
            windows: 3,
            repeated_windows: 0,
            looks: 1,
            window_batch: 1,
            predicted_seconds: 1.0,
        };
        PredictedCase { plan, times: CaseTimes::default() }
    }

    fn case(folder: &Path, id: &str) -> Case {
        let path = folder.join(format!("{id}.nii"));
        fs::write(&path, "image").unwrap();
        Case {
            id: id.into(),
            images: vec![ChannelFile { path, index: 0 }],
            label: None,
            reading: Reading::default(),
        }
    }

    struct Folders {
        dir: tempfile::TempDir,
        cases: Vec<Case>,
        to: Destination,
    }

    fn folders(ids: &[&str]) -> Folders {
        let dir = tempfile::tempdir().unwrap();
        let (images, labels) = (dir.path().join("images"), dir.path().join("labels"));
        for folder in [&images, &labels] {
            fs::create_dir(folder).unwrap();
        }
        let cases = ids.iter().map(|id| case(&images, id)).collect();
        let to = Destination {
            folder: labels,
            names: LabelNames::Cases,
            ending: ".nii".into(),
            overwrite: false,
            probabilities: false,
            earlier: None,
        };
        Folders { dir, cases, to }
    }

    /// Writes a file for each case but one, which fails, and two of which end everything.
    fn predict(
        Turn { case, .. }: Turn<'_>,
        file: &Path,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        match case.id.as_str() {
            "bad" => return Err(InferError::Unreadable { case: "bad".into() }),
            "stopped" => return Err(InferError::Interrupted { case: "stopped".into() }),
            _ => {}
        }
        for windows in 0..=3 {
            observe(Progress { windows, of: 3, ..Progress::default() });
        }
        fs::write(file, &case.id).unwrap();
        Ok(predicted())
    }

    fn ends(report: &FolderReport) -> Vec<(&str, char)> {
        let end = |case: &'_ CaseReport| match case.outcome {
            Outcome::Predicted { windows, .. } => {
                assert_eq!(windows, 3);
                'p'
            }
            Outcome::Kept => 'k',
            Outcome::Failed(_) => 'f',
        };
        report.cases.iter().map(|case| (case.case.as_str(), end(case))).collect()
    }

    #[test]
    fn a_case_that_fails_does_not_end_the_others_and_one_that_is_there_is_kept() {
        let Folders { dir: _dir, cases, mut to } = folders(&["a", "bad", "c", "d"]);
        fs::write(to.folder.join("c.nii"), "of old").unwrap();
        let mut seen = Vec::new();
        let report = predict_each(
            &cases,
            &to,
            &mut |progress| {
                seen.push(match progress {
                    FolderProgress::Window { number, of, windows, .. } => (number, of, windows.windows),
                    FolderProgress::Case { number, of, .. } => (number, of, 99),
                });
            },
            &mut predict,
        )
        .unwrap();
        assert_eq!(ends(&report), [("a", 'p'), ("bad", 'f'), ("c", 'k'), ("d", 'p')]);
        assert_eq!((report.kept(), report.failed().count()), (1, 1));
        let of_three = |number: usize, steps: &[usize]| steps.iter().map(|step| (number, 3, *step)).collect();
        let expected: [Vec<_>; 3] =
            [of_three(1, &[0, 1, 2, 3, 99]), of_three(2, &[99]), of_three(3, &[0, 1, 2, 3, 99])];
        assert_eq!(seen, expected.concat());
        assert_eq!(fs::read_to_string(to.folder.join("c.nii")).unwrap(), "of old");
        assert!(!to.folder.join("bad.nii").exists());
        to.overwrite = true;
        let report = predict_each(&cases, &to, &mut |_| {}, &mut predict).unwrap();
        assert_eq!(ends(&report), [("a", 'p'), ("bad", 'f'), ("c", 'p'), ("d", 'p')]);
        assert_eq!(fs::read_to_string(to.folder.join("c.nii")).unwrap(), "c");
    }

    #[test]
    fn an_interruption_ends_at_once_and_what_was_done_is_kept_the_next_time() {
        let Folders { dir: _dir, mut cases, to } = folders(&["a", "stopped", "z"]);
        let error = predict_each(&cases, &to, &mut |_| {}, &mut predict).unwrap_err();
        assert!(matches!(error, InferError::Interrupted { .. }));
        assert!(to.folder.join("a.nii").exists() && !to.folder.join("z.nii").exists());
        cases.remove(1);
        let report = predict_each(&cases, &to, &mut |_| {}, &mut predict).unwrap();
        assert_eq!(ends(&report), [("a", 'k'), ("z", 'p')]);
    }

    #[test]
    fn labels_never_replace_an_image_however_it_is_reached() {
        let Folders { dir, cases, to } = folders(&["a", "b"]);
        let images = dir.path().join("images");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&images, &link).unwrap();
        let into = |folder: PathBuf| Destination { folder, overwrite: true, ..to.clone() };
        for folder in [images.clone(), images.join("."), images.join("../images"), link] {
            let predicted = predict_each(&cases, &into(folder), &mut |_| {}, &mut predict);
            assert!(matches!(predicted, Err(InferError::ReplacesImage { .. })));
        }
        // An image that is a link to a file where labels of that name would be written.
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(images.join("b.nii"), elsewhere.join("b.nii")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("b.nii"), images.join("b.nii")).unwrap();
        let predicted = predict_each(&cases, &into(elsewhere), &mut |_| {}, &mut predict);
        assert!(matches!(predicted, Err(InferError::ReplacesImage { case, .. }) if case == "b"));
        assert_eq!(fs::read_to_string(images.join("a.nii")).unwrap(), "image");
        assert_eq!(fs::read_to_string(images.join("b.nii")).unwrap(), "image");
    }
}
