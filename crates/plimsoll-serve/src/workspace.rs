//! Folders of requests, which are removed with them.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use tempfile::TempDir;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ServeError;

/// The beginning of the name of a service's folder.
const PREFIX: &str = "plimsoll-serve-";
/// The file that a service holds locked while it runs.
const LOCK: &str = "lock";

/// The folder of a service, with a folder for each request. It is removed when the service ends; what a killed service has left is removed by the
/// next one.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder in `parent` that only this user can read, and removes folders of killed services.
    pub(crate) fn open(parent: &Path) -> Result<Scratch, ServeError> {
        let file = |source| ServeError::File { path: parent.into(), source };
        plimsoll_disk::create_dir_all(parent).map_err(file)?;
        sweep(parent).map_err(file)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(file)?;
        // Locked before it has its name, so that no other service takes this one for a killed one.
        let unnamed = folder.path().join("unlocked");
        let lock = File::create_new(&unnamed).map_err(file)?;
        lock.try_lock().map_err(file)?;
        plimsoll_disk::rename(&unnamed, folder.path().join(LOCK)).map_err(file)?;
        Ok(Scratch { folder, _lock: lock })
    }

    /// Makes the folder of a request that has a place in the queue.
    pub(crate) fn workspace(&self, place: OwnedSemaphorePermit) -> io::Result<Workspace> {
        let folder = tempfile::Builder::new().prefix("request-").tempdir_in(self.folder.path())?;
        Ok(Workspace { folder, _place: place })
    }
}

/// Removes folders of services that do not run any more.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in plimsoll_disk::entries(parent)? {
        let entry = entry?;
        let is_named = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if !is_named || entry.is_symlink() {
            continue;
        }
        // Another user's folder cannot be opened, and stays.
        let is_left = File::append(entry.join(LOCK)).and_then(|lock| lock.try_lock()).unwrap_or(false);
        if is_left {
            std::fs::remove_dir_all(&entry)?;
        }
    }
    Ok(())
}

/// The folder of a request, and its place in the queue. Both are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Workspace {
    folder: TempDir,
    _place: OwnedSemaphorePermit,
}

impl Workspace {
    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    #[test]
    fn what_a_killed_service_left_is_removed_and_a_running_one_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let running = Scratch::open(parent.path()).unwrap();
        let left = parent.path().join("plimsoll-serve-killed");
        std::fs::create_dir_all(left.join("request-1")).unwrap();
        std::fs::write(left.join("request-1/upload"), b"voxels").unwrap();
        std::fs::write(left.join(LOCK), b"").unwrap();
        let other = parent.path().join("another-folder");
        std::fs::create_dir(&other).unwrap();
        let next = Scratch::open(parent.path()).unwrap();
        assert!(!left.exists() && running.folder.path().exists() && other.exists());
        let path = next.folder.path().to_path_buf();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn the_folder_and_the_place_of_a_request_are_given_back_together() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(parent.path()).unwrap();
        let places = Arc::new(Semaphore::new(1));
        let workspace = scratch.workspace(Arc::clone(&places).try_acquire_owned().unwrap()).unwrap();
        std::fs::write(workspace.file("upload"), b"voxels").unwrap();
        let path = workspace.path().to_path_buf();
        assert_eq!(places.available_permits(), 0);
        drop(workspace);
        assert!(!path.exists() && places.available_permits() == 1);
    }
}
