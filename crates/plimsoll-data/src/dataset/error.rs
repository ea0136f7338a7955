//! Errors of a data set that are found before any image is read.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::Substitute;
use plimsoll_memory::OverBudget;
use plimsoll_volume::VolumeError;

use crate::dataset::label_entries::{LabelFault, ORDER};

/// Why a folder is not a data set. Each error names the file or the folder.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// There is no such folder.
    #[error("{path} {}", if *exists { "is not a folder" } else { "does not exist" })]
    NotAFolder {
        /// The path that was given.
        path: PathBuf,
        /// `true` if the path leads to something else, such as a file.
        exists: bool,
    },
    /// The folder has no description.
    #[error("{folder} has no dataset.json")]
    NoDatasetJson {
        /// The folder.
        folder: PathBuf,
    },
    /// No layout is found.
    #[error("{} has neither a dataset.json nor files in a known layout: it holds {seen}", .place.display())]
    NoLayout {
        /// The folder or the file.
        place: PathBuf,
        /// A description of the folder's contents.
        seen: String,
    },
    /// The files of a layout cannot be told apart, or a setting is not of it.
    #[error("{}: {problem}", .path.display())]
    Layout {
        /// The folder or the file.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// A remedy.
        hint: String,
    },
    /// An image has no label map.
    #[error("case {case} has no label map in {}{}", .folder.display(), more(*.others))]
    NoPartner {
        /// The case.
        case: String,
        /// The folder that was searched.
        folder: PathBuf,
        /// The number of other cases without one.
        others: usize,
    },
    /// There is no prediction to compare.
    #[error("{} has no prediction for any reference in {}", predictions.display(), references.display())]
    NoPredictions {
        /// The folder of predictions.
        predictions: PathBuf,
        /// The folder of references.
        references: PathBuf,
    },
    /// References have no prediction.
    #[error("{} of the references in {} have no prediction in {}: {}", missing.len(), references.display(),
        predictions.display(), missing.join(", "))]
    MissingPredictions {
        /// The folder of predictions.
        predictions: PathBuf,
        /// The folder of references.
        references: PathBuf,
        /// Names of the references.
        missing: Vec<String>,
    },
    /// The values of label maps are not the numbers of classes, and no description names them.
    #[error("{}: its label maps have the values {values}, but the classes of these values are unknown", .folder.display())]
    Values {
        /// The data set.
        folder: PathBuf,
        /// The values.
        values: String,
        /// The line that would say it.
        proposal: String,
    },
    /// Segments of a label map overlap, and nothing says that they are regions.
    #[error("{}: its segments {} overlap, but classes must not", .path.display(), .names.join(" and "))]
    SegmentsOverlap {
        /// The label map.
        path: PathBuf,
        /// The names of segments that share a voxel.
        names: Vec<String>,
    },
    /// Some label maps name their classes, with different values, and others do not.
    #[error("{}: some label maps name a class {name:?}, others have the value {value} without a name", .folder.display())]
    SegmentValues {
        /// The data set.
        folder: PathBuf,
        /// A name.
        name: String,
        /// A value without one.
        value: u8,
        /// All names with values, as the settings may state them.
        proposal: String,
    },
    /// The operating system reported an error.
    #[error("cannot {action} {path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The budget has no room for the names of its files, or for its description.
    #[error("{path}: {source}")]
    Memory {
        /// The folder or the file.
        path: PathBuf,
        /// The holders of the budget.
        source: OverBudget,
    },
    /// The description is implausibly large.
    #[error("{path} has {found} bytes; the description of a data set may have at most {most}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The largest length that is read.
        most: u64,
    },
    /// The description is not JSON, or an entry has the wrong type.
    #[error("{path} cannot be read: {problem}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's message with the position.
        #[source]
        problem: serde_json::Error,
    },
    /// The description lacks an entry.
    #[error("{path} has no entry `{key}`")]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The entry.
        key: &'static str,
    },
    /// Channels are not numbered 0, 1, 2, …
    #[error("{path}: the channels are numbered {found}, but must be numbered from 0 without gaps")]
    ChannelNumbers {
        /// The file.
        path: PathBuf,
        /// The numbers found.
        found: String,
    },
    /// Images of this format are not supported.
    #[error("{path}: images with the ending `{found}` are not supported")]
    FileEnding {
        /// The file that specifies the ending.
        path: PathBuf,
        /// The ending.
        found: String,
    },
    /// A label is neither a number nor a name.
    #[error("{path}: the label `{key}` is {value}, which is not a whole number from 0")]
    LabelForm {
        /// The file.
        path: PathBuf,
        /// The entry's key.
        key: String,
        /// The entry's value.
        value: String,
    },
    /// An entry of the labels is invalid, where some are regions.
    #[error("{path}: `{key}` is {found}, but {expected}")]
    Region {
        /// The file that lists them.
        path: PathBuf,
        /// The entry.
        key: String,
        /// The value.
        found: String,
        /// The required value.
        expected: String,
    },
    /// An entry is missing without which regions are not known.
    #[error("{path} has no entry `{key}`, which lists the label to write for each region")]
    RegionOrder {
        /// The file that lists them.
        path: PathBuf,
        /// The entry.
        key: String,
    },
    /// No class has the value 0.
    #[error("{path}: no label has the value 0, which must be the background")]
    NoBackground {
        /// The file.
        path: PathBuf,
    },
    /// Two labels have the same value.
    #[error("{path}: the labels `{name}` and `{other}` both have the value {value}")]
    SameValue {
        /// The file that lists them.
        path: PathBuf,
        /// One.
        name: String,
        /// The other.
        other: String,
        /// The value of both.
        value: u64,
    },
    /// One label has two values.
    #[error("{path}: the label `{name}` has the values {} and {}", .values[0], .values[1])]
    SameName {
        /// The file that lists them.
        path: PathBuf,
        /// The label.
        name: String,
        /// Its values.
        values: [u64; 2],
    },
    /// A value is no byte.
    #[error("{path}: the label `{name}` has the value {found}; values of labels are from 0 to 255")]
    LabelValue {
        /// The file that lists them.
        path: PathBuf,
        /// The label.
        name: String,
        /// Its value.
        found: u64,
    },
    /// More classes than a byte can represent.
    #[error("{path} has {found} classes; at most {most} are supported")]
    TooManyClasses {
        /// The file.
        path: PathBuf,
        /// The number of classes, background included.
        found: usize,
        /// The largest supported number.
        most: usize,
    },
    /// There are no images.
    #[error("{folder} has no images with the ending `{file_ending}`")]
    NoCases {
        /// The folder that was searched.
        folder: PathBuf,
        /// The file ending of images.
        file_ending: String,
    },
    /// A file of a case is missing.
    #[error("case {case} has no file for channel {channel} ({name}): {path} is missing{}", more(*.others))]
    MissingChannel {
        /// The case.
        case: String,
        /// The number of the channel.
        channel: usize,
        /// The name of the channel.
        name: String,
        /// The missing file.
        path: PathBuf,
        /// The number of other channel files that are missing.
        others: usize,
    },
    /// A case has a file for a channel that does not exist.
    #[error("{path} is for channel {found}, but there are only {channels} channels, numbered from 0")]
    ExtraChannel {
        /// The file.
        path: PathBuf,
        /// The number in its name.
        found: usize,
        /// The number of channels.
        channels: usize,
    },
    /// A training case has no label map.
    #[error("case {case} has no label map: {path} is missing{}", more(*.others))]
    MissingLabel {
        /// The case.
        case: String,
        /// The missing file.
        path: PathBuf,
        /// The number of other label maps that are missing.
        others: usize,
    },
    /// Two cases have the same name.
    #[error("{path} lists the case {case} twice")]
    DuplicateCase {
        /// The file or folder with the list.
        path: PathBuf,
        /// The name.
        case: String,
    },
    /// A listed file does not lie in the data set's folder.
    #[error("{path} lists {listed:?}, which is outside the data set's folder")]
    Outside {
        /// The file with the list.
        path: PathBuf,
        /// The entry.
        listed: String,
    },
    /// A listed file has no name to call a case by.
    #[error("{path} lists {listed:?}, which is not the name of an image")]
    NoName {
        /// The file with the list.
        path: PathBuf,
        /// The entry.
        listed: String,
    },
    /// A file beside channel files is not named like one.
    #[error(
        "{path} is not named like a channel of a case (CASE_0000{file_ending}), but other files beside it are"
    )]
    MixedNames {
        /// The file.
        path: PathBuf,
        /// The file ending of images.
        file_ending: String,
    },
    /// An image that should hold all channels has a different number of them.
    #[error("{path} has {found} channels, but {expected} are needed")]
    ChannelCount {
        /// The file.
        path: PathBuf,
        /// Its channels.
        found: usize,
        /// The channels that are needed.
        expected: usize,
    },
    /// An image cannot be opened.
    #[error("{0}")]
    Volume(#[from] VolumeError),
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" (and {others} more)") }
}

