//! Finding the files of cases by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::dataset::names::{file_name, is_picture_ending, list};
use crate::dataset::{Case, Channel, ChannelFile, DatasetError, Reading};

/// The images of a folder: their names, sorted.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) names: Vec<String>,
    pub(crate) file_ending: String,
}

/// `CASE_0012` as (`CASE`, 12).
pub(crate) fn split_channel(stem: &str) -> Option<(&str, usize)> {
    let (id, number) = stem.rsplit_once('_')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !id.is_empty() { Some((id, number.parse().ok()?)) } else { None }
}

pub(crate) fn channel_name(id: &str, channel: usize, file_ending: &str) -> String {
    format!("{id}_{channel:04}{file_ending}")
}

impl Folder {
    /// Lists the files that end in `file_ending`.
    pub(crate) fn read(path: &Path, file_ending: &str) -> Result<Folder, DatasetError> {
        let mut names: Vec<String> = list(path)?.iter().map(|path| file_name(path)).collect();
        names.retain(|name| name.ends_with(file_ending));
        names.sort();
        Ok(Folder { path: path.into(), names, file_ending: file_ending.into() })
    }

    /// Adds a folder of slices, whose name has no ending.
    ///
    /// # Errors
    /// If there is another image of its name.
    pub(crate) fn add_series(&mut self, folder: &Path) -> Result<(), DatasetError> {
        let name = file_name(folder);
        let other = format!("{name}{}", self.file_ending);
        if self.names.contains(&other) {
            let problem = format!("{name} and {other} are two images of one name");
            let hint = "keep one of them in the folder, or rename it".into();
            return Err(DatasetError::Layout { path: self.path.clone(), problem, hint });
        }
        let place = self.names.partition_point(|known| *known < name);
        self.names.insert(place, name);
        Ok(())
    }

    /// The names without the ending.
    pub(crate) fn stems(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| name.strip_suffix(self.file_ending.as_str()).unwrap_or(name))
    }

    /// The cases that this folder has channel files of. Files with other names are skipped with a warning.
    pub(crate) fn channel_cases(
        &self,
        channels: &[Channel],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Case>, DatasetError> {
        let mut found: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (stem, name) in self.stems().zip(&self.names) {
            match split_channel(stem) {
                Some((id, channel)) if channel < channels.len() => {
                    found.entry(id).or_default().insert(channel);
                }
                Some((_, found)) => {
                    let (path, channels) = (self.path.join(name), channels.len());
                    return Err(DatasetError::ExtraChannel { path, found, channels });
                }
                None => {
                    let path = self.path.join(name);
                    warnings.push(format!(
                        "{} is left out: it is not named like a channel of a case, CASE_0000{}",
                        path.display(),
                        self.file_ending
                    ));
                }
            }
        }
        // Pictures hold their colours together.
        let in_one = is_picture_ending(&self.file_ending)
            && channels.len() > 1
            && found.values().all(|numbers| numbers.iter().eq([&0]));
        if in_one {
            let case = |id: &&str| Case {
                id: id.to_string(),
                images: all_channels_of(
                    &self.path.join(channel_name(id, 0, &self.file_ending)),
                    channels.len(),
                ),
                label: None,
                reading: Reading::default(),
            };
            return Ok(found.keys().map(case).collect());
        }
        let absent: Vec<(&str, usize)> = found
            .iter()
            .flat_map(|(id, there)| (0..channels.len()).filter(|c| !there.contains(c)).map(move |c| (*id, c)))
            .collect();
        if let Some(&(id, channel)) = absent.first() {
            return Err(DatasetError::MissingChannel {
                case: id.into(),
                channel,
                name: channels[channel].name.clone(),
                path: self.path.join(channel_name(id, channel, &self.file_ending)),
                others: absent.len() - 1,
            });
        }
        Ok(found.keys().map(|id| self.case_of_channel_files(id, channels.len())).collect())
    }

    pub(crate) fn case_of_channel_files(&self, id: &str, channels: usize) -> Case {
        // A folder of slices may be named without the ending.
        let file = |channel| {
            let name = channel_name(id, channel, &self.file_ending);
            match self.names.binary_search(&name).is_ok() {
                true => self.path.join(name),
                false => self.path.join(channel_name(id, channel, "")),
            }
        };
        let images = (0..channels).map(|channel| ChannelFile { path: file(channel), index: 0 }).collect();
        Case { id: id.into(), images, label: None, reading: Reading::default() }
    }

    /// Gives every case its label map, which has the case's name.
    pub(crate) fn give_labels(
        &self,
        cases: &mut [Case],
        warnings: &mut Vec<String>,
    ) -> Result<(), DatasetError> {
        let mut unused: BTreeSet<&str> = self.stems().collect();
        let mut absent = Vec::new();
        for case in cases {
            let path = self.path.join(format!("{}{}", case.id, self.file_ending));
            if unused.remove(case.id.as_str()) {
                case.label = Some(path);
            } else {
                absent.push((case.id.clone(), path));
            }
        }
        for id in unused {
            let path = self.path.join(format!("{id}{}", self.file_ending));
            warnings.push(format!("{} is left out: there is no image for it", path.display()));
        }
        let others = absent.len().saturating_sub(1);
        match absent.into_iter().next() {
            Some((case, path)) => Err(DatasetError::MissingLabel { case, path, others }),
            None => Ok(()),
        }
    }
}

pub(crate) fn all_channels_of(path: &Path, channels: usize) -> Vec<ChannelFile> {
    (0..channels).map(|index| ChannelFile { path: path.into(), index }).collect()
}
