//! Systems without an MPI library of a known interface: Windows, where `msmpi.dll` has an interface of its own.

use std::path::PathBuf;

use crate::communicator::Communicator;
use crate::error::RanksError;
use crate::launch::Launch;
use crate::mpi_options::MpiOptions;

/// Returns `None`: there is no library to map.
pub fn map_mpi(_: &[PathBuf]) -> Option<String> {
    None
}

/// Refuses to communicate with other processes.
///
/// # Errors
/// Always returns an error.
pub fn open_mpi(launch: &Launch, _: &MpiOptions) -> Result<Box<dyn Communicator + Send>, RanksError> {
    Err(RanksError::NoMpiHere { launcher: launch.launcher })
}