/// The hint that describes the layouts of data sets.
const LAYOUTS: &str = "a data set is a folder with images and one with label maps (raw/ and seg/), a folder for each case, BIDS, a table \
                       with columns of paths, a list of MONAI, or has a dataset.json as nnU-Net; where names are ambiguous, set [data] in \
                       plimsoll.toml, and ‹job inspect FOLDER +write› then writes the dataset.json";

/// The hint that describes regions.
const REGIONS: &str = "regions are written like \"labels\": {\"background\": 0, \"organ\": [1, 2], \"tumour\": 2}, \
                       \"regions_class_order\": [1, 2] in dataset.json, or [regions] with organ = [1, 2], tumour = 2, \
                       order = [\"organ\", \"tumour\"] in plimsoll.toml";

impl DatasetError {
    /// The error for a data set that is not a folder, or does not exist.
    pub fn not_a_folder(path: &Path) -> DatasetError {
        DatasetError::NotAFolder { path: path.into(), exists: path.exists() }
    }

    /// The error for an invalid entry of labels.
    pub(crate) fn from_label(path: &Path, fault: LabelFault) -> DatasetError {
        let path = path.to_path_buf();
        match fault {
            LabelFault::Missing { key } if key != ORDER => {
                DatasetError::MissingKey { path, key: "labels.background" }
            }
            LabelFault::Missing { key } => DatasetError::RegionOrder { path, key },
            LabelFault::Value { key, found, expected } => DatasetError::Region { path, key, found, expected },
        }
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            DatasetError::NotAFolder { .. } => "check the path".into(),
            DatasetError::NoPredictions { .. } => {
                "a prediction and its reference have the same file name, as `case_001.nii.gz`, but for words like `_seg` at its ends".into()
            }
            DatasetError::MissingPredictions { .. } => {
                "predict these cases too, or score only the predicted ones with ‹partial›".into()
            }
            DatasetError::NoDatasetJson { .. } => {
                LAYOUTS.into()
            }
            DatasetError::Values { proposal, .. } => format!(
                "‹job inspect FOLDER +write› writes a dataset.json whose names you can correct; or set in plimsoll.toml: labels = {{ {proposal} }}"
            ),
            DatasetError::SegmentsOverlap { names, .. } => format!(
                "set their values in plimsoll.toml: [regions] with {:?} = [1, 2], {:?} = 2 and order = [{:?}, {:?}], if the second is a \
                 part of the first; or take the voxels from one of them",
                names.first().map_or("organ", String::as_str),
                names.get(1).map_or("tumour", String::as_str),
                names.first().map_or("organ", String::as_str),
                names.get(1).map_or("tumour", String::as_str),
            ),
            DatasetError::SegmentValues { proposal, .. } => format!(
                "set the value of each name for files without names in plimsoll.toml, like labels = {{ {proposal} }}"
            ),
            DatasetError::NoLayout { .. } => LAYOUTS.into(),
            DatasetError::Layout { hint, .. } => hint.clone(),
            DatasetError::NoPartner { folder, .. } => {
                let folder = folder.file_name().unwrap_or_default().to_string_lossy();
                format!(
                    "add the label map, or move the image elsewhere; if names match in another way, set the pattern in plimsoll.toml: under \
                     [data], labels = \"{folder}/*_seg.nii.gz\", where * is the name of the case"
                )
            }
            DatasetError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path".into()
            }
            DatasetError::Json { .. } => "correct the file at that line".into(),
            DatasetError::MissingKey { .. } => {
                "nnU-Net's raw format has `channel_names`, `labels` and `file_ending`; the Decathlon's has \
                 `modality`, `labels` and `training`"
                    .into()
            }
            DatasetError::ChannelNumbers { .. } => {
                "write them like {\"0\": \"T1\", \"1\": \"T2\"}".into()
            }
            DatasetError::FileEnding { .. } => {
                "convert volumes to NIfTI, NRRD or MetaImage, plain images to PNG or TIFF, and set `file_ending` to .nii.gz, .nrrd, .mha, \
                 .png or .tif"
                    .into()
            }
            DatasetError::LabelForm { .. } => {
                "write the labels like {\"background\": 0, \"vessel\": 1}".into()
            }
            DatasetError::Region { .. } => REGIONS.into(),
            DatasetError::RegionOrder { .. } => REGIONS.into(),
            DatasetError::NoBackground { .. } => "add \"background\": 0 to `labels`".into(),
            DatasetError::SameValue { .. } | DatasetError::SameName { .. } => {
                "give every class its own name and value".into()
            }
            DatasetError::LabelValue { found, .. } => {
                format!(
                    "renumber {found} as a number from 1 to 255 that no other label has, in the description and in the label maps (with NumPy: \
                     labels[labels == {found}] = …, saved as 8 bits); a .seg.nrrd of 3D Slicer is read by the names of its segments, whatever \
                     their values"
                )
            }
            DatasetError::TooManyClasses { .. } => "merge classes, or split the task".into(),
            DatasetError::NoCases { .. } => {
                "check the folder and the file ending; channels are named CASE_0000.nii.gz, CASE_0001.nii.gz, …".into()
            }
            DatasetError::MissingChannel { .. } => {
                "add the file, or remove the case's other files to leave it out".into()
            }
            DatasetError::ExtraChannel { .. } => {
                "add the channel to dataset.json, or remove the file".into()
            }
            DatasetError::MissingLabel { .. } => {
                "add the label map, or remove the case's images to leave it out".into()
            }
            DatasetError::DuplicateCase { .. } => "leave one of the two out".into(),
            DatasetError::Outside { .. } => {
                "list files relative to the folder of the list, without `..`; to read files from elsewhere, give ‹allow_outside›, or put links \
                 to them into the folder"
                    .into()
            }
            DatasetError::NoName { .. } => "list files like \"./imagesTr/CASE.nii.gz\"".into(),
            DatasetError::MixedNames { .. } => {
                "rename it with the number of its channel, or move it elsewhere".into()
            }
            DatasetError::ChannelCount { .. } => {
                "put each channel into its own file, CASE_0000.nii.gz, CASE_0001.nii.gz, …, or all into one 4D image in the order of training"
                    .into()
            }
            DatasetError::Volume(problem) => return problem.remedy(),
            DatasetError::Io { source, .. } => return Substitute::find(source).map(|found| found.remedy().into()),
            DatasetError::Memory { source, .. } => {
                format!("{}, or divide the folder into smaller ones", source.remedy())
            }
            DatasetError::TooLarge { .. } => return None,
        })
    }
}
