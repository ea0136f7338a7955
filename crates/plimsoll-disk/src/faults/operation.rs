//! Changes of files, and the contents of a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A change that was made. Paths are relative to the folder that was watched; a file is known by the path by which it was
/// opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An empty file was made.
    Create(PathBuf),
    /// Bytes were written.
    Write {
        /// The file.
        path: PathBuf,
        /// The offset of the first of them.
        offset: u64,
        /// The bytes written.
        bytes: Vec<u8>,
    },
    /// A file was cut off or extended with zeros.
    SetLength {
        /// The file.
        path: PathBuf,
        /// Its length since.
        length: u64,
    },
    /// The disk has the contents of a file.
    Sync(PathBuf),
    /// The disk has the names in a folder.
    SyncFolder(PathBuf),
    /// A file got another name.
    Rename {
        /// The name that it had.
        from: PathBuf,
        /// The name that it has, which another file may have had.
        to: PathBuf,
    },
    /// A file lost its name.
    Remove(PathBuf),
}

/// The files of a folder and of folders in it, with their contents. Paths are relative to it.
pub type State = BTreeMap<PathBuf, Vec<u8>>;

/// Reads the contents of a folder.
///
/// # Errors
/// If a file cannot be read.
pub fn state_of(folder: &Path) -> io::Result<State> {
    let (mut state, mut folders) = (State::new(), vec![PathBuf::new()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => drop(state.insert(path, fs::read(entry.path())?)),
            }
        }
    }
    Ok(state)
}

/// Writes the files of a state into a folder, which should be empty.
///
/// # Errors
/// If a file cannot be written.
pub fn lay_out(state: &State, folder: &Path) -> io::Result<()> {
    for (path, contents) in state {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, contents)?;
    }
    Ok(())
}
