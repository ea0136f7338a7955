//! The binary interfaces of MPI: how handles are represented, and the numbers of constants.

use std::ffi::c_int;
use std::path::Path;

/// A binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    /// The interface of MPI 5.0 (chapter 20): handles are pointers, and constants have fixed values.
    Standard,
    /// The interface that MPICH, Intel MPI and Cray MPICH share: handles are numbers.
    Mpich,
    /// Open MPI's from version 3: handles are addresses of variables of the library.
    OpenMpi,
}

/// Numbers of an interface.
pub(super) struct Constants {
    /// The level of threads at which only the initialising thread calls MPI.
    pub(super) funneled: c_int,
    /// The kind of communicator of ranks that share memory.
    pub(super) shared: c_int,
}

impl Interface {
    /// The interface of a library by the name of its file.
    pub(super) fn from_file(path: &Path) -> Option<Interface> {
        let name = path.file_name()?.to_str()?;
        let has = |stem: &str| name == stem || name.starts_with(&format!("{stem}."));
        match () {
            () if has("libmpi_abi.so") => Some(Interface::Standard),
            () if has("libmpi.so.12") || has("libmpich.so.12") => Some(Interface::Mpich),
            () if has("libmpi.so.40") => Some(Interface::OpenMpi),
            () => None,
        }
    }

    pub(super) fn constants(self) -> Constants {
        match self {
            Interface::Standard => Constants { funneled: 1024, shared: 221 },
            Interface::Mpich => Constants { funneled: 1, shared: 1 },
            Interface::OpenMpi => Constants { funneled: 1, shared: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_library_says_its_interface() {
        let of = |name: &str| Interface::from_file(Path::new(name));
        assert_eq!(of("/venv/lib/libmpi_abi.so.1"), Some(Interface::Standard));
        assert_eq!(of("libmpi_abi.so"), Some(Interface::Standard));
        assert_eq!(of("/opt/intel/libmpi.so.12.0.0"), Some(Interface::Mpich));
        assert_eq!(of("/usr/lib/x86_64-linux-gnu/libmpich.so.12"), Some(Interface::Mpich));
        assert_eq!(of("libmpi.so.40.30.4"), Some(Interface::OpenMpi));
        // Without a version it may be of any.
        assert_eq!(of("libmpi.so"), None);
        assert_eq!(of("libmpi.so.120"), None);
    }
}
