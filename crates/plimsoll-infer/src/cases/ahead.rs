//! A case that is inspected, and decoded once for that and for its windows: the next one while the present one is computed, or one at its
//! turn.
//!
//! The results and errors are used when the turn of the case comes; labels are the same with and without it.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread::{self, Scope, ScopedJoinHandle};

use plimsoll_data::{
    Case, CaseFingerprint, Channel, InspectError, Problem, VolumeCache, inspect_images, inspection_bytes,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::VolumeFile;

use crate::cases::headers::Headers;
use crate::cases::shared_image::SharedImage;
use crate::error::InferError;

/// The stack of the thread that does it: large buffers are mapped.
const STACK: usize = 512 << 10;

/// The result of an inspection.
pub(crate) type Inspected = Result<(Vec<Problem>, Option<CaseFingerprint>), InspectError>;

/// A case that was inspected before its turn.
pub(crate) struct Ahead {
    pub(crate) inspected: Inspected,
    /// Its images, if there was room for all of them, and for the labels of an earlier network.
    pub(crate) cache: Option<VolumeCache>,
    /// The bytes that are reserved for as long as the cache exists.
    pub(crate) held: Bytes,
}

/// A case that comes next, and where what is found of it is left.
pub(crate) struct Next<'a> {
    pub(crate) case: &'a Case,
    /// The labels of an earlier network.
    pub(crate) earlier: Option<&'a Path>,
    pub(crate) found: &'a mut Option<Ahead>,
}

/// The inspections that go along with the prediction of a case.
#[derive(Default)]
pub(crate) struct LookAhead<'a> {
    /// The case itself, if it was inspected before its turn.
    pub(crate) before: Option<Ahead>,
    /// The case that is inspected meanwhile, as far as the memory limit leaves room for it.
    pub(crate) next: Option<Next<'a>>,
    /// The image as other models see it, too.
    pub(crate) shared: Option<&'a mut SharedImage>,
}

/// The memory that inspecting a case needs.
#[derive(Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) inspection: Bytes,
    /// All images and the labels of an earlier network, decoded; nothing where there are pictures, which are decoded at their turn.
    decoded: Bytes,
}

impl Needed {
    /// By the headers of a case; none if it has no image.
    ///
    /// # Errors
    /// Returns an error if a header cannot be read: that is told when the case is inspected.
    pub(crate) fn read(case: &Case, earlier: Option<&Path>) -> Result<Option<Needed>, InferError> {
        let Some(headers) = Headers::read(case, earlier)? else { return Ok(None) };
        let decoded = if headers.decoding == Bytes::ZERO { headers.decoded } else { Bytes::ZERO };
        Ok(Some(Needed { inspection: inspection_bytes(case)?, decoded }))
    }

    /// To look and to keep what is decoded: a file is open for each of the two.
    fn all(&self) -> Bytes {
        self.inspection + self.decoded + VolumeFile::OPEN_BYTES
    }

    /// The same on a thread of its own.
    pub(crate) fn ahead(&self) -> Bytes {
        Bytes::from_len(STACK) + self.all()
    }

    /// Room for what is decoded beside the inspection; none if there is too little.
    fn room(&self, memory: &Budget) -> Option<VolumeCache> {
        let has_room = self.decoded > Bytes::ZERO && self.all() <= memory.free();
        has_room.then(|| memory.part("cache", self.decoded).ok().map(VolumeCache::new))?
    }
}

/// The inspection of the next case on a thread of its own.
pub(crate) struct AheadThread<'scope> {
    thread: ScopedJoinHandle<'scope, Ahead>,
    found: &'scope mut Option<Ahead>,
}

impl<'scope> AheadThread<'scope> {
    /// Inspects the next case within `memory`, and decodes its images if there is room for all of them. `None` if the system refuses a
    /// thread: the case is inspected at its turn then.
    pub(crate) fn start(
        next: Next<'scope>,
        needed: Needed,
        channels: &'scope [Channel],
        memory: Budget,
        stop: &'scope AtomicBool,
        scope: &'scope Scope<'scope, '_>,
    ) -> Option<AheadThread<'scope>> {
        let Next { case, found, .. } = next;
        let inspect =
            move || Ahead { held: memory.limit(), ..look(case, Some(needed), channels, &memory, stop) };
        let builder = thread::Builder::new().name("next case".into()).stack_size(STACK);
        Some(AheadThread { thread: builder.spawn_scoped(scope, inspect).ok()?, found })
    }

    /// Waits for the inspection, and leaves its result for the turn of the case.
    pub(crate) fn join(self) {
        *self.found = Some(self.thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    }
}

/// Inspects a case at its turn, and decodes its images if what is free has room for all of them.
pub(crate) fn look(
    case: &Case,
    needed: Option<Needed>,
    channels: &[Channel],
    memory: &Budget,
    stop: &AtomicBool,
) -> Ahead {
    let cache = needed.and_then(|needed| needed.room(memory));
    let inspected = inspect_images(case, channels, cache.as_ref(), memory, stop);
    Ahead { inspected, cache, held: needed.map_or(Bytes::ZERO, |needed| needed.decoded) }
}
