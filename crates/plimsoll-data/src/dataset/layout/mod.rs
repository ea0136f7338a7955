//! The layout of a data set's files: the cases that they belong to, their channels and their label maps.
//!
//! A reader for each layout makes the same cases. Settings that are missing follow from names, and ambiguous names are an error that
//! lists them. No image is decoded here.

mod bids;
mod cases;
mod described;
mod location;
pub(crate) mod matching;
mod memory;
mod pairs;
pub(crate) mod table;
mod table_file;
pub(crate) mod words;

pub use bids::{BIDS_GENERATOR, bids_images, bids_label, is_predicted};
pub use memory::reserve_images;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_memory::Budget;
use plimsoll_volume::Segments;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use described::is_default_description;
pub(crate) use location::DataLocation;

use crate::Normalisation;
use crate::dataset::json::Description;
use crate::dataset::names::{file_name, slashed};
use crate::dataset::series::DICOM;
use crate::dataset::{
    Case, Channel, DataOptions, DataSettings, Dataset, DatasetError, Labels, LayoutName, LengthUnit, Ordered,
    Reading, SegmentNames, SegmentRule,
};
use crate::files_memory::FilesMemory;

/// The layout of a data set's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// nnU-Net's raw layout: `imagesTr`, `labelsTr` and `dataset.json`.
    NnUnet,
    /// A list of images and label maps, as of the Decathlon and MONAI.
    List {
        /// The list.
        file: PathBuf,
    },
    /// Folders of images and of label maps.
    Pairs {
        /// Those of images, one for each channel or one for all.
        images: Vec<String>,
        /// The folder or the pattern of label maps.
        labels: String,
    },
    /// BIDS.
    Bids {
        /// The ending of the names of label maps, among the derivatives.
        labels: String,
    },
    /// A folder for each case.
    Cases {
        /// The endings of the names of images, one for each channel.
        images: Vec<String>,
        /// The ending of the names of label maps.
        labels: String,
    },
    /// A table with columns of paths.
    Table {
        /// The table.
        file: PathBuf,
        /// The columns of images.
        images: Vec<String>,
        /// The column of label maps.
        labels: String,
    },
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::NnUnet => write!(f, "nnU-Net's raw layout"),
            Layout::List { file } => write!(f, "the list {}", file_name(file)),
            Layout::Pairs { images, labels } => {
                write!(f, "pairs of folders {} + {labels}", images.join(" + "))
            }
            Layout::Bids { labels } => write!(f, "BIDS with derivatives that end in _{labels}"),
            Layout::Cases { images, labels } => {
                write!(f, "a folder for each case with {} and {labels}", images.join(", "))
            }
            Layout::Table { file, images, labels } => {
                write!(f, "the table {}, columns {} and {labels}", file_name(file), images.join(", "))
            }
        }
    }
}

/// Cases whose files are known, of a data set whose classes need not be.
#[derive(Clone, Debug)]
pub struct FoundData {
    /// The folder.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// The layout of its files.
    pub layout: Layout,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// The unit that lengths in headers are in, whatever headers say; none where they are right.
    pub unit: Option<LengthUnit>,
    /// Its classes, if a description or a setting names them.
    pub labels: Option<Labels>,
    /// The classes of names in label maps, if a description or a setting has them.
    pub segments: Option<SegmentRule>,
    /// The fold that each training case is validated in, if a list states it for all of them.
    pub folds: BTreeMap<String, u64>,
    /// The file ending of most of its images, with the dot.
    pub file_ending: String,
    /// The cases with label maps, sorted by id.
    pub cases: Vec<Case>,
    /// The cases without, sorted by id.
    pub test_cases: Vec<Case>,
    /// Warnings about harmless irregularities.
    pub warnings: Vec<String>,
    /// The reservation for the names of its files.
    pub memory: FilesMemory,
}

