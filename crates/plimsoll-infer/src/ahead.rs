//! A case that is inspected, and decoded once for that and for its windows: the next one while the present one is computed, or one at its
//! turn.
//!
//! What is found is used when its turn comes, and so are its errors; labels are the same with it and without it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{
    Case, CaseFingerprint, Channel, InspectError, Problem, VolumeCache, inspect_and_keep, inspect_images,
    inspection_bytes,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::VolumeError;

use crate::headers::Headers;

/// The stack of the thread that does it: large buffers are mapped.
pub(crate) const STACK: usize = 512 << 10;

/// A file that is open: its buffers, and the decompressor's window.
const OPEN_FILE: Bytes = Bytes::mib(1);

/// What an inspection finds.
pub(crate) type Inspected = Result<(Vec<Problem>, Option<CaseFingerprint>), InspectError>;

/// What is known of a case before its turn.
pub(crate) struct Ahead {
    pub(crate) inspected: Inspected,
    /// Its images, if there was room for all of them, and for the labels of an earlier network.
    pub(crate) cache: Option<VolumeCache>,
    /// What is reserved for as long as the cache is.
    pub(crate) held: Bytes,
}

/// A case that comes next, and where what is found of it is left.
pub(crate) struct Next<'a> {
    pub(crate) case: &'a Case,
    /// The labels of an earlier network.
    pub(crate) earlier: Option<&'a Path>,
    pub(crate) found: &'a mut Option<Ahead>,
}

/// Bytes in which a case is inspected and decoded ahead of its turn; none if it has no image.
///
/// # Errors
/// If the header of a file cannot be read: that is told at the case's turn.
pub(crate) fn ahead_bytes(case: &Case, earlier: Option<&Path>) -> Result<Option<Bytes>, VolumeError> {
    let Some(headers) = Headers::read(case, earlier)? else { return Ok(None) };
    // Pictures are decoded at their turn.
    let decoded = if headers.decoding == Bytes::ZERO { headers.decoded + OPEN_FILE } else { Bytes::ZERO };
    Ok(Some(Bytes::of(STACK) + inspection_bytes(case)? + decoded))
}

/// Inspects a case within memory that is its own, and decodes its images if there is room for all of them.
pub(crate) fn look_ahead(
    of: (&Case, Option<&Path>),
    channels: &[Channel],
    memory: &Budget,
    stop: &AtomicBool,
) -> Ahead {
    Ahead { held: memory.line(), ..look(of, channels, memory, stop) }
}

/// The same at the case's turn, within what is free.
pub(crate) fn look(
    (case, earlier): (&Case, Option<&Path>),
    channels: &[Channel],
    memory: &Budget,
    stop: &AtomicBool,
) -> Ahead {
    let room = room((case, earlier), memory);
    let inspected = match &room {
        Some((cache, _)) => inspect_and_keep(case, channels, cache, memory, stop),
        None => inspect_images(case, channels, memory, stop),
    };
    let held = room.as_ref().map_or(Bytes::ZERO, |(_, held)| *held);
    Ahead { inspected, cache: room.map(|(cache, _)| cache), held }
}

/// Room for all images of a case beside its inspection, and how much; none if there is too little, a header cannot be read, which is told
/// when the case is inspected, or there are pictures.
fn room((case, earlier): (&Case, Option<&Path>), memory: &Budget) -> Option<(VolumeCache, Bytes)> {
    let headers = Headers::read(case, earlier).ok()??;
    let beside = inspection_bytes(case).ok()? + OPEN_FILE;
    if headers.decoding > Bytes::ZERO || headers.decoded + beside > memory.free() {
        return None;
    }
    let cache = VolumeCache::new(memory.part("cache", headers.decoded).ok()?);
    Some((cache, headers.decoded))
}
