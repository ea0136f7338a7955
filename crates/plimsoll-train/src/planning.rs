//! What planning reports while it lasts, and remembers from one run to the next.

use plimsoll_memory::Bytes;
use plimsoll_plan::Plans;

/// One attempt of planning, reported before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanningStep {
    /// Depth, height, width of a patch in voxels.
    pub patch: [usize; 3],
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// What the arena may take: no bytes where the least arena is searched for, and none where nothing is to be recomputed.
    pub room: Option<Bytes>,
}

/// What planning a run uses beside its configuration.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// Plans that were made before. Runs that are planned one after the other, such as those of a sweep, share them.
    pub plans: &'a Plans,
    /// Receives each attempt.
    pub observer: &'a (dyn Fn(PlanningStep) + 'a),
}

impl<'a> Planning<'a> {
    /// Planning that nobody observes.
    pub fn unobserved(plans: &'a Plans) -> Planning<'a> {
        Planning { plans, observer: &|_| {} }
    }
}
