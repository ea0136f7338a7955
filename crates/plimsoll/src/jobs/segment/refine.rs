//! The last steps on labels on the stored grid: borders from another task, and the skin of the body.

use std::path::Path;

use plimsoll_data::Case;
use plimsoll_infer::{Growth, PartLabels, SkinFiles, Written, grow_labels, merge_labels, write_skin};
use plimsoll_memory::Bytes;
use plimsoll_models::total_segmentator::{Mode, Refinement, SegmentatorTask};
use plimsoll_volume::VolumeFile;

use super::change::{all_names, as_they_are};
use super::parts::PartsFolder;
use super::shared::Images;
use super::stages::Stage;
use super::{DERIVED, ENDING, Job};
use crate::error::{Error, Outcome};

impl Job<'_> {
    /// Lets labels grow, and cuts them to a label of another task, which is run for it.
    pub(super) fn refine(
        &self,
        refinement: &Refinement,
        found: Vec<PartLabels>,
        case: &Case,
        parts: &PartsFolder,
        images: &mut Images<'_>,
        most: &mut Bytes,
    ) -> Outcome<Vec<PartLabels>> {
        let Some(image) = case.images.first().map(|image| image.path.as_path()) else { return Ok(found) };
        let name = &refinement.task;
        let task = SegmentatorTask::named(name)?;
        let models = task.models(name, Mode::Default)?;
        let changes = models.changes.clone();
        let spacing = models.spacing();
        let stage = Stage { name, task, models, spacing, within: None, subset: &[], changes };
        let other = self.labels(&stage, case, parts, images, most)?;
        let inside = task.value(&refinement.inside).ok_or_else(|| {
            let message = format!("{name} has no label `{}`", refinement.inside);
            Error::new(message, "this is a bug in the table of tasks: report it")
        })?;
        let _overhead = self.overhead()?;
        let (labels, others, refined) = (parts.plain("found"), parts.plain("inside"), parts.plain("refined"));
        for (parts, to, task) in [(&found, &labels, self.task), (&other, &others, task)] {
            let names = all_names(task);
            merge_labels(
                parts,
                &Written { path: to, image, names: &names },
                &self.budget,
                self.context.stop.flag(),
            )?;
        }
        let growth = Growth {
            radius_mm: refinement.radius_mm,
            // As the header states it, which is what TotalSegmentator measures with.
            spacing: VolumeFile::open(image)?.stated_spacing(),
            inside: Some((&others, inside)),
        };
        grow_labels(&labels, &refined, &growth, &self.budget, self.context.stop.flag())?;
        Ok(as_they_are(refined))
    }

    /// Makes the masks of the body and its skin, where the task has them.
    pub(super) fn derive(&self, image: &Path, labels: &Path, folder: &Path, parts: &PartsFolder) -> Outcome {
        if !self.has_skin() {
            return Ok(());
        }
        let [body, skin] = DERIVED.map(|name| folder.join(format!("{name}{ENDING}")));
        let files = SkinFiles { body: &body, skin: &skin, meanwhile: &parts.plain("skin") };
        let _overhead = self.overhead()?;
        Ok(write_skin(image, labels, &files, &self.budget, self.context.stop.flag())?)
    }
}
