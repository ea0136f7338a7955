//! The folder for labels of single models until they are merged.

use std::path::{Path, PathBuf};

use crate::error::{Error, Outcome};

/// The ending of such a folder's name.
const ENDING: &str = "parts";

/// A folder for the files of one image, beside what will be written: on the same disk, and of no other process.
pub struct PartsFolder(PathBuf);

impl PartsFolder {
    /// Removes the folders of a case that processes have left which are no longer there.
    pub fn sweep(beside: &Path, case: &str) -> Outcome {
        let failed = |error| Error::at_path(beside, &error);
        for path in plimsoll_disk::entries(beside).map_err(failed)? {
            let path = path.map_err(failed)?;
            if let Some(process) = process_of(&path, case)
                && !Path::new("/proc").join(process.to_string()).exists()
            {
                PartsFolder(path).remove();
            }
        }
        Ok(())
    }

    /// Creates the folder `.CASE.PROCESS.parts`, and removes the folders of processes that have ended.
    pub fn make(beside: &Path, case: &str) -> Outcome<PartsFolder> {
        let failed = |error| Error::at_path(beside, &error);
        PartsFolder::sweep(beside, case)?;
        let folder = beside.join(format!(".{case}.{}.{ENDING}", std::process::id()));
        plimsoll_disk::create_dir_all(&folder).map_err(failed)?;
        Ok(PartsFolder(folder))
    }

    /// The label map of a name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.nii.gz"))
    }

    /// The image of a name, not compressed.
    pub fn plain(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.nii"))
    }

    /// Removes the folder and its files. Files that cannot be removed stay: the labels are written, which is what matters.
    pub fn remove(&self) {
        for file in plimsoll_disk::read_dir(&self.0).into_iter().flatten() {
            let _ = plimsoll_disk::remove_file(file);
        }
        let _ = plimsoll_disk::remove_folder(&self.0);
    }
}

impl Drop for PartsFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The identifier of the process that created a folder for a case.
fn process_of(path: &Path, case: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let middle = name.strip_prefix(&format!(".{case}."))?.strip_suffix(&format!(".{ENDING}"))?;
    middle.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let folder = tempfile::tempdir().unwrap();
        // No process has this number: it is beyond the largest that Linux gives.
        let left = folder.path().join(".ct.4194305.parts");
        let other = folder.path().join(format!(".other.{}.parts", std::process::id()));
        for folder in [&left, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("291.nii.gz"), "labels").unwrap();
        }
        let parts = PartsFolder::make(folder.path(), "ct").unwrap();
        assert!(!left.exists() && other.exists());
        fs::write(parts.file("whole"), "labels").unwrap();
        let own = parts.file("whole").parent().unwrap().to_path_buf();
        assert!(own.exists());
        drop(parts);
        assert!(!own.exists());
    }
}
