//! The needs of a rank to watch over others.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::RanksError;

/// Counts what a process has done, in its thread of messages. `None` while the process has nothing to do for the job, so that it cannot hang.
pub type MeasureEffort = Arc<dyn Fn() -> Option<Effort> + Send + Sync>;
/// Reports a rank that hangs, in the thread of messages. The job is ended afterwards.
pub type ReportHang = Arc<dyn Fn(&RanksError) + Send + Sync>;

/// The work of a process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The processor time of its threads without the thread of messages.
    pub processor: Duration,
    /// The bytes that it has read from files and written to them; 0 where the system does not count them.
    pub bytes: u64,
}

/// The watch over the ranks of a job. All ranks have one, or none has.
#[derive(Clone)]
pub struct Watch {
    /// The name of this node.
    pub host: String,
    /// Counts what this process has done.
    pub effort: MeasureEffort,
    /// Reports a rank that hangs.
    pub report: ReportHang,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("host", &self.host).finish_non_exhaustive()
    }
}
