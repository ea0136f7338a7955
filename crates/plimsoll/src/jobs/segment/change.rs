//! Labels that are changed on the grid that networks see, before they go back to the stored one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_data::{Case, ChannelFile, Reading, ZoomedImage};
use plimsoll_infer::{
    Growth, InferError, PartLabels, Written, grow_labels, labels_as_stored, merge_labels, write_zoomed,
    zoomed_image,
};
use plimsoll_memory::{Bytes, Overhead, Reservation};
use plimsoll_models::total_segmentator::{Change, SegmentatorTask};
use plimsoll_postprocess::{
    LabelMap, LabelSet, LeastSize, Neighbours, Step, Vertebrae, number_vertebrae, process_file,
};
use plimsoll_volume::LabelTable;

use super::Job;
use super::parts::PartsFolder;
use super::shared::{Images, View};
use super::stages::{Stage, least_limit};
use crate::error::{Error, Outcome};
use crate::jobs::memory_limit::driver_bytes;

/// An image as networks see it, in a file of its own.
pub(super) struct ZoomedFile {
    pub(super) image: ZoomedImage,
    /// The stored image.
    stored: PathBuf,
    /// The file, as a case.
    pub(super) case: Case,
}

/// The names of all labels of a task.
pub(super) fn all_names(task: &SegmentatorTask) -> LabelTable {
    let names = task.classes.iter();
    LabelTable {
        labels: names.filter_map(|class| Some((task.value(class)?.into(), class.clone()))).collect(),
    }
}

/// Labels with the values of a task, in one file.
pub(super) fn as_they_are(file: PathBuf) -> Vec<PartLabels> {
    vec![PartLabels { file, lookup: (0..=u8::MAX).collect() }]
}

impl Job<'_> {
    /// Reserves the memory of the process itself for as long as the reservation lives.
    pub(super) fn overhead(&self) -> Outcome<Reservation> {
        Ok(self.budget.reserve("overhead", self.overhead_bytes()).map_err(InferError::Overhead)?)
    }

    pub(super) fn overhead_bytes(&self) -> Bytes {
        Overhead::new(self.request.options.threads).total() + driver_bytes(&*self.request.backend)
    }

    /// Refuses an image with a grid on which the limit has no room for changing the labels of a stage.
    pub(super) fn expect_room(&self, stage: &Stage<'_>, case: &str, image: &ZoomedImage) -> Outcome {
        let (needed, limit) = (least_limit(image, self.overhead_bytes()), self.budget.limit());
        if stage.changes.is_empty() || needed <= limit {
            return Ok(());
        }
        let message = format!(
            "{case}: changing the labels of {} on a grid of {:?} voxels needs {needed}, but the limit is {limit}",
            stage.name,
            image.shape()
        );
        Err(Error::new(message, format!("raise the limit to ‹ram={needed}›")))
    }

    /// Writes the image of a stage as its networks see it.
    pub(super) fn zoomed(
        &self,
        stage: &Stage<'_>,
        case: &Case,
        images: &mut Images<'_>,
    ) -> Outcome<ZoomedFile> {
        let image = zoomed_image(case, stage.within, stage.spacing)?;
        // Before the networks of the stage are run, of which nothing would come.
        self.expect_room(stage, &case.id, &image)?;
        let stored = case.images.first().map(|image| image.path.clone());
        let stored =
            stored.ok_or_else(|| Error::new(format!("{} has no image", case.id), "name an image"))?;
        let view = View { within: stage.within, spacing: stage.spacing };
        let file = images.file(view, |file| {
            let _overhead = self.overhead()?;
            Ok(write_zoomed(case, &image, file, &self.budget, self.context.stop.flag())?)
        })?;
        let images = vec![ChannelFile { path: file, index: 0 }];
        Ok(ZoomedFile {
            image,
            stored,
            case: Case { id: case.id.clone(), images, label: None, reading: Reading::default() },
        })
    }

    /// Puts the labels of a stage's models together, changes them, and brings them back to the stored grid.
    pub(super) fn changed(
        &self,
        stage: &Stage<'_>,
        zoomed: &ZoomedFile,
        found: &[PartLabels],
        parts: &PartsFolder,
    ) -> Outcome<Vec<PartLabels>> {
        let _overhead = self.overhead()?;
        let Some(image) = zoomed.case.images.first() else { return Ok(Vec::new()) };
        let names = all_names(stage.task);
        let mut labels = parts.plain(&format!("{}-labels", stage.name));
        let to = Written { path: &labels, image: &image.path, names: &names };
        merge_labels(found, &to, &self.budget, self.context.stop.flag())?;
        for (number, change) in stage.changes.iter().enumerate() {
            let to = parts.plain(&format!("{}-change-{number}", stage.name));
            self.change(change, stage.task, &zoomed.image, &labels, &to)?;
            labels = to;
        }
        let to = parts.file(&format!("{}-stored", stage.name));
        let grid = zoomed.image.grid();
        labels_as_stored(&labels, &grid, &zoomed.stored, &to, &self.budget, self.context.stop.flag())?;
        Ok(as_they_are(to))
    }

    fn change(
        &self,
        change: &Change,
        task: &SegmentatorTask,
        image: &ZoomedImage,
        from: &Path,
        to: &Path,
    ) -> Outcome {
        let (threads, spacing) = (self.request.options.threads, image.spacing());
        let step = match change {
            Change::KeepLargest { labels } => Step::KeepLargest {
                labels: label_set(task, labels)?,
                together: false,
                neighbours: Neighbours::Faces,
            },
            Change::DropSmall { labels, mm3 } => Step::DropSmall {
                labels: label_set(task, if labels.is_empty() { &task.classes } else { labels })?,
                together: false,
                neighbours: Neighbours::Faces,
                least: LeastSize::Voxels(Change::voxels_above(*mm3, spacing.0)),
            },
            Change::NumberVertebrae { least_mm3 } => {
                let last = task.classes.last().and_then(|class| task.value(class));
                let last = last.map(u16::from).ok_or_else(|| no_label("any"))?;
                let least_voxels = Change::voxels_of(*least_mm3, spacing.0);
                let vertebrae = Vertebrae { first: 1, last, least_voxels };
                let mut map = LabelMap::read(from, &self.budget)?;
                number_vertebrae(map.labels_mut(), image.shape(), vertebrae, &self.budget, threads)?;
                return Ok(map.write(to, &self.budget)?);
            }
            Change::Grow { radius_mm } => {
                let growth = Growth { radius_mm: *radius_mm, spacing, inside: None };
                return Ok(grow_labels(from, to, &growth, &self.budget, self.context.stop.flag())?);
            }
        };
        process_file(from, to, &[step], None, &self.budget, threads)?;
        Ok(())
    }
}

/// The values of labels of a task.
fn label_set(task: &SegmentatorTask, labels: &[String]) -> Outcome<LabelSet> {
    let value = |label: &String| task.value(label).map(u16::from).ok_or_else(|| no_label(label));
    let values = labels.iter().map(value).collect::<Outcome<BTreeSet<u16>>>()?;
    LabelSet::try_from(values)
        .map_err(|why| Error::new(why, "this is a bug in the table of tasks: report it"))
}

fn no_label(label: &str) -> Error {
    Error::new(
        format!("a task changes `{label}`, which it does not have"),
        "this is a bug in the table of tasks: report it",
    )
}
