//! The folder of labels, and the steps that are done on them there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::{Case, LengthUnit};
use plimsoll_infer::Destination;
use plimsoll_memory::Budget;
use plimsoll_postprocess::{Step, process_file};
use plimsoll_report::preview::preview_of;

use super::request::PredictRequest;
use super::results::{Cases, Failed};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::make_folder;

/// The subfolder of the labels as they were before post-processing.
pub(super) const UNPROCESSED: &str = "unprocessed";

/// The folder of labels, and the steps that follow their prediction.
pub(super) struct LabelFolder {
    /// The folder that a prediction is written to.
    pub(super) folder: PathBuf,
    /// The folder that they are in when all is done, if steps are done on them.
    steps: Option<(PathBuf, Vec<Step>)>,
    /// The unit of lengths in image headers, which labels keep, whatever headers state.
    unit: Option<LengthUnit>,
    threads: usize,
}

impl LabelFolder {
    /// Checks and prepares the folder of a request.
    pub(super) fn open(request: &PredictRequest, budget: &Budget, context: &Context) -> Outcome<LabelFolder> {
        let (output, threads) = (request.output.clone(), request.options.threads);
        let unit = request.volumes.unit;
        match request.volumes.postprocessing.steps(&request.model, budget)? {
            None => Ok(LabelFolder { folder: output, steps: None, unit, threads }),
            Some((path, steps)) => {
                let why = "‹no_postprocessing› keeps labels as predicted";
                context.note(format_args!(
                    "the post-processing steps of {} apply to labels; {why}",
                    path.display()
                ));
                let folder = output.join(UNPROCESSED);
                Ok(LabelFolder { folder, steps: Some((output, steps)), unit, threads })
            }
        }
    }

    /// The final destination of labels that are predicted `to` a folder.
    pub(super) fn last(&self, to: &Destination) -> Destination {
        let folder = self.steps.as_ref().map_or(&self.folder, |(output, _)| output);
        Destination { folder: folder.clone(), ..to.clone() }
    }

    /// Returns `true` if labels before post-processing are in a folder of their own.
    pub(super) fn is_kept_apart(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns `true` if the labels of a case are post-processed. They are kept even if the labels that they were made from are gone.
    pub(super) fn is_processed(&self, case: &Case, to: &Destination) -> bool {
        let has_probabilities = || to.probabilities(case).is_none_or(|file| file.exists());
        self.steps.is_some() && !to.overwrite && self.last(to).file(case).exists() && has_probabilities()
    }

    /// Returns `true` if a case is not predicted again.
    pub(super) fn is_kept(&self, case: &Case, to: &Destination) -> bool {
        self.is_processed(case, to) || to.keeps(case)
    }

    /// Removes files derived from earlier labels of cases that are about to be predicted `to` a folder: previews, post-processed labels,
    /// and probabilities if none are written now. Otherwise, if this call were killed, the next call would take them for files of the new
    /// labels.
    pub(super) fn remove_outdated<'a>(
        &self,
        cases: impl IntoIterator<Item = &'a Case>,
        to: &Destination,
    ) -> Outcome {
        let last = self.last(to);
        let with_probabilities = Destination { probabilities: true, ..to.clone() };
        let mut folders = BTreeSet::new();
        for case in cases {
            let labels = last.file(case);
            let probabilities = with_probabilities.probabilities(case).filter(|_| !to.probabilities);
            let mut outdated = vec![preview_of(&labels)];
            outdated.extend(probabilities);
            outdated.extend(self.is_kept_apart().then_some(labels));
            for file in outdated {
                if remove_if_there(&file)? {
                    folders.extend(file.parent().map(Path::to_path_buf));
                }
            }
        }
        folders.iter().try_for_each(|folder| {
            plimsoll_disk::sync_folder(folder).map_err(|error| Error::at_path(folder, &error))
        })
    }

    /// The error for labels that are outside the folder.
    fn elsewhere(&self, file: &Path) -> Error {
        let message = format!("{} is not in {}", file.display(), self.folder.display());
        Error::new(message, "this is a bug: report it with the command and this message")
    }

    /// Makes it, without what a killed process left in it.
    pub(super) fn make(&self) -> Outcome {
        make_folder(&self.folder)
    }

    /// Does the steps on labels that are new, or that have none of it yet, and says where all labels are then. A case of which they fail
    /// is one that failed, and does not end the others.
    pub(super) fn process(&self, cases: &mut Cases, budget: &Budget, stop: &AtomicBool) -> Outcome {
        let Some((output, steps)) = &self.steps else { return Ok(()) };
        make_folder(output)?;
        let Cases { predicted, kept, failed, processed } = cases;
        let mut is_done = |case: &str, file: &mut PathBuf, is_new: bool| -> Outcome<bool> {
            let name = file.strip_prefix(&self.folder).map_err(|_| self.elsewhere(file))?;
            let last = output.join(name);
            if is_new || !last.exists() {
                expect_going(stop)?;
                last.parent().map_or(Ok(()), make_folder)?;
                remove_if_there(&preview_of(&last))?;
                let unit = self.unit.map(LengthUnit::millimetres);
                if let Err(error) = process_file(file, &last, steps, unit, budget, self.threads) {
                    failed.push(Failed::new(case.into(), error));
                    return Ok(false);
                }
                processed.insert(case.into());
            }
            *file = last;
            Ok(true)
        };
        for mut case in std::mem::take(predicted) {
            if is_done(&case.case, &mut case.file, true)? {
                predicted.push(case);
            }
        }
        for mut case in std::mem::take(kept) {
            if is_done(&case.case, &mut case.file, false)? {
                kept.push(case);
            }
        }
        Ok(())
    }
}

/// Removes a file; returns whether there was one.
fn remove_if_there(file: &Path) -> Outcome<bool> {
    match file.is_file() {
        true => plimsoll_disk::remove_file(file).map(|()| true).map_err(|error| Error::at_path(file, &error)),
        false => Ok(false),
    }
}

/// Ends what a signal ends.
pub(super) fn expect_going(stop: &AtomicBool) -> Outcome {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::new("interrupted", "the same command predicts the missing ones")),
        false => Ok(()),
    }
}
