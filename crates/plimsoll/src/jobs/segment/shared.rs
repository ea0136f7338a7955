//! Labels and resampled images that the tasks of an image share.

use std::path::{Path, PathBuf};

use plimsoll_infer::{PartLabels, SharedImage};
use plimsoll_models::total_segmentator::Mode;
use plimsoll_volume::{Spacing, VoxelBox};

use super::parts::PartsFolder;
use crate::error::Outcome;

/// The labels that tasks have found in an image: for themselves, and for others that look where they have found something.
pub(super) struct Shared {
    // Their files are closed before the folder is removed, which Windows requires.
    seen: Vec<(View, SharedImage)>,
    folder: PartsFolder,
    found: Vec<((String, Mode), Vec<PartLabels>)>,
    resampled: Vec<Resampled>,
}

/// A part of an image as networks see it, in a file.
struct Resampled {
    view: View,
    file: PathBuf,
}

/// The part of the stored image that networks see, and its spacing; `None` for all of it, and for its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct View {
    pub(super) within: Option<VoxelBox>,
    pub(super) spacing: Option<Spacing>,
}

/// The image as networks see it. Each view is made once for all tasks of the image, and removed after the last.
pub(super) struct Images<'a> {
    folder: &'a PartsFolder,
    seen: &'a mut Vec<(View, SharedImage)>,
    resampled: &'a mut Vec<Resampled>,
}

impl Images<'_> {
    /// A view that networks read from the stored image, on whose grid their labels are decided.
    pub(super) fn seen(&mut self, view: View) -> &mut SharedImage {
        let known = self.seen.iter().position(|(known, _)| *known == view);
        let at = known.unwrap_or_else(|| {
            let file = self.folder.plain(&format!("seen-{}", self.seen.len()));
            self.seen.push((view, SharedImage::beside(&file)));
            self.seen.len() - 1
        });
        &mut self.seen[at].1
    }

    /// The file of a view. If no task had it before, `make` writes it.
    pub(super) fn file(&mut self, view: View, make: impl FnOnce(&Path) -> Outcome) -> Outcome<PathBuf> {
        if let Some(known) = self.resampled.iter().find(|known| known.view == view) {
            return Ok(known.file.clone());
        }
        let file = self.folder.plain(&format!("image-{}", self.resampled.len()));
        make(&file)?;
        self.resampled.push(Resampled { view, file: file.clone() });
        Ok(file)
    }
}

impl Shared {
    /// Makes a folder for the labels of a case.
    pub(super) fn new(beside: &Path, case: &str) -> Outcome<Shared> {
        let folder = PartsFolder::make(beside, &name_of(case))?;
        Ok(Shared { seen: Vec::new(), folder, found: Vec::new(), resampled: Vec::new() })
    }

    /// Removes the folders of processes that have ended.
    pub(super) fn sweep(beside: &Path, case: &str) -> Outcome {
        PartsFolder::sweep(beside, &name_of(case))
    }

    /// The resampled images.
    pub(super) fn images(&mut self) -> Images<'_> {
        Images { folder: &self.folder, seen: &mut self.seen, resampled: &mut self.resampled }
    }

    /// The labels that a task has found in the image. If it was not run, `find` runs it, with a folder for files of labels.
    pub(super) fn labels(
        &mut self,
        task: &str,
        mode: Mode,
        find: impl FnOnce(&PartsFolder, &mut Images<'_>) -> Outcome<Vec<PartLabels>>,
    ) -> Outcome<&[PartLabels]> {
        let known = self.found.iter().position(|((name, of_mode), _)| name == task && *of_mode == mode);
        let at = match known {
            Some(at) => at,
            None => {
                let Shared { seen, folder, resampled, .. } = self;
                let labels = find(folder, &mut Images { folder, seen, resampled })?;
                self.found.push(((task.into(), mode), labels));
                self.found.len() - 1
            }
        };
        Ok(&self.found[at].1)
    }
}

/// The name of the folder of a case.
fn name_of(case: &str) -> String {
    format!("{case}.regions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_resampled_once_for_each_box_and_spacing() {
        let dir = tempfile::tempdir().unwrap();
        let mut shared = Shared::new(dir.path(), "ct").unwrap();
        let whole = View { within: None, spacing: Some(Spacing([1.5; 3])) };
        let part = View { within: Some(VoxelBox { start: [1; 3], shape: [4; 3] }), ..whole };
        let mut made = Vec::new();
        let mut files = Vec::new();
        for view in [whole, part, whole, View { spacing: None, ..whole }, part] {
            let file = shared.images().file(view, |_| {
                made.push(view);
                Ok(())
            });
            files.push(file.unwrap());
        }
        assert_eq!(made.len(), 3);
        assert_eq!((&files[0], &files[1]), (&files[2], &files[4]));
        let again = shared.images().file(View { within: None, spacing: None }, |_| panic!("made twice"));
        assert_eq!(again.unwrap(), files[3]);
    }
}
