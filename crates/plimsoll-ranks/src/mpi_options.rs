//! The options of communication by MPI.

use std::path::PathBuf;
use std::time::Duration;

use crate::watch::Watch;

/// The most bytes of one message by default: counts of MPI have 31 bits.
pub(crate) const LARGEST_MESSAGE: usize = 1 << 30;

/// The options of communication by MPI.
#[derive(Clone, Debug)]
pub struct MpiOptions {
    /// Libraries to try before those that the system finds by their usual names. The name of a file says which interface it has.
    pub libraries: Vec<PathBuf>,
    /// The longest time that a rank waits without progress. It must be longer than the time that any rank computes between two messages.
    pub patience: Duration,
    /// The most bytes of one message; longer segments are sent in several.
    pub largest_message: usize,
    /// The watch over ranks that compute for long between two messages; `None` for none. All ranks have one, or none has.
    pub watch: Option<Watch>,
}

impl Default for MpiOptions {
    fn default() -> MpiOptions {
        MpiOptions {
            libraries: Vec::new(),
            patience: Duration::from_secs(30),
            largest_message: LARGEST_MESSAGE,
            watch: None,
        }
    }
}
