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
use crate::beginning::Beginning;
use crate::content::Content;
use crate::source::Opened;
use array::Array;
use image::Placed;
use source::Chunks;

/// The files of which at least one is in a folder of Zarr.
const METADATA: [&str; 4] = ["zarr.json", ".zattrs", ".zgroup", ".zarray"];

/// The longest of these that is read.
const LONGEST: u64 = 256 << 10;

/// The most memory of the tree of such a file.
const MOST_OF_TREE: usize = 1 << 20;

const HINT: &str = "write it again with ome-zarr or zarr as numbers in C's order, compressed by zstd, gzip or Blosc, with axes (c, z, y, x)";

/// Returns `true` if a folder is one of Zarr.
pub(crate) fn is_told_by(beginning: &Beginning) -> bool {
    beginning.is_folder() && METADATA.iter().any(|name| beginning.path().join(name).is_file())
}

/// Opens an image, or an array.
///
/// # Errors
/// Returns an error if its metadata cannot be read or used; the error names the entry.
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
        let multiscales =
            found.ok_or_else(|| refused("it describes neither an array nor multiscales".into()))?;
        let within = image::path_of_largest(multiscales).map_err(refused)?;
        let is_inside = Path::new(within)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            return Err(refused(format!("its array is in {within:?}, which is outside its folder")));
        }
        folder.push(within);
        let array = Array::read(&folder)?;
        let placed = Placed::read(multiscales, &array.shape).map_err(refused)?;
        (array, placed)
    };
    let layout = placed.layout(&array).map_err(refused)?;
    let mut placed = placed;
    if !array.keys.is_any_in(&folder, array.shape.len()).map_err(|source| VolumeError::Io {
        path: folder.clone(),
        action: "read",
        source,
    })? {
        // A label map without any foreground may be written so; an image is not.
        if content == Content::Intensities {
            return Err(VolumeError::Text {
                path: folder,
                format: "an array of Zarr",
                why: "none of its chunks exist".into(),
                hint: "its voxels were not written, or not copied with its metadata: copy the whole folder again",
            });
        }
        placed.warnings.push(
            "none of its chunks exist: all voxels are background, as in a label map written without empty chunks"
                .into(),
        );
    }
    let source = Box::new(Chunks::new(folder, array, placed));
    Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
}

/// The attributes of a group or an array beside its own metadata; nothing if there are none.
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
    let refused =
        |why: String| VolumeError::Text { path: path.into(), format: "metadata of Zarr", why, hint: HINT };
    // Before it is there: a few hundred kilobytes of brackets would stand for a hundred times as much.
    let takes = tree_bytes(&bytes);
    if takes > MOST_OF_TREE {
        return Err(refused(format!(
            "its entries would take up to {takes} bytes in memory, more than {MOST_OF_TREE}"
        )));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|problem| refused(problem.to_string()))
}

/// The most that a tree of JSON takes in memory beside its texts: a node for each object, and a value for each entry of one or of a list.
fn tree_bytes(json: &[u8]) -> usize {
    const OBJECT: usize = 1 << 10;
    const VALUE: usize = 128;
    let (mut bytes, mut is_text, mut is_escaped) = (VALUE, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' => bytes += OBJECT,
            b'[' | b',' => bytes += VALUE,
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_metadata_is_measured_before_it_is_there() {
        // One entry, and one more for each comma and bracket that is no text.
        assert_eq!(tree_bytes(br#"{"a": [1, 2], "b\\": "{[,\"{"}"#), 128 + 1024 + 3 * 128);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".zattrs");
        std::fs::write(&path, format!("[{}0]", "[],".repeat(20_000))).unwrap();
        let error = json(&path).unwrap_err();
        assert!(error.to_string().contains("in memory"), "{error}");
    }
}
