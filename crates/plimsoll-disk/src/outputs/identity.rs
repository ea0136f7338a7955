//! The identity of a file: equal for all names that lead to it.

use std::io;
use std::path::{Path, PathBuf};

use crate::{folder, system};

/// The identity of an existing file or folder: device and number. Symbolic and hard links to a file have the identity of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(u64, u64);

impl Identity {
    /// The identity of the file or folder that a path leads to; none if there is none.
    ///
    /// # Errors
    /// If its folder may not be searched.
    pub fn read(path: &Path) -> io::Result<Option<Identity>> {
        match folder::metadata(path) {
            Ok(found) => {
                let (device, number) = system::number_of(path, &found)?;
                Ok(Some(Identity(device, number)))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns `true` if an error means that a path leads to nothing.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The path of a file that need not exist, without links and `..` in the part of it that exists.
///
/// # Errors
/// If the current folder is gone.
pub(super) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let existing = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = existing else { return Ok(absolute) };
    match absolute.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => Ok(real.join(rest)),
        _ => Ok(real),
    }
}
