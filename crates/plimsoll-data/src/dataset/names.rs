//! Names of files: listing them, their endings, and writing them in messages.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_volume::{PICTURE_ENDINGS, image_endings, written_ending};

use crate::dataset::DatasetError;

/// The file that describes a data set of BIDS.
pub const BIDS_DESCRIPTION: &str = "dataset_description.json";

/// The most bytes of paths in a folder. Finding a data set, and images to predict, reserves them before.
const MOST_NAMES: u64 = 1 << 30;

/// Lists a folder without hidden files, sorted: some systems leave a dot file beside every file.
///
/// # Errors
/// If it cannot be read, which names it.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let failed = |source: io::Error| DatasetError::Io { path: folder.into(), action: "list", source };
    #[expect(clippy::disallowed_methods, reason = "finding a data set or its images reserved the names")]
    let mut found = plimsoll_disk::read_dir_within(folder, MOST_NAMES).map_err(failed)?;
    found.retain(|path| !file_name(path).starts_with('.'));
    found.sort();
    Ok(found)
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A relative path as it is stored: with slashes, whatever the system.
pub(crate) fn slashed(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The name of a file without the ending of images.
pub(crate) fn stem(path: &Path) -> String {
    let name = file_name(path);
    let ending = name_ending(&name).map_or(0, str::len);
    name[..name.len() - ending].to_string()
}

/// Returns `true` if this is a file ending of images, the dot included.
pub fn is_image_ending(ending: &str) -> bool {
    let ending = ending.to_ascii_lowercase();
    image_endings().any(|known| known == ending)
}

/// The ending of a file name, if it is one of images.
pub fn name_ending(name: &str) -> Option<&str> {
    let lower = name.to_ascii_lowercase();
    let endings = image_endings().filter(|ending| lower.ends_with(ending));
    // The longest: `.nii.gz` and not what is within it.
    endings.map(str::len).max().and_then(|length| name.get(name.len() - length..))
}

/// Returns `true` if this is a file ending of pictures: PNG, JPEG, TIFF, BMP.
pub fn is_picture_ending(ending: &str) -> bool {
    PICTURE_ENDINGS.contains(&&ending.to_ascii_lowercase()[..])
}

/// The file ending of label maps beside images with this ending: the same, but PNG beside JPEG, which would
/// change classes, and NIfTI beside DICOM, whose labels have another form.
pub fn label_ending(ending: &str) -> &str {
    match &ending.to_ascii_lowercase()[..] {
        ".jpg" | ".jpeg" => ".png",
        ".dcm" => ".nii.gz",
        _ => ending,
    }
}

/// The file ending of predictions for images with this ending: the same if the format can be written and keeps
/// classes, else `.nii.gz` for volumes and `.png` for pictures.
pub fn prediction_ending(ending: &str) -> &str {
    written_ending(ending)
}

/// The most names that are written out in a message.
const LISTED: usize = 12;

/// Names with commas between, the first of many.
pub(crate) fn enumerated<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let first = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
