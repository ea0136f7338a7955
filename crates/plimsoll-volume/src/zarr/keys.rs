//! The names of files of chunks.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// The rule by which the numbers of a chunk along the axes become the path of its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Keys {
    /// Tells whether `c` stands before the numbers.
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
    pub(super) fn parse(text: &str) -> Result<Separator, String> {
        match text {
            "." => Ok(Separator::Dot),
            "/" => Ok(Separator::Slash),
            other => Err(format!("the numbers of its chunks are separated by {other:?}")),
        }
    }
}

impl Keys {
    /// Returns `true` if at least one chunk of an array of `axes` axes has a file.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read.
    pub(super) fn is_any_in(&self, folder: &Path, axes: usize) -> io::Result<bool> {
        // Nearly always.
        if self.path(folder, &vec![0; axes]).is_file() {
            return Ok(true);
        }
        match (self.separator, self.has_prefix) {
            (Separator::Dot, has_prefix) => any(folder, |name| {
                let numbers = if has_prefix { name.strip_prefix("c.") } else { Some(name) };
                Ok(numbers.is_some_and(|numbers| numbers.split('.').all(is_number)))
            }),
            (Separator::Slash, true) => any_below(&folder.join("c"), axes),
            (Separator::Slash, false) => any_below(folder, axes),
        }
    }

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

/// Returns `true` if a name in a folder is accepted; `false` where the folder does not exist.
fn any(folder: &Path, is: impl Fn(&str) -> io::Result<bool>) -> io::Result<bool> {
    let entries = match plimsoll_disk::entries(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?;
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && is(name)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns `true` if there is a file whose path has this many numbers, each a folder but the last.
fn any_below(folder: &Path, numbers: usize) -> io::Result<bool> {
    any(folder, |name| match numbers {
        _ if !is_number(name) => Ok(false),
        0 | 1 => Ok(true),
        _ => any_below(&folder.join(name), numbers - 1),
    })
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_digit())
}
