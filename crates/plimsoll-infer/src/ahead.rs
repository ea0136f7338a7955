//! The next case, inspected and decoded while the present one is computed.
//!
//! What is found is used when its turn comes, and so are its errors; labels are the same with it and without it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{
    Case, CaseFingerprint, Channel, InspectError, Problem, VolumeCache, inspect_images, inspection_bytes,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Content, VolumeError};

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
    /// Its images, if all of them were decoded, with room for the labels of an earlier network.
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
    // Decoded behind the inspection, whose memory is free again then. Pictures are decoded at their turn.
    let decoded = if headers.decoding == Bytes::ZERO { headers.decoded + OPEN_FILE } else { Bytes::ZERO };
    Ok(Some(Bytes::of(STACK) + inspection_bytes(case)?.max(decoded)))
}

/// Inspects a case within memory that is its own, and decodes its images if there is room for all of them.
pub(crate) fn look_ahead(
    (case, earlier): (&Case, Option<&Path>),
    channels: &[Channel],
    memory: &Budget,
    stop: &AtomicBool,
) -> Ahead {
    let inspected = inspect_images(case, channels, memory, stop);
    let decoded = match &inspected {
        Ok((_, Some(_))) => decode((case, earlier), memory, stop),
        _ => None,
    };
    Ahead { inspected, cache: decoded, held: memory.line() }
}

/// All images of a case; none if any cannot be read, which is told when it is read at its turn, or is a picture.
fn decode(
    (case, earlier): (&Case, Option<&Path>),
    memory: &Budget,
    stop: &AtomicBool,
) -> Option<VolumeCache> {
    let headers = Headers::read(case, earlier).ok()??;
    if headers.decoding > Bytes::ZERO {
        return None;
    }
    let cache = VolumeCache::new(memory.part("cache", headers.decoded).ok()?);
    let no_pictures = Budget::new(Bytes::ZERO);
    for path in case.image_files() {
        cache.get_unless((path, Content::Intensities), &no_pictures, stop).ok()??;
    }
    Some(cache)
}
