//! A data set that a file describes: `dataset.json` of nnU-Net or of the Decathlon, or a list of MONAI.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_volume::VolumeFile;

use crate::dataset::files::{Folder, all_channels_of, channel_name};
use crate::dataset::json::{Description, Listed};
use crate::dataset::layout::{DataLocation, FoundData, Layout, usual_ending};
use crate::dataset::names::{file_name, name_ending, stem};
use crate::dataset::{
    Case, Channel, ChannelFile, DatasetError, Labels, LayoutName, Reading, is_case_name, label_ending,
};
use crate::files_memory::FilesMemory;

/// Names of descriptions, in the order in which they are looked for.
const NAMES: [&str; 2] = ["dataset.json", "datalist.json"];

/// The most folds that a list may have: each has a list of all cases.
const MOST_FOLDS: usize = 100;

pub(crate) fn read(place: &DataLocation<'_>) -> Result<FoundData, DatasetError> {
    place.expect_unused(LayoutName::Described, &["images", "labels", "case"])?;
    let Some(path) = place.file.clone().or_else(|| description_in(&place.folder)) else {
        return Err(DatasetError::NoDatasetJson { folder: place.folder.clone() });
    };
    read_description(place, Description::read(path)?)
}

/// The description that is read where only the folder is named.
fn description_in(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Returns `true` if a description is read where only its folder is named.
pub(crate) fn is_default_description(description: &Path, folder: &Path) -> bool {
    description_in(folder).is_some_and(|found| found == description)
}

/// The cases of a description, whose paths are relative to the folder of `place`.
pub(crate) fn read_description(
    place: &DataLocation<'_>,
    description: Description,
) -> Result<FoundData, DatasetError> {
    let read = |labels| Labels::from_json(&description.path, labels, description.region_order.as_ref());
    let labels = description.labels.as_ref().map(read).transpose()?;
    let mut warnings = Vec::new();
    let (layout, mut found) = match description.lists()? {
        Some(lists) => {
            let channels = list_channels(place, &description, &lists.training)?;
            let ending = description.file_ending.clone();
            let list = List { place, path: &description.path, channels: &channels };
            let (cases, test_cases) = (list.cases(&lists.training, true)?, list.cases(&lists.test, false)?);
            let ending = ending.unwrap_or_else(|| usual_ending(&cases, &mut warnings));
            let folds = list.folds(&lists.training, &mut warnings)?;
            let found = Found { channels, ending, cases, test_cases, folds };
            (Layout::List { file: description.path.clone() }, found)
        }
        None => (Layout::NnUnet, in_folders(place, &description, &mut warnings)?),
    };
    if found.cases.is_empty() {
        return Err(DatasetError::NoCases {
            folder: place.folder.join("imagesTr"),
            file_ending: found.ending,
        });
    }
    if let Some(names) = &place.options.data.channels {
        let own: Vec<String> = found.channels.iter().map(|channel| channel.name.clone()).collect();
        if names.len() == own.len() {
            found.channels = super::channels(place, &own)?;
        }
    }
    if let Some(said) = description.training_cases
        && said != found.cases.len() as u64
    {
        let path = description.path.display();
        warnings.push(format!("{path}: `numTraining` is {said}, but there are {} cases", found.cases.len()));
    }
    Ok(FoundData {
        folder: place.folder.clone(),
        name: description.name.clone().unwrap_or_else(|| place.name()),
        layout,
        channels: found.channels,
        unit: description.unit,
        labels,
        segments: description.segments.clone(),
        folds: found.folds,
        file_ending: found.ending,
        cases: found.cases,
        test_cases: found.test_cases,
        warnings,
        memory: FilesMemory::default(),
    })
}

struct Found {
    channels: Vec<Channel>,
    ending: String,
    cases: Vec<Case>,
    test_cases: Vec<Case>,
    folds: BTreeMap<String, u64>,
}

/// nnU-Net's raw layout: cases are found by the names of files.
fn in_folders(
    place: &DataLocation<'_>,
    description: &Description,
    warnings: &mut Vec<String>,
) -> Result<Found, DatasetError> {
    let Some(ending) = description.file_ending.clone() else {
        return Err(DatasetError::MissingKey { path: description.path.clone(), key: "file_ending" });
    };
    let missing = |key| DatasetError::MissingKey { path: description.path.clone(), key };
    let channels = description.channels()?.ok_or_else(|| missing("channel_names"))?;
    if description.labels.is_none() {
        return Err(missing("labels"));
    }
    for folder in ["imagesTr", "labelsTr"] {
        if !place.folder.join(folder).is_dir() {
            return Err(DatasetError::Layout {
                path: description.path.clone(),
                problem: format!("it lists no files, and there is no folder {folder} beside it"),
                hint: "put images into imagesTr/ and label maps into labelsTr/; or list them in it under \"dataset\" or \"training\"; or, \
                       if they are in other folders, set under [data] of plimsoll.toml: layout = \"pairs\""
                    .into(),
            });
        }
    }
    let images = Folder::read(&place.folder.join("imagesTr"), &ending)?;
    let mut cases = images.channel_cases(&channels, warnings)?;
    let labels = place.folder.join("labelsTr");
    let mut label_maps = Folder::read(&labels, label_ending(&ending))?;
    if label_maps.names.is_empty() {
        // Of a format that is refused once its files are opened, by their names.
        label_maps = Folder::read(&labels, &ending)?;
    }
    label_maps.give_labels(&mut cases, warnings)?;
    let test_folder = place.folder.join("imagesTs");
    let test_cases = match test_folder.is_dir() {
        true => Folder::read(&test_folder, &ending)?.channel_cases(&channels, warnings)?,
        false => Vec::new(),
    };
    Ok(Found { channels, ending, cases, test_cases, folds: BTreeMap::new() })
}

/// The channels of a list: as it says, or else as many as the first case has files, or its file channels.
fn list_channels(
    place: &DataLocation<'_>,
    description: &Description,
    list: &[Listed],
) -> Result<Vec<Channel>, DatasetError> {
    if let Some(channels) = description.channels()? {
        return Ok(channels);
    }
    let count = match list.first().map(|first| first.images.as_slice()) {
        Some([one]) => VolumeFile::open(place.path(&description.path, one)?)?.channels(),
        Some(several) => several.len(),
        None => 1,
    };
    let name = |number: usize| if count == 1 { "image".to_string() } else { format!("channel_{number}") };
    super::channels(place, &(0..count).map(name).collect::<Vec<_>>())
}

/// A list of cases.
struct List<'a> {
    place: &'a DataLocation<'a>,
    path: &'a Path,
    channels: &'a [Channel],
}