impl FoundData {
    /// Finds the cases of a folder, or of a table or a list; none where nothing there looks like label maps. The memory of names,
    /// descriptions and tables is reserved before they are read; the memory that the cases keep stays reserved.
    ///
    /// # Errors
    /// If it is described but not as it should be, a folder that may say what it is cannot be read, a file of a case is missing, names cannot be told apart, or a setting is not of
    /// the layout that is there.
    pub fn find(
        place: &Path,
        options: &DataOptions,
        budget: &Budget,
    ) -> Result<Option<FoundData>, DatasetError> {
        let held = memory::reserve(place, budget)?;
        let found = FoundData::find_unreserved(place, options)?;
        Ok(found.map(|mut found| {
            let kept = memory::kept_bytes(found.cases.iter().chain(&found.test_cases));
            found.memory = FilesMemory::shrunk(held, kept);
            found
        }))
    }

    /// Finds the cases of a data list in memory: JSON in the form of MONAI, `{"training": [{"image": …, "label": …}, …]}`, with paths that are
    /// relative to a folder. Memory is reserved as in [`find`](Self::find).
    ///
    /// # Errors
    /// If the list is not in this form, a file of a case is missing or outside of the folder without permission, names cannot be told apart,
    /// or the budget has no room.
    pub fn from_list(
        text: &str,
        folder: &Path,
        options: &DataOptions,
        budget: &Budget,
    ) -> Result<FoundData, DatasetError> {
        let name = PathBuf::from("data list");
        let held = memory::reserve_list(&name, text, budget)?;
        let place = DataLocation { folder: folder.into(), file: None, options, folders: Vec::new() };
        let description = Description::parse(name, text.as_bytes())?;
        let mut found = described::read_description(&place, description)?.completed(options)?;
        let kept = memory::kept_bytes(found.cases.iter().chain(&found.test_cases));
        found.memory = FilesMemory::shrunk(held, kept);
        Ok(found)
    }

    fn find_unreserved(place: &Path, options: &DataOptions) -> Result<Option<FoundData>, DatasetError> {
        let place = DataLocation::open(place, options)?;
        let layout = options.data.layout.or_else(|| place.layout());
        if layout.is_none() {
            place.expect_readable()?;
        }
        let read = || -> Result<Option<FoundData>, DatasetError> {
            Ok(Some(match layout {
                None => return Ok(None),
                Some(LayoutName::Described) => described::read(&place)?,
                Some(LayoutName::Table) => table::read(&place)?,
                Some(LayoutName::Bids) => bids::read(&place)?,
                Some(LayoutName::Pairs) => pairs::read(&place)?,
                Some(LayoutName::Cases) => cases::read(&place)?,
            }))
        };
        let is_guessed = options.data.layout.is_none() && layout != Some(LayoutName::Described);
        let found = match read() {
            Ok(None) if is_guessed => place.series_error().map_or(Ok(None), Err)?,
            Err(DatasetError::Layout { .. }) if is_guessed && place.has_series_alone() => {
                place.series_error().map_or_else(read, Err)?
            }
            found => found?,
        };
        let Some(found) = found else {
            // A layout that is asked for by its keys is not guessed to be another kind of data.
            let is_asked = DataSettings { unit: None, segments: None, ..options.data.clone() }
                != DataSettings::default();
            let is_asked = is_asked || options.labels.is_some() || options.regions.is_some();
            return if is_asked { Err(place.unknown()) } else { Ok(None) };
        };
        Ok(Some(found.completed(options)?))
    }

    /// The same cases with what the user says of the data set, and with the names in label maps.
    fn completed(self, options: &DataOptions) -> Result<FoundData, DatasetError> {
        let mut found = self;
        found.unit = options.data.unit.or(found.unit);
        found.segments = options.data.segments.clone().or(found.segments);
        if let Some(said) = &options.labels {
            let mut said = said.clone();
            if !said.values().any(|value| *value == 0) {
                said.insert("background".into(), 0);
            }
            found.labels = Some(Labels::from_values(Path::new("[labels]"), &said)?);
        }
        if let Some(regions) = &options.regions {
            found.labels = Some(match found.labels.take() {
                Some(labels) => regions.apply_to(labels)?,
                None => regions.labels()?,
            });
        }
        let mut names = SegmentNames::default();
        for case in &mut found.cases {
            if let Some(label) = &case.label {
                case.reading.segments = names.read(label)?;
            }
        }
        Ok(found)
    }

