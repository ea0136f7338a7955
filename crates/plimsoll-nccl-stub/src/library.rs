//! The library as a file that tests load.

use std::fs;
use std::path::PathBuf;

use libloading::os::unix::Library;
use plimsoll_ranks::{NcclLibrary, NoNccl};
use tempfile::TempDir;

use crate::exports::{ABSENT, BROKEN, REFUSED, STUCK, UNSENT, VERSION};

/// A fault of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The library has this version, like 21803.
    Version(u32),
    /// No communicator can be made.
    Refused,
    /// No other process joins a communicator.
    Absent,
    /// From this message of a communicator on, counted from 0, an error occurs in the background.
    Broken(u32),
    /// From this message of a communicator on, counted from 0, none arrives.
    Stuck(u32),
    /// No message can be sent.
    Unsent,
}

/// A copy of the library, whose faults are its own.
pub struct Stub {
    path: PathBuf,
    library: Library,
    _folder: TempDir,
}

impl Stub {
    /// A copy of the library that was built with the running test.
    pub fn new() -> Stub {
        let test = std::env::current_exe().unwrap();
        let built = test.with_file_name(libloading::library_filename("plimsoll_nccl_stub"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnccl.so.2");
        fs::copy(&built, &path).unwrap();
        // SAFETY: the library has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Stub { path, library, _folder: folder }
    }

    /// The same with a fault.
    #[must_use]
    pub fn with(self, fault: Fault) -> Stub {
        let (which, from) = match fault {
            Fault::Version(number) => (VERSION, number),
            Fault::Refused => (REFUSED, 0),
            Fault::Absent => (ABSENT, 0),
            Fault::Broken(from) => (BROKEN, from),
            Fault::Stuck(from) => (STUCK, from),
            Fault::Unsent => (UNSENT, 0),
        };
        // SAFETY: the function has this type.
        unsafe {
            let set = self.library.get::<extern "C" fn(usize, i64)>(b"stub_set_fault\0").unwrap();
            set(which, i64::from(from));
        }
        self
    }

    /// The file of the library.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Loads the library as NCCL.
    ///
    /// # Errors
    /// Returns the error of [`NcclLibrary::load`].
    pub fn load(&self) -> Result<NcclLibrary, NoNccl> {
        NcclLibrary::load(&[self.path()])
    }

    /// The number of communicators that are neither destroyed nor aborted, and those that work still uses.
    pub fn communicators(&self) -> usize {
        // SAFETY: the function has this type.
        unsafe {
            let alive = self.library.get::<extern "C" fn() -> usize>(b"stub_alive\0").unwrap();
            alive()
        }
    }
}

impl Default for Stub {
    fn default() -> Stub {
        Stub::new()
    }
}