impl List<'_> {
    /// Its cases, sorted by id. For training every case needs a label map.
    fn cases(&self, list: &[Listed], for_training: bool) -> Result<Vec<Case>, DatasetError> {
        let ids = self.ids(list)?;
        let mut cases = BTreeMap::new();
        let mut absent: Vec<(String, usize, PathBuf)> = Vec::new();
        for (entry, id) in list.iter().zip(ids) {
            let images = self.images(&id, &entry.images)?;
            let missing = images.iter().enumerate().filter(|(_, file)| !file.path.exists());
            absent.extend(missing.map(|(channel, file)| (id.clone(), channel, file.path.clone())));
            let label = match (&entry.label, entry.images.first()) {
                (Some(label), _) => Some(self.place.path(self.path, label)?),
                (None, Some(image)) if for_training => {
                    Some(self.place.folder.join("labelsTr").join(file_name(Path::new(image))))
                }
                _ => None,
            };
            let case = Case { id: id.clone(), images, label, reading: Reading::default() };
            if cases.insert(id.clone(), case).is_some() {
                return Err(DatasetError::DuplicateCase { path: self.path.into(), case: id });
            }
        }
        if let Some((case, channel, path)) = absent.first() {
            return Err(DatasetError::MissingChannel {
                case: case.clone(),
                channel: *channel,
                name: self.channels[*channel].name.clone(),
                path: path.clone(),
                others: absent.len() - 1,
            });
        }
        let labels = cases.values().filter_map(|case| Some((case, case.label.as_ref()?)));
        let missing: Vec<(&Case, &PathBuf)> = labels.filter(|(_, label)| !label.exists()).collect();
        if let Some((case, label)) = missing.first() {
            return Err(DatasetError::MissingLabel {
                case: case.id.clone(),
                path: label.to_path_buf(),
                others: missing.len() - 1,
            });
        }
        Ok(cases.into_values().collect())
    }

    /// The files of channels: one that holds all of them, one for each, or, as in the first version of nnU-Net, an image that is not there
    /// but whose channels are.
    fn images(&self, id: &str, listed: &[String]) -> Result<Vec<ChannelFile>, DatasetError> {
        let paths: Vec<PathBuf> =
            listed.iter().map(|image| self.place.path(self.path, image)).collect::<Result<_, _>>()?;
        let count = self.channels.len();
        match &paths[..] {
            [one] => {
                let name = file_name(one);
                let ending = name_ending(&name).unwrap_or("");
                let of_channel = |channel| one.with_file_name(channel_name(&stem(one), channel, ending));
                if !one.exists() && of_channel(0).exists() {
                    return Ok((0..count)
                        .map(|channel| ChannelFile { path: of_channel(channel), index: 0 })
                        .collect());
                }
                Ok(all_channels_of(one, count))
            }
            several if several.len() == count => {
                Ok(several.iter().map(|path| ChannelFile { path: path.clone(), index: 0 }).collect())
            }
            several => Err(DatasetError::Layout {
                path: self.path.into(),
                problem: format!("case {id} lists {} images, but there are {count} channels", several.len()),
                hint: "list an image for each channel, or one that holds all of them".into(),
            }),
        }
    }

    /// The fold that each case is validated in; none where not all cases have one.
    fn folds(
        &self,
        list: &[Listed],
        warnings: &mut Vec<String>,
    ) -> Result<BTreeMap<String, u64>, DatasetError> {
        let folds: Vec<u64> = list.iter().filter_map(|entry| entry.fold).collect();
        if folds.len() < list.len() {
            if !folds.is_empty() {
                let (path, with, all) = (self.path.display(), folds.len(), list.len());
                warnings.push(format!(
                    "{path}: `fold` is not used, because only {with} of {all} entries have it; folds come from splits_final.json, or ‹splits›"
                ));
            }
            return Ok(BTreeMap::new());
        }
        let count = folds.iter().collect::<BTreeSet<_>>().len();
        if count > MOST_FOLDS {
            let path = self.path.display();
            warnings.push(format!(
                "{path}: `fold` is not used, because it has {count} values, more than {MOST_FOLDS}; folds come from splits_final.json, or \
                 ‹splits›"
            ));
            return Ok(BTreeMap::new());
        }
        Ok(self.ids(list)?.into_iter().zip(folds).collect())
    }

    /// The names of cases: from the list, or the names of their images; with the folders they are in where these are the same.
    fn ids(&self, list: &[Listed]) -> Result<Vec<String>, DatasetError> {
        let no_name = |listed: &str| DatasetError::NoName { path: self.path.into(), listed: listed.into() };
        let mut names = Vec::with_capacity(list.len());
        for entry in list {
            let first = entry.images.first().ok_or_else(|| no_name(""))?;
            let name = entry.case.clone().unwrap_or_else(|| stem(Path::new(first)));
            // Files under other names are refused where they are opened, by their names.
            if !is_case_name(&name) {
                return Err(no_name(first));
            }
            names.push(name);
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        let repeats = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        let images: Vec<&String> = list.iter().filter_map(|entry| entry.images.first()).collect();
        let mut unique = images.clone();
        unique.sort();
        unique.dedup();
        // An image that is listed twice is a mistake, and not two cases.
        if !repeats || unique.len() < images.len() || list.iter().any(|entry| entry.case.is_some()) {
            return Ok(names);
        }
        let whole = |image: &&String| {
            let path = Path::new(image.as_str());
            let folders: Vec<String> = path
                .parent()
                .into_iter()
                .flat_map(Path::components)
                .filter_map(|part| match part {
                    std::path::Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                    _ => None,
                })
                .collect();
            folders.into_iter().chain([stem(path)]).collect::<Vec<_>>().join("_")
        };
        Ok(images.iter().map(whole).collect())
    }
}
