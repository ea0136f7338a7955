//! Values as JSON files.

use std::path::Path;

use plimsoll_disk::atomic;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::RunError;

/// Writes a value as JSON, whole or not at all.
///
/// # Errors
/// Returns an error if the disk refuses.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RunError> {
    let written = atomic::write(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    });
    written.map_err(|source| RunError::io(path, source))
}

/// A value as it is read from what is written of it, to be compared and shown: 0.001 of 32 bits is 0.001 there, where
/// `serde_json::to_value` makes 0.0010000000474974513 of it, the same number in 64 bits.
///
/// # Errors
/// Returns an error if it cannot be written as JSON.
pub fn as_written(value: &impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

/// Reads a value from JSON of at most `most` bytes.
///
/// # Errors
/// Returns an error if it is not there, longer, or not such a value.
pub fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T, RunError> {
    let text = plimsoll_disk::read(path, most)
        .map(plimsoll_disk::without_mark)
        .map_err(|source| RunError::io(path, source))?;
    serde_json::from_slice(&text)
        .map_err(|problem| RunError::Json { path: path.into(), why: problem.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_32_bits_are_shown_with_as_many_digits_as_they_have() {
        let shown = |number: f32| as_written(&number).unwrap().to_string();
        assert_eq!(
            (shown(0.001), shown(1e-5), shown(0.99)),
            ("0.001".into(), "0.00001".into(), "0.99".into())
        );
        assert_eq!(as_written(&f32::INFINITY).unwrap(), Value::Null);
    }
}
