//! New files in a folder, of which either all stay or none.

use std::io;
use std::path::{Path, PathBuf};

use crate::ModelError;

/// Files that are being written into a folder. They are removed unless they are kept, and so is the folder if it did not exist.
pub(crate) struct NewFiles {
    folder: PathBuf,
    is_new: bool,
    is_kept: bool,
    files: Vec<(PathBuf, u64)>,
}

impl NewFiles {
    /// Creates the folder, if it does not exist, for files of some names.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created, or what `exists` makes of the first file that exists already.
    pub(crate) fn begin(
        folder: &Path,
        names: &[String],
        exists: impl FnOnce(PathBuf) -> ModelError,
    ) -> Result<NewFiles, ModelError> {
        let paths = names.iter().map(|name| folder.join(name));
        if let Some(path) = paths.into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(exists(path));
        }
        let is_new = !folder.exists();
        plimsoll_disk::create_dir_all(folder).map_err(|source| ModelError::io(folder, source))?;
        Ok(NewFiles { folder: folder.into(), is_new, is_kept: false, files: Vec::new() })
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub(crate) fn write(&mut self, name: &str, contents: &[u8]) -> Result<(), ModelError> {
        let path = self.path(name);
        plimsoll_disk::atomic::write(&path, |output| output.write_all(contents))
            .map_err(|source| ModelError::io(&path, source))?;
        self.add(path, contents.len() as u64);
        Ok(())
    }

    /// Writes a file by a function.
    ///
    /// # Errors
    /// Returns the error of the function, or an error if the disk refuses.
    pub(crate) fn write_by(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut plimsoll_disk::atomic::AtomicFile) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let path = self.path(name);
        let failed = |source: io::Error| ModelError::io(&path, source);
        let mut file = plimsoll_disk::atomic::AtomicFile::create(&path).map_err(failed)?;
        write(&mut file)?;
        file.commit().map_err(failed)?;
        let length = plimsoll_disk::metadata(&path).map_err(failed)?.len();
        self.add(path, length);
        Ok(())
    }

    fn add(&mut self, path: PathBuf, length: u64) {
        self.files.push((path, length));
    }

    /// Keeps all files, and returns them with their lengths.
    pub(crate) fn keep(mut self) -> Vec<(PathBuf, u64)> {
        self.is_kept = true;
        std::mem::take(&mut self.files)
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The error that led here is the one to report.
        for (path, _) in &self.files {
            let _ = plimsoll_disk::remove_file(path);
        }
        if self.is_new {
            let _ = plimsoll_disk::remove_folder(&self.folder);
        }
    }
}
