//! Progress of planning, and plans that runs share.

use plimsoll_memory::Bytes;
use plimsoll_nn::RankPlace;
use plimsoll_plan::Plans;
use plimsoll_run::CacheFolder;

/// One attempt of planning, reported before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanningStep {
    /// Depth, height, width of a patch in voxels.
    pub patch: [usize; 3],
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// The limit of the arena: 0 in the search for the smallest arena, `None` in the search without recomputation.
    pub room: Option<Bytes>,
}

/// The surroundings of planning: shared plans, an observer and a cache.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// Earlier plans. Runs that are planned one after the other, such as the runs of a sweep, share them.
    pub plans: &'a Plans,
    /// Receives each attempt.
    pub observer: &'a (dyn Fn(PlanningStep) + 'a),
    /// The process that is planned, among those that train together.
    pub place: RankPlace,
    /// Code that the run maps only when it begins, like the plugins of its MPI library.
    pub later_code: Bytes,
    /// The folder of the machine's measured rates; without one they are measured each time.
    pub cache: Option<&'a CacheFolder>,
}

impl<'a> Planning<'a> {
    /// Planning of a process that trains alone, without an observer.
    pub fn unobserved(plans: &'a Plans, cache: Option<&'a CacheFolder>) -> Planning<'a> {
        Planning { plans, observer: &|_| {}, place: RankPlace::ALONE, later_code: Bytes::ZERO, cache }
    }
}
