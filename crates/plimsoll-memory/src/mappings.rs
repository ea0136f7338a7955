//! The files in this process's address space: its code and its libraries, and files of data.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{Bytes, process};

/// The files that are mapped into this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFiles {
    /// Mapped, resident or not.
    pub mapped: Bytes,
    /// Resident now.
    pub resident: Bytes,
}

/// Reads which files with code are mapped: the program and its libraries with their constants.
///
/// # Errors
/// If the system does not report them.
pub fn mapped_files() -> io::Result<MappedFiles> {
    process::mapped_files()
}

/// Reads which files without code are mapped, like the array of a `numpy.memmap`. The system takes their pages back when it needs memory.
///
/// # Errors
/// If the system does not report them: today all but Linux.
pub fn mapped_data() -> io::Result<MappedFiles> {
    process::mapped_data()
}

/// Returns `true` if a file is mapped whose name begins with `name`; `false` on systems that do not tell: today all but Linux.
pub(crate) fn maps_file(name: &str) -> bool {
    process::mapped_names().is_ok_and(|names| names.iter().any(|found| found.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "/proc describes the interpreter")]
    fn this_program_is_mapped_and_some_of_it_resident() {
        let files = mapped_files().unwrap();
        // The kernel may reclaim pages of code at any time, but not the one that it returns to.
        assert!(files.mapped > Bytes::mib(1) && files.resident >= Bytes(4096), "{files:?}");
        assert!(files.resident <= files.mapped, "{files:?}");
        let program = std::env::current_exe().unwrap();
        let name = program.file_name().unwrap().to_str().unwrap();
        assert_eq!(maps_file(&name[..name.len() - 1]), cfg!(target_os = "linux"));
        assert!(!maps_file("no-library.so"));
    }
}
