//! OME-Zarr: images as folders of chunks, of Zarr's versions 2 and 3.
//!
//! Formats: <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html>, <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html>,
//! <https://ngff.openmicroscopy.org/0.5/>. Of a pyramid the image of full size is read, with its axes, units and scales; of an array alone
//! the axes are (depth, height, width), with channels before them if there are four, and the spacing is in JSON beside it. A region costs the
//! chunks that it meets, of which one is held at a time. Chunks that are not there have the array's fill value.

mod array;
mod blosc;
mod bytes;
mod codecs;
mod image;
mod keys;
mod lz;
mod source;
mod v2;
mod v3;

use std::io;
use std::path::{Component, Path};

use serde_json::Value;

use crate::VolumeError;
use crate::format::{Beginning, Opened};
use crate::picture::Content;
use array::Array;
use image::Placed;
use source::Chunks;

/// The files of which at least one is in a folder of Zarr.
const METADATA: [&str; 4] = ["zarr.json", ".zattrs", ".zgroup", ".zarray"];

/// The longest of these that is read.
const LONGEST: u64 = 256 << 10;

const HINT: &str = "write it again with ome-zarr or zarr as numbers in C's order, compressed by zstd, gzip or Blosc, with axes (c, z, y, x)";

/// Whether a folder is one of Zarr.
pub(crate) fn is_told_by(beginning: &Beginning) -> bool {
    beginning.is_folder() && METADATA.iter().any(|name| beginning.path().join(name).is_file())
}

/// Opens an image, or an array.
///
/// # Errors
/// If its metadata cannot be read or used; the error names the entry.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let refused = |why: String| VolumeError::Text { path: path.into(), format: "OME-Zarr", why, hint: HINT };
    let mut folder = path.to_path_buf();
    let mut attributes = attributes(&folder)?;
    let mut is_array = Array::is_in(&folder)?;
    // What bioformats2raw writes has images in numbered folders.
    if !is_array && image::multiscales(&attributes).is_none() && folder.join("0").is_dir() {
        if folder.join("1").is_dir() {
            return Err(refused("it has several images, 0 and 1: name the folder of one of them".into()));
        }
        folder.push("0");
        attributes = self::attributes(&folder)?;
        is_array = Array::is_in(&folder)?;
    }
    let (array, placed) = if is_array {
        let array = Array::read(&folder)?;
        let spacing = crate::spacing::read(path, content)?;
        let placed = Placed::alone(&array.shape, spacing).map_err(refused)?;
        (array, placed)
    } else {
        let found = image::multiscales(&attributes);
        let multiscales = found.ok_or_else(|| refused("it says neither an array nor multiscales".into()))?;
        let within = image::path_of_largest(multiscales).map_err(refused)?;
        let is_inside = Path::new(within)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            return Err(refused(format!("its array is in {within:?}, which is not in its folder")));
        }
        folder.push(within);
        let array = Array::read(&folder)?;
        let placed = Placed::of(multiscales, &array.shape).map_err(refused)?;
        (array, placed)
    };
    let layout = placed.layout(&array).map_err(refused)?;
    let source = Box::new(Chunks::new(folder, array, placed));
    Ok(Opened { path: path.into(), layout, header: None, source })
}

/// What is said of a group or an array beside its own metadata; nothing where there is nothing.
fn attributes(folder: &Path) -> Result<Value, VolumeError> {
    if let Some(mut said) = json(&folder.join("zarr.json"))? {
        return Ok(said.get_mut("attributes").map(Value::take).unwrap_or(Value::Null));
    }
    Ok(json(&folder.join(".zattrs"))?.unwrap_or(Value::Null))
}

/// A file of JSON; none if it is not there.
fn json(path: &Path) -> Result<Option<Value>, VolumeError> {
    let bytes = match plimsoll_disk::read(path, LONGEST) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(VolumeError::Io { path: path.into(), action: "read", source }),
    };
    let said = serde_json::from_slice(&bytes);
    said.map(Some).map_err(|problem| VolumeError::Text {
        path: path.into(),
        format: "metadata of Zarr",
        why: problem.to_string(),
        hint: HINT,
    })
}
