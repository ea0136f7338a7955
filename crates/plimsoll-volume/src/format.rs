//! The formats of images: how each is recognised, and how its files are opened.
//!
//! The format of a file follows from what it begins with, not from its name; the name decides only where the beginning says nothing, so
//! that the error comes from the format which it promises. A new format is a function that opens a file as a [`VoxelSource`](crate::VoxelSource) with its
//! layout, and a line in `FORMATS`; one of a crate above this is added by [`add_format`] when a program starts.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use crate::beginning::Beginning;
use crate::content::Content;
use crate::placed::placed_on;
use crate::source::Opened;
use crate::{VolumeError, meta_image, nifti_file, npy, npz, nrrd, picture, zarr};

/// A format of images.
pub struct Format {
    /// The endings of names of its files, with the dot, in lower case.
    pub endings: &'static [&'static str],
    /// Recognises a file or folder of this format by its beginning.
    pub is_told_by: fn(&Beginning) -> bool,
    /// Opens a file or folder whose voxels are to be what the content says.
    pub open: fn(&Path, Content) -> Result<Opened, VolumeError>,
    /// The ending of label maps that are written for images of this format; `None` for the ending of the image.
    pub labels: Option<&'static str>,
}

/// Formats of crates above this one.
static ADDED: RwLock<Vec<&'static Format>> = RwLock::new(Vec::new());

/// Adds a format that a crate above this one reads, once: from then on it is one like the others. Those of this crate
/// are recognised first.
pub fn add_format(format: &'static Format) {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    if !added.iter().any(|known| std::ptr::eq(*known, format)) {
        added.push(format);
    }
}

/// All formats, this crate's first.
fn formats() -> impl DoubleEndedIterator<Item = &'static Format> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner).clone();
    FORMATS.iter().chain(added)
}

/// The formats of this crate. The first that a file's beginning tells is its format.
static FORMATS: [Format; 8] = [
    Format {
        endings: &[".nii.gz", ".nii", ".nii.zst"],
        is_told_by: |file| nifti_file::begins(file.head()),
        open: nifti_file::open,
        labels: None,
    },
    // Of a pair, what the voxels begin with tells nothing; labels are written into one file.
    Format {
        endings: &[".hdr", ".img", ".hdr.gz", ".img.gz"],
        is_told_by: |_| false,
        open: nifti_file::open,
        labels: Some(".nii.gz"),
    },
    Format {
        endings: &[".nrrd", ".nhdr"],
        is_told_by: |file| nrrd::begins(file.head()),
        open: nrrd::open,
        labels: Some(".nrrd"),
    },
    Format {
        endings: &[".mha", ".mhd"],
        is_told_by: |file| meta_image::begins(file.head()),
        open: meta_image::open,
        labels: None,
    },
    Format {
        endings: &[".npy"],
        is_told_by: |file| npy::begins(file.head()),
        open: npy::open,
        labels: Some(".nii.gz"),
    },
    Format { endings: &picture::ENDINGS, is_told_by: picture::is_told_by, open: picture::open, labels: None },
    Format {
        endings: &[".ome.zarr", ".zarr"],
        is_told_by: zarr::is_told_by,
        open: zarr::open,
        labels: Some(".nii.gz"),
    },
    // The last, since probabilities that lie beside label maps of other formats have this name as well.
    Format {
        endings: &[".npz"],
        is_told_by: |file| npz::begins(file.head()),
        open: npz::open,
        labels: Some(".nii.gz"),
    },
];

/// Opens the image of a path: a file, or a folder whose files are one image.
///
/// # Errors
/// Returns an error if its format is not supported, or it cannot be opened.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let named = by_name(path);
    let told = match Beginning::read(path) {
        Ok(beginning) => formats().find(|format| (format.is_told_by)(&beginning)),
        // The other file of a pair may be missing as well.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_some() => None,
        Err(source) => return Err(VolumeError::Io { path: path.into(), action: "open", source }),
    };
    // Half a pair is what its name says: voxels may begin with anything.
    let is_half = named.is_some_and(|format| format.endings.contains(&".img"));
    let format = if is_half { named } else { told.or(named) };
    let format =
        format.ok_or_else(|| VolumeError::UnknownName { path: path.into(), known: known_endings() })?;
    let opened = (format.open)(path, content)?;
    Ok(match content {
        Content::Segments { on: Some(grid) } if opened.segments.is_some() => placed_on(opened, &grid),
        _ => opened,
    })
}

/// The endings of images in one text, for an error.
fn known_endings() -> String {
    image_endings().collect::<Vec<_>>().join(", ")
}

/// The format whose ending a name has.
fn by_name(path: &Path) -> Option<&'static Format> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    formats().find(|format| format.endings.iter().any(|ending| name.ends_with(ending)))
}

/// The ending of the name of an image, by its format: its own, or the first of the format that the file or folder begins with; `None` for
/// something that is no image.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn image_ending(path: &Path) -> Result<Option<&'static str>, VolumeError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let named = image_endings().filter(|ending| name.ends_with(ending)).max_by_key(|ending| ending.len());
    if named.is_some() {
        return Ok(named);
    }
    let beginning = Beginning::read(path);
    let beginning =
        beginning.map_err(|source| VolumeError::Io { path: path.into(), action: "open", source })?;
    let told = formats().find(|format| (format.is_told_by)(&beginning));
    Ok(told.and_then(|format| format.endings.first().copied()))
}

/// The endings of names of images, with the dot, in lower case.
pub fn image_endings() -> impl DoubleEndedIterator<Item = &'static str> {
    formats().flat_map(|format| format.endings).copied()
}

/// The ending of label maps that are written for images whose names end in `ending`: the same if its format is written.
pub fn written_ending(ending: &str) -> &str {
    let lower = ending.to_ascii_lowercase();
    let format = formats().find(|format| format.endings.contains(&&*lower));
    match (&*lower, format.and_then(|format| format.labels)) {
        // JPEG would change classes, and BMP is not written.
        (".jpg" | ".jpeg" | ".bmp", _) => ".png",
        (_, Some(written)) => written,
        (_, None) => ending,
    }
}
