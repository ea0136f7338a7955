//! The state of a case whose windows are being summed.

use plimsoll_data::{Case, TargetGrid};
use plimsoll_plan::{Engine, SumsPlanes};

use crate::cases::case_windows::CaseWindows;
use crate::error::{InferError, internal};
use crate::labels::wanted::Wanted;
use crate::progress::{Clock, Progress};
use crate::summing::rows::Rows;
use crate::summing::settings::Summing;

/// A case that is being summed.
pub(crate) struct Work<'a> {
    pub(crate) case: &'a Case,
    pub(crate) windows: CaseWindows,
    pub(crate) grid: TargetGrid,
    /// Those that are not summed yet.
    pub(crate) parts: Vec<Rows>,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) summing: Summing,
    pub(crate) progress: Progress,
    pub(crate) clock: Clock,
    /// Looks at windows that wait for the network.
    pub(crate) passes: Vec<Pass>,
}

/// A pass of a window through the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(super) start: [usize; 3],
    pub(super) mirrored: [bool; 3],
    /// `true` for the last pass of the window through the network of a fold.
    pub(super) is_last: bool,
}

/// The start of a window that has numbers that cannot be summed.
pub(crate) struct Refused(pub(crate) [usize; 3]);

/// Returns the device of an engine that was planned to sum windows.
pub(crate) fn sums_planes(engine: &mut Box<dyn Engine>) -> Result<&mut dyn SumsPlanes, InferError> {
    engine.sums_planes().ok_or_else(|| internal("windows are summed by a device that does not"))
}
