//! The files that make up an image, by its name.

use std::path::{Path, PathBuf};

use crate::VolumeError;

/// The files of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The file that starts with the header.
    pub(crate) header: PathBuf,
    /// The file with the voxels, if the name belongs to a pair.
    pub(crate) image: Option<PathBuf>,
}

/// The kind of a file by its extension, ignoring `.gz`.
enum FileKind {
    Single,
    Header,
    Image,
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

fn kind(path: &Path) -> Option<(FileKind, PathBuf)> {
    let bare = match extension(path)?.as_str() {
        "gz" | "zst" => path.with_extension(""),
        _ => path.to_path_buf(),
    };
    match extension(&bare)?.as_str() {
        "nii" => Some((FileKind::Single, bare)),
        "hdr" => Some((FileKind::Header, bare)),
        "img" => Some((FileKind::Image, bare)),
        _ => None,
    }
}

/// Finds the files of the image `path`. Either file of a pair may be named; the other is searched for beside it, plain
/// or with `.gz`.
pub(crate) fn parts(path: &Path) -> Result<Parts, VolumeError> {
    // Of another name it begins as NIfTI does.
    let Some((kind, bare)) = kind(path) else {
        return Ok(Parts { header: path.into(), image: None });
    };
    let other = |extensions: [&str; 4]| {
        let tried = extensions.map(|extension| bare.with_extension(extension));
        match tried.iter().find(|candidate| candidate.exists()) {
            Some(found) => Ok(found.clone()),
            None => Err(VolumeError::MissingPart { path: path.into(), tried: tried.into() }),
        }
    };
    Ok(match kind {
        FileKind::Single => Parts { header: path.into(), image: None },
        FileKind::Header => {
            Parts { header: path.into(), image: Some(other(["img", "img.gz", "IMG", "IMG.GZ"])?) }
        }
        FileKind::Image => {
            Parts { header: other(["hdr", "hdr.gz", "HDR", "HDR.GZ"])?, image: Some(path.into()) }
        }
    })
}

/// The compression of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressed {
    Not,
    Gzip,
    Zstandard,
}

/// The compression of an image that is written under this name.
pub(crate) fn compressed_on_write(path: &Path) -> Result<Compressed, VolumeError> {
    match kind(path) {
        Some((FileKind::Single, bare)) if bare == path => Ok(Compressed::Not),
        Some((FileKind::Single, _)) => match extension(path).as_deref() {
            Some("zst") => Ok(Compressed::Zstandard),
            _ => Ok(Compressed::Gzip),
        },
        Some(_) => Err(VolumeError::WritesPair { path: path.into() }),
        None => Err(VolumeError::UnwrittenName { path: path.into() }),
    }
}
