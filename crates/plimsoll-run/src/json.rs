//! Values as JSON files.

use std::path::Path;

use plimsoll_disk::atomic;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::RunError;

/// Writes a value as JSON, whole or not at all.
///
/// # Errors
/// If the disk refuses.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RunError> {
    let written = atomic::write(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    });
    written.map_err(|source| RunError::io(path, source))
}

/// Reads a value from JSON of at most `most` bytes.
///
/// # Errors
/// If it is not there, longer, or not such a value.
pub fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T, RunError> {
    let text = plimsoll_disk::read(path, most).map_err(|source| RunError::io(path, source))?;
    serde_json::from_slice(&text)
        .map_err(|problem| RunError::Json { path: path.into(), why: problem.to_string() })
}
