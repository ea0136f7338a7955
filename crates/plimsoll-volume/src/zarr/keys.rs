//! The names of files of chunks.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// How the numbers of a chunk along the axes become the path of its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Keys {
    /// Whether `c` stands before the numbers.
    pub(super) has_prefix: bool,
    /// Between them.
    pub(super) separator: Separator,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Separator {
    Dot,
    /// Each number is a folder.
    Slash,
}

impl Separator {
    /// # Errors
    /// In words, if it is neither.
    pub(super) fn of(text: &str) -> Result<Separator, String> {
        match text {
            "." => Ok(Separator::Dot),
            "/" => Ok(Separator::Slash),
            other => Err(format!("the numbers of its chunks are separated by {other:?}")),
        }
    }
}

impl Keys {
    /// The file of a chunk.
    pub(super) fn path(&self, folder: &Path, numbers: &[usize]) -> PathBuf {
        let separator = match self.separator {
            Separator::Dot => '.',
            Separator::Slash => '/',
        };
        let mut key = String::from(if self.has_prefix { "c" } else { "" });
        for number in numbers {
            if !key.is_empty() {
                key.push(separator);
            }
            // Writing to memory does not fail.
            let _ = write!(key, "{number}");
        }
        folder.join(key)
    }
}
