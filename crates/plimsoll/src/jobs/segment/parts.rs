//! The folder for labels of single models until they are merged.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use plimsoll_disk::File;

use crate::error::{Error, Outcome};

/// The ending of such a folder's name.
const ENDING: &str = "parts";

/// The file whose lock shows that the process which made the folder still uses it.
const LOCK: &str = "lock";

/// The number of attempts to make a folder, and the time between two of them.
const TRIES: usize = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A folder for the files of one image, beside what will be written: on the same disk, and of no other process.
pub struct PartsFolder {
    path: PathBuf,
    /// Closed before its file is removed, which Windows requires.
    lock: Option<File>,
}

impl PartsFolder {
    /// Removes the folders of a case that processes have left which have ended. Where the file system has no locks, all folders stay.
    pub fn sweep(beside: &Path, case: &str) -> Outcome {
        let failed = |error| Error::at_path(beside, &error);
        for path in plimsoll_disk::entries(beside).map_err(failed)? {
            let path = path.map_err(failed)?;
            if is_of(&path, case) {
                remove_if_abandoned(path);
            }
        }
        Ok(())
    }

    /// Creates the folder `.CASE.PROCESS.parts`, and removes the folders of processes that have ended.
    pub fn make(beside: &Path, case: &str) -> Outcome<PartsFolder> {
        PartsFolder::sweep(beside, case)?;
        let path = beside.join(format!(".{case}.{}.{ENDING}", std::process::id()));
        let failed = |error| Error::at_path(&path, &error);
        for _ in 0..TRIES {
            if let Some(lock) = lock_new(&path).map_err(failed)? {
                return Ok(PartsFolder { path, lock: Some(lock) });
            }
            thread::sleep(BETWEEN_TRIES);
        }
        // Of a process with this number on another machine or in a container.
        let message = format!("{} is used by another process", path.display());
        Err(Error::new(message, "wait until it has ended, or write to another folder"))
    }

    /// The label map of a name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.nii.gz"))
    }

    /// The image of a name, not compressed.
    pub fn plain(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.nii"))
    }

    /// Removes the folder and its files. Files that cannot be removed stay: the labels are written, which is what matters.
    pub fn remove(mut self) {
        self.empty();
    }

    fn empty(&mut self) {
        for file in plimsoll_disk::read_dir(&self.path).into_iter().flatten() {
            if file.file_name().is_none_or(|name| name != LOCK) {
                let _ = plimsoll_disk::remove_file(file);
            }
        }
        if self.lock.take().is_some() {
            let _ = plimsoll_disk::remove_file(self.path.join(LOCK));
        }
        let _ = plimsoll_disk::remove_folder(&self.path);
    }
}

impl Drop for PartsFolder {
    fn drop(&mut self) {
        self.empty();
    }
}

/// Makes a folder with a lock; `None` if another process was faster, or just removes the folder.
fn lock_new(folder: &Path) -> io::Result<Option<File>> {
    plimsoll_disk::create_dir_all(folder)?;
    let lock = match File::create_new(folder.join(LOCK)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
            return Ok(None);
        }
        created => created?,
    };
    let is_ours = has_lock(&lock)? && lock.is_at_its_path()?;
    Ok(is_ours.then_some(lock))
}

/// Takes the lock of a file. Where the file system has no locks, nobody removes the folder of another process.
fn has_lock(lock: &File) -> io::Result<bool> {
    match lock.try_lock() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        taken => taken,
    }
}

/// Removes a folder if the process that made it has ended.
fn remove_if_abandoned(path: PathBuf) {
    match File::open_any(path.join(LOCK)) {
        Ok(lock) if lock.try_lock().is_ok_and(|is_taken| is_taken) => {
            drop(PartsFolder { path, lock: Some(lock) });
        }
        Ok(_) => {}
        // Its process ended before it had a lock, or is just making it: only an empty folder is removed.
        Err(_) => {
            let _ = plimsoll_disk::remove_folder(&path);
        }
    }
}

/// Returns `true` if a path is the folder of some process for a case.
fn is_of(path: &Path, case: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let middle =
        name.strip_prefix(&format!(".{case}.")).and_then(|name| name.strip_suffix(&format!(".{ENDING}")));
    middle.is_some_and(|process| !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [left, held, begun] =
            ["ct.7", "ct.8", "ct.9"].map(|name| folder.path().join(format!(".{name}.parts")));
        for folder in [&left, &held, &begun] {
            fs::create_dir(folder).unwrap();
        }
        for folder in [&left, &held] {
            fs::write(folder.join("291.nii.gz"), "labels").unwrap();
            fs::write(folder.join(LOCK), "").unwrap();
        }
        let lock = File::open_any(held.join(LOCK)).unwrap();
        assert!(lock.try_lock().unwrap());
        let parts = PartsFolder::make(folder.path(), "ct").unwrap();
        assert!(!left.exists() && held.exists() && !begun.exists());
        fs::write(parts.file("whole"), "labels").unwrap();
        // Its own lock holds against a sweep.
        PartsFolder::sweep(folder.path(), "ct").unwrap();
        assert!(parts.file("whole").exists());
        let own = parts.file("whole").parent().unwrap().to_path_buf();
        drop(parts);
        assert!(!own.exists());
    }
}