    /// The label maps of the training cases.
    pub fn label_maps(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.cases.iter().filter_map(|case| Some((case.id.as_str(), case.label.as_deref()?)))
    }

    /// The data set with these classes.
    pub fn with_labels(self, labels: Labels) -> Dataset {
        let labels = labels.with_segments(self.segments.clone());
        let by_value = labels.file_values().map(Arc::new);
        let values = |segments: &Option<Arc<Segments>>| match segments {
            Some(segments) => labels.reference_values(Some(segments)).map(Arc::new),
            None => by_value.clone(),
        };
        let read = |case: Case| {
            let Reading { segments, .. } = case.reading;
            let reading = Reading { label_values: values(&segments), segments, unit: self.unit };
            Case { reading, ..case }
        };
        let read = |cases: Vec<Case>| -> Vec<Case> { cases.into_iter().map(read).collect() };
        let (cases, test_cases) = (read(self.cases), read(self.test_cases));
        Dataset {
            folder: self.folder,
            name: self.name,
            layout: self.layout,
            channels: self.channels,
            labels,
            folds: self.folds,
            file_ending: self.file_ending,
            cases,
            test_cases,
            warnings: self.warnings,
            memory: self.memory,
        }
    }

    /// A `dataset.json` that describes the same data set with these labels: in nnU-Net's raw format, whose `dataset` lists files.
    pub fn description(&self, labels: &Labels) -> DataDescription {
        let relative = |path: &Path| slashed(path.strip_prefix(&self.folder).unwrap_or(path));
        let files = |case: &Case| {
            let images: Vec<String> = case.image_files().map(relative).collect();
            let label = case.label.as_deref().map(relative);
            (case.id.clone(), json!({ "images": images, "label": label }))
        };
        let (labels, regions_class_order) = labels.described(true);
        let names = self.channels.iter().enumerate();
        DataDescription {
            name: self.name.clone(),
            channel_names: names
                .map(|(number, channel)| (number.to_string(), channel.name.clone()))
                .collect(),
            labels,
            regions_class_order,
            file_ending: self.file_ending.clone(),
            training_cases: self.cases.len(),
            dataset: self.cases.iter().map(files).collect(),
            unit: self.unit,
            segments: self.segments.clone(),
        }
    }
}

/// A `dataset.json` of nnU-Net's raw format that lists files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataDescription {
    name: String,
    channel_names: BTreeMap<String, String>,
    labels: Ordered<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regions_class_order: Option<Value>,
    file_ending: String,
    #[serde(rename = "numTraining")]
    training_cases: usize,
    /// Files by case.
    dataset: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<LengthUnit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<SegmentRule>,
}

/// Channels of these names, or of those that the user gives them.
pub(crate) fn channels(place: &DataLocation<'_>, found: &[String]) -> Result<Vec<Channel>, DatasetError> {
    let names = match &place.options.data.channels {
        Some(names) if names.len() != found.len() => {
            return Err(place.fault(
                format!("`data.channels` has {} names, but there are {} channels", names.len(), found.len()),
                "give each channel a name, in the order of the images",
            ));
        }
        Some(names) => names,
        None => found,
    };
    let channel =
        |name: &String| Channel { name: name.clone(), normalisation: Normalisation::for_channel(name) };
    Ok(names.iter().map(channel).collect())
}

/// The file ending of most images. Adds a warning if they do not agree.
pub(crate) fn usual_ending(cases: &[Case], warnings: &mut Vec<String>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let names: Vec<String> = cases.iter().flat_map(Case::image_files).map(file_name).collect();
    // What has no ending is a folder of slices.
    for ending in names.iter().map(|name| crate::dataset::name_ending(name).unwrap_or(DICOM)) {
        *counts.entry(ending).or_default() += 1;
    }
    let usual = counts.iter().max_by_key(|(_, count)| **count).map_or("", |(ending, _)| ending).to_string();
    if counts.len() > 1 {
        let counts: Vec<String> =
            counts.iter().map(|(ending, count)| format!("{count} in {ending}")).collect();
        warnings.push(format!(
            "images have different endings: {}; folders to predict are searched for {usual}",
            counts.join(", ")
        ));
    }
    usual
}
