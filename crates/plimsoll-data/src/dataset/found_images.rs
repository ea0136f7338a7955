//! Images to predict, some of which may be unusable.

use std::collections::{BTreeMap, BTreeSet};

use crate::dataset::files::{Folder, all_channels_of, channel_name, split_channel};
use crate::dataset::names::is_picture_ending;
use crate::dataset::{Case, Channel, DatasetError, Reading};
use crate::files_memory::FilesMemory;

/// The images of a folder that are to be predicted. A fault in the files of one image does not affect the others.
#[derive(Debug, Default)]
pub struct FoundImages {
    /// The cases whose files are complete, sorted by id.
    pub cases: Vec<Case>,
    /// The images that cannot be predicted, judged by names alone.
    pub refused: Vec<RefusedImage>,
    /// The reservation for the names of their files.
    pub memory: FilesMemory,
}

/// An image that cannot be predicted.
#[derive(Debug)]
pub struct RefusedImage {
    /// The name of its case.
    pub case: String,
    /// The fault.
    pub error: DatasetError,
}

impl FoundImages {
    pub(crate) fn refuse(&mut self, case: &str, error: DatasetError) {
        self.refused.push(RefusedImage { case: case.into(), error });
    }

    /// Returns the images if at least one of them can be predicted.
    ///
    /// # Errors
    /// The fault of the first image if none can be predicted.
    pub(crate) fn expect_any(mut self) -> Result<FoundImages, DatasetError> {
        match self.cases.is_empty() && !self.refused.is_empty() {
            true => Err(self.refused.swap_remove(0).error),
            false => Ok(self),
        }
    }

    /// Returns the cases if no image is refused.
    ///
    /// # Errors
    /// The fault of the first refused image.
    pub(crate) fn expect_all(mut self) -> Result<Vec<Case>, DatasetError> {
        match self.refused.is_empty() {
            true => Ok(self.cases),
            false => Err(self.refused.swap_remove(0).error),
        }
    }
}

impl Folder {
    /// Finds the cases to predict. With `alone`, the folder's single entry was given as a file and is the whole case.
    pub(crate) fn images_to_predict(&self, alone: bool, channels: &[Channel]) -> FoundImages {
        let by_channels = !alone && self.stems().any(|stem| matches!(split_channel(stem), Some((_, 0))));
        if by_channels {
            return self.images_by_channel(channels);
        }
        let whole = |(stem, name): (&str, &String)| {
            let id = match split_channel(stem) {
                // A single file of a single channel: the channel number is not part of the case's name.
                Some((id, 0)) if alone && channels.len() == 1 => id,
                _ => stem,
            };
            Case {
                id: id.into(),
                images: all_channels_of(&self.path.join(name), channels.len()),
                label: None,
                reading: Reading::default(),
            }
        };
        let cases = self.stems().zip(&self.names).map(whole).collect();
        FoundImages { cases, ..FoundImages::default() }
    }

    /// Finds the cases of a folder with a file for each channel, or with pictures that hold all channels.
    fn images_by_channel(&self, channels: &[Channel]) -> FoundImages {
        let mut images = FoundImages::default();
        let mut numbers: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (stem, name) in self.stems().zip(&self.names) {
            match split_channel(stem) {
                Some((id, channel)) => {
                    numbers.entry(id).or_default().insert(channel);
                }
                None => {
                    let (path, file_ending) = (self.path.join(name), self.file_ending.clone());
                    images.refuse(stem, DatasetError::MixedNames { path, file_ending });
                }
            }
        }
        for (id, numbers) in numbers {
            // A picture holds its colours together.
            let in_one =
                channels.len() > 1 && is_picture_ending(&self.file_ending) && numbers.iter().eq([&0]);
            if in_one {
                let path = self.path.join(channel_name(id, 0, &self.file_ending));
                let images_of = all_channels_of(&path, channels.len());
                let case =
                    Case { id: id.into(), images: images_of, label: None, reading: Reading::default() };
                images.cases.push(case);
                continue;
            }
            match self.expect_channels(id, &numbers, channels) {
                Ok(()) => images.cases.push(self.case_of_channel_files(id, channels.len())),
                Err(error) => images.refuse(id, error),
            }
        }
        images
    }

    /// Checks that a case has a file for each channel and no others.
    fn expect_channels(
        &self,
        id: &str,
        numbers: &BTreeSet<usize>,
        channels: &[Channel],
    ) -> Result<(), DatasetError> {
        let path = |channel| self.path.join(channel_name(id, channel, &self.file_ending));
        if let Some(&found) = numbers.iter().find(|number| **number >= channels.len()) {
            return Err(DatasetError::ExtraChannel { path: path(found), found, channels: channels.len() });
        }
        let mut absent = channels.iter().enumerate().filter(|(number, _)| !numbers.contains(number));
        match absent.next() {
            None => Ok(()),
            Some((channel, Channel { name, .. })) => Err(DatasetError::MissingChannel {
                case: id.into(),
                channel,
                name: name.clone(),
                path: path(channel),
                others: absent.count(),
            }),
        }
    }
}
