//! The settings of summing windows.

use std::sync::Arc;

use plimsoll_parallel::Pool;

use crate::options::RingStorage;
use crate::summing::summands::Summands;

/// The settings of summing windows.
#[derive(Clone)]
pub(crate) struct Summing {
    /// The summed quantity.
    pub(crate) summands: Summands,
    /// The type in which sums are stored.
    pub(crate) storage: RingStorage,
    /// The number of passes of each window through networks: of each fold, for each mirrored copy.
    pub(crate) looks: usize,
    /// The threads that sum.
    pub(crate) pool: Arc<Pool>,
    /// `true` if the device that the network runs on adds them.
    pub(crate) on_device: bool,
}
