//! The files and folders that an import has written so far, so that they can be removed.

use std::io;
use std::path::Path;

use super::Listed;

/// Files and folders that were made, in the order of a list of files. Of folders only the numbers are kept: those that are made for a file
/// are the last ones on the way to it.
pub(super) struct Written<'a> {
    to: &'a Path,
    listed: &'a [Listed],
    /// The number of folders that were created for the target folder.
    for_target: usize,
    /// The folders and files that were made, up to the file that is being written.
    for_files: Vec<CreatedPaths>,
}

/// The folders and the file that were made for a file.
#[derive(Clone, Copy, Default)]
struct CreatedPaths {
    /// Folders on the way to it.
    folders: u16,
    /// `true` if the file itself was written.
    file: bool,
}

impl<'a> Written<'a> {
    /// Nothing yet of files that are to be below a folder.
    pub(super) fn new(to: &'a Path, listed: &'a [Listed]) -> Written<'a> {
        Written { to, listed, for_target: 0, for_files: Vec::new() }
    }

    /// Makes the folder that all files are in, where it is not there.
    pub(super) fn make_target(&mut self) -> io::Result<()> {
        self.for_target = missing(self.to)?;
        plimsoll_disk::create_dir_all(self.to)
    }

    /// Makes the folder of the next file, where it is not there.
    pub(super) fn make_folder(&mut self, folder: &Path) -> io::Result<()> {
        // The operating system's paths have far fewer folders.
        let folders = u16::try_from(missing(folder)?).map_err(|_| io::ErrorKind::InvalidFilename)?;
        self.for_files.push(CreatedPaths { folders, file: false });
        plimsoll_disk::create_dir_all(folder)
    }

    /// The file whose folder was made last is written.
    pub(super) fn file(&mut self) {
        if let Some(made) = self.for_files.last_mut() {
            made.file = true;
        }
    }

    /// The next file exists already, and stays.
    pub(super) fn keep(&mut self) {
        self.for_files.push(CreatedPaths::default());
    }

    /// Takes away files and folders that were made, the last ones first. Folders that others have put something into stay.
    pub(super) fn take_away(&self) {
        for (place, made) in self.for_files.iter().enumerate().rev() {
            let Some(file) = self.listed.get(place) else { continue };
            let path = self.to.join(&file.name);
            // The error that led here is the one that counts, so that none of these does.
            if made.file {
                let _ = plimsoll_disk::remove_file(&path);
            }
            for folder in path.ancestors().skip(1).take(usize::from(made.folders)) {
                let _ = plimsoll_disk::remove_folder(folder);
            }
        }
        for folder in self.to.ancestors().take(self.for_target) {
            let _ = plimsoll_disk::remove_folder(folder);
        }
    }
}

/// Returns `true` if a path is taken, even by a link without a target.
pub(super) fn is_there(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The number of missing folders at the end of a path. The empty path is the current folder.
fn missing(folder: &Path) -> io::Result<usize> {
    let mut missing = 0;
    for folder in folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty()) {
        if is_there(folder)? {
            break;
        }
        missing += 1;
    }
    Ok(missing)
}
