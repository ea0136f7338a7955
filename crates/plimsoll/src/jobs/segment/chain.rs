//! The tasks that are run for a task: those that find where to look, the task itself, and the one that refines it.

use plimsoll_models::total_segmentator::{Crop, Mode, ModelSize, SegmentatorTask};

use super::Job;
use crate::error::Outcome;

impl Job<'_> {
    /// The size of a task's networks. The requested size applies to the task itself, not to tasks that find the region of interest.
    pub(super) fn size_of(&self, task: &str) -> ModelSize {
        if task == self.name { self.request.size } else { ModelSize::Big }
    }

    /// All tasks that are run, in their order, those that find where to look before those that look there.
    pub(super) fn tasks(&self) -> Outcome<Vec<(String, Mode)>> {
        let mut all = self.rough_tasks()?;
        all.push((self.name.into(), self.request.mode));
        all.extend(self.task.refinement.as_ref().map(|refinement| (refinement.task.clone(), Mode::Default)));
        Ok(all)
    }

    /// The tasks that find where to look, in their order.
    pub(super) fn rough_tasks(&self) -> Outcome<Vec<(String, Mode)>> {
        let mut all = Vec::new();
        let mut next = self.rough();
        while let Some((name, mode)) = next {
            let crop = &SegmentatorTask::named(&name)?.models(&name, mode)?.crop;
            next = crop.as_ref().map(|crop| crop.task_and_mode(&name));
            all.push((name, mode));
        }
        all.reverse();
        Ok(all)
    }

    /// The task that finds the box which images are cut to.
    pub(super) fn rough(&self) -> Option<(String, Mode)> {
        self.crop().map(|crop| crop.task_and_mode(self.name))
    }

    /// The region that images are cut to: of the task, around the requested labels, or the body.
    pub(super) fn crop(&self) -> Option<Crop> {
        let crop = match &self.models.crop {
            Some(crop) => Some(crop.clone()),
            None if self.request.subset.is_empty() => self.body.clone(),
            None => Some(Crop::around(self.request.subset.clone())),
        };
        crop.map(|crop| Crop { robust: crop.robust || self.request.robust_crop, ..crop })
    }
}
