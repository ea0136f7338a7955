//! The memory of folds that train at the same time, which events and reports state.

use plimsoll_memory::Bytes;
use serde::Serialize;

/// The memory of folds that train at the same time.
#[derive(Clone, Debug, Serialize)]
pub struct AtOnce {
    /// The number of folds that train at the same time.
    pub folds: usize,
    /// The number of kernel threads of each fold.
    pub threads_each: usize,
    /// The planned memory of one fold, shared memory included.
    pub planned_bytes_each: Bytes,
    /// The planned memory of all folds.
    pub planned_bytes: Bytes,
    /// The memory limit of the process.
    pub ram_budget_bytes: Bytes,
    /// The peak of resident memory of the process while they trained.
    pub peak_rss_bytes: Option<Bytes>,
}
