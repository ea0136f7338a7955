//! Previews of all cases of a prediction, beside their labels.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use plimsoll_data::Case;
use plimsoll_memory::Budget;
use plimsoll_models::{Answers, SegmentationModel};
use plimsoll_report::preview::{Files, draw, preview_of};
use plimsoll_volume::LabelTable;

use super::label_folder::expect_going;
use super::results::{Cases, Failed};
use crate::error::Outcome;

/// The images and label names of previews.
pub struct Previews {
    /// The image of each case: the first channel.
    images: BTreeMap<String, PathBuf>,
    names: LabelTable,
}

impl Previews {
    /// The previews of the cases of a model.
    pub fn new(cases: &[Case], model: &SegmentationModel) -> Previews {
        let image = |case: &Case| Some((case.id.clone(), case.image_files().next()?.to_path_buf()));
        Previews { images: cases.iter().filter_map(image).collect(), names: names(model) }
    }

    /// Draws missing previews and previews of new labels. A case that cannot be drawn does not end the others; failed cases are returned.
    pub(super) fn draw(&self, cases: &Cases, budget: &Budget, stop: &AtomicBool) -> Outcome<Vec<Failed>> {
        let new = cases.predicted.iter().map(|case| (&case.case, &case.file, true));
        // A prediction that was kept has other labels when steps were done on it now.
        let kept = cases.kept.iter();
        let kept = kept.map(|case| (&case.case, &case.file, cases.processed.contains(&case.case)));
        let mut failed = Vec::new();
        for (case, labels, is_new) in new.chain(kept) {
            let path = preview_of(labels);
            let Some(image) = self.images.get(case).filter(|_| is_new || !path.exists()) else { continue };
            expect_going(stop)?;
            if let Err(error) = draw(&Files { image, labels, names: &self.names }, &path, budget) {
                failed.push(Failed::new(case.clone(), error));
            }
        }
        Ok(failed)
    }
}

/// The names of a model's labels, by the values that are written.
pub(super) fn names(model: &SegmentationModel) -> LabelTable {
    let outputs = model.outputs.iter().cloned();
    LabelTable {
        labels: match &model.answers {
            Answers::Classes(_) => (0..).zip(outputs).filter(|(value, _)| *value != 0).collect(),
            Answers::Regions(values) => values.iter().copied().zip(outputs).collect(),
        },
    }
}
