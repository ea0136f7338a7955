//! Folders that inputs are written into.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The folder of a file system in memory, on systems that have one.
const IN_MEMORY: &str = "/dev/shm";

/// A folder that is gone when it is dropped.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// An empty folder.
    pub(crate) fn new() -> Folder {
        let mut named = tempfile::Builder::new();
        let named = named.prefix("plimsoll-corpus-");
        let made = if Path::new(IN_MEMORY).is_dir() { named.tempdir_in(IN_MEMORY) } else { named.tempdir() };
        Folder(made.unwrap_or_else(|error| broken(Path::new(IN_MEMORY), &error)))
    }

    /// A folder with one file.
    pub(crate) fn with(name: &str, bytes: &[u8]) -> Folder {
        let folder = Folder::new();
        folder.write(name, bytes);
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and the folders that it is in.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        let folder = path.parent().unwrap_or(self.path());
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, bytes));
        written.unwrap_or_else(|error| broken(&path, &error));
        path
    }
}

/// Without a place for inputs nothing can be tried, which is a fault of the machine.
#[allow(clippy::panic, reason = "this crate is for tests alone")]
fn broken(path: &Path, error: &std::io::Error) -> ! {
    panic!("{}: {error}", path.display())
}
