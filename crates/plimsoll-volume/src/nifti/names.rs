//! Which files an image is made of, by its name.

use std::path::{Path, PathBuf};

use crate::VolumeError;

/// The files that a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The file that starts with the header.
    pub(crate) header: PathBuf,
    /// The file with the voxels, if the name is that of a pair.
    pub(crate) image: Option<PathBuf>,
}

/// The kinds of names, without `.gz`.
enum Kind {
    Single,
    Header,
    Image,
}

fn kind(path: &Path) -> Option<(Kind, PathBuf)> {
    let extension = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
    let bare = match extension(path)?.as_str() {
        "gz" => path.with_extension(""),
        _ => path.to_path_buf(),
    };
    match extension(&bare)?.as_str() {
        "nii" => Some((Kind::Single, bare)),
        "hdr" => Some((Kind::Header, bare)),
        "img" => Some((Kind::Image, bare)),
        _ => None,
    }
}

/// Finds the files of the image `path`. Of a pair either file may be named; the other is looked for beside it, plain
/// or with `.gz`.
pub(crate) fn parts(path: &Path) -> Result<Parts, VolumeError> {
    let Some((kind, bare)) = kind(path) else {
        return Err(VolumeError::UnknownName { path: path.into() });
    };
    let other = |extensions: [&str; 4]| {
        let tried = extensions.map(|extension| bare.with_extension(extension));
        match tried.iter().find(|candidate| candidate.exists()) {
            Some(found) => Ok(found.clone()),
            None => Err(VolumeError::MissingPart { path: path.into(), tried: tried.into() }),
        }
    };
    Ok(match kind {
        Kind::Single => Parts { header: path.into(), image: None },
        Kind::Header => {
            Parts { header: path.into(), image: Some(other(["img", "img.gz", "IMG", "IMG.GZ"])?) }
        }
        Kind::Image => Parts { header: other(["hdr", "hdr.gz", "HDR", "HDR.GZ"])?, image: Some(path.into()) },
    })
}

/// Whether an image of this name is to be written compressed.
pub(crate) fn is_compressed_on_write(path: &Path) -> Result<bool, VolumeError> {
    match kind(path) {
        Some((Kind::Single, bare)) => Ok(bare != path),
        Some(_) => Err(VolumeError::WritesPair { path: path.into() }),
        None => Err(VolumeError::UnknownName { path: path.into() }),
    }
}
