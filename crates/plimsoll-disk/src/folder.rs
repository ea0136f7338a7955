//! Names: what a folder has, and changes to that.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::gate::{self, Change, Kind};
use crate::system;

/// Gives a file another name in one step, replacing an older file of that name. The name survives a power failure only
/// after [`sync_folder`], and the contents only if the file was synchronised before.
///
/// # Errors
/// If there is no such file, or the names are on different file systems.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    gate::pass(Kind::Rename, to)?;
    fs::rename(from, to)?;
    gate::done(Change::Rename { from, to });
    Ok(())
}

/// Removes a file.
///
/// # Errors
/// If there is none, or it may not be removed.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    gate::pass(Kind::Remove, path)?;
    fs::remove_file(path)?;
    gate::done(Change::Remove(path));
    Ok(())
}

/// Removes a folder that is empty.
///
/// # Errors
/// If there is none, something is in it, or it may not be removed.
pub fn remove_folder(folder: impl AsRef<Path>) -> io::Result<()> {
    let folder = folder.as_ref();
    gate::pass(Kind::Remove, folder)?;
    fs::remove_dir(folder)
}

/// Makes a folder and those that it is in, if they are not there.
///
/// # Errors
/// If one of them is a file, or may not be made.
pub fn create_dir_all(folder: impl AsRef<Path>) -> io::Result<()> {
    let folder = folder.as_ref();
    gate::pass(Kind::CreateFolder, folder)?;
    fs::create_dir_all(folder)
}

/// Waits until the disk has the names of a folder's files: files that were made, renamed or removed are only then safe
/// from a power failure. The empty path is the current folder.
///
/// # Errors
/// If there is no such folder, or the disk fails.
pub fn sync_folder(folder: impl AsRef<Path>) -> io::Result<()> {
    let folder = folder.as_ref();
    gate::pass(Kind::SyncFolder, folder)?;
    system::sync_folder(folder)?;
    gate::done(Change::SyncFolder(folder));
    Ok(())
}

/// The most bytes of paths that [`read_dir`] reads: some ten thousand files.
const USUAL: u64 = 1 << 20;

/// The paths of all files in a folder that has few, in the order of their names. A folder that a user fills is read by [`entries`], which
/// keeps nothing, or by [`read_dir_within`], after its bytes were reserved.
///
/// # Errors
/// If there is no such folder, it cannot be read, or its paths have more than 1 MiB.
pub fn read_dir(folder: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    read_dir_within(folder, USUAL)
}

/// The paths of all files in a folder, in the order of their names, if they take at most `most` bytes.
///
/// # Errors
/// If there is no such folder, it cannot be read, or its paths take more.
pub fn read_dir_within(folder: impl AsRef<Path>, most: u64) -> io::Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let (mut paths, mut found) = (Vec::new(), 0u64);
    for path in entries(folder)? {
        let path = path?;
        found = found.saturating_add(path_bytes(&path));
        if found > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, TooManyNames { most }));
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

/// The bytes that a path takes in a list of paths.
pub fn path_bytes(path: &Path) -> u64 {
    (size_of::<PathBuf>() + path.as_os_str().len()) as u64
}

/// The path that a C program passes: any bytes, or UTF-8 on Windows. `None` if it is no UTF-8 there.
pub fn path_from_bytes(bytes: &[u8]) -> Option<&Path> {
    system::path_from_bytes(bytes)
}

/// A folder has more files than its reader allows.
#[derive(Clone, Copy, Debug)]
struct TooManyNames {
    most: u64,
}

impl fmt::Display for TooManyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the paths of its files take more than {} bytes", self.most)
    }
}

impl std::error::Error for TooManyNames {}

/// The paths of all that is in a folder, one after the other as the system has them, so that a folder of many files need not be held
/// in memory at once.
///
/// # Errors
/// If there is no such folder, or it cannot be read.
pub fn entries(folder: impl AsRef<Path>) -> io::Result<impl Iterator<Item = io::Result<PathBuf>>> {
    let folder = folder.as_ref();
    gate::pass(Kind::ReadFolder, folder)?;
    Ok(fs::read_dir(folder)?.map(|entry| Ok(entry?.path())))
}

/// Bytes that the user may still write to the disk of a folder.
///
/// # Errors
/// If there is no such folder, or the operating system's error.
pub fn free_bytes(folder: impl AsRef<Path>) -> io::Result<u64> {
    system::free_bytes(folder.as_ref())
}

/// Checks that the user may create files in a folder.
///
/// # Errors
/// If there is no such folder, or the user may not.
pub fn expect_writable(folder: impl AsRef<Path>) -> io::Result<()> {
    system::expect_writable(folder.as_ref())
}

/// The metadata of the file or folder at a path.
///
/// # Errors
/// If there is none, or its folder may not be searched.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    gate::pass(Kind::Metadata, path)?;
    fs::metadata(path)
}

/// Returns `true` if a path exists.
///
/// # Errors
/// If that cannot be told.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    gate::pass(Kind::Metadata, path)?;
    fs::exists(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_more_names_than_allowed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let all = read_dir(folder.path()).unwrap();
        assert_eq!(all, ["a", "b", "c"].map(|name| folder.path().join(name)));
        let bytes: u64 = all.iter().map(|path| path_bytes(path)).sum();
        assert_eq!(read_dir_within(folder.path(), bytes).unwrap(), all);
        let error = read_dir_within(folder.path(), bytes - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
