//! What the headers of a case's images say, without any voxel being read.

use plimsoll_data::Case;
use plimsoll_memory::Bytes;
use plimsoll_volume::{Geometry, Spacing, VolumeError, VolumeFile};

/// What the headers of a case's images say. Whether the files keep to it is seen when they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// The grid of the first image as stored.
    pub(crate) geometry: Geometry,
    /// Its spacing (depth, height, width) as its file states it.
    pub(crate) stated: Spacing,
    /// What all images take decoded: each in whole pages.
    pub(crate) decoded: Bytes,
    /// What decoding pictures takes beside these.
    pub(crate) decoding: Bytes,
}

impl Headers {
    /// Reads them; none if the case has no image.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub(crate) fn read(case: &Case) -> Result<Option<Headers>, VolumeError> {
        const PAGE: u64 = 4096;
        let mut found: Option<Headers> = None;
        for path in case.image_files() {
            let file = VolumeFile::open(path)?;
            let decoded = Bytes(file.stored_bytes().saturating_add(PAGE));
            let headers = found.get_or_insert_with(|| Headers {
                geometry: *file.geometry(),
                stated: file.stated_spacing(),
                decoded: Bytes::ZERO,
                decoding: Bytes::ZERO,
            });
            headers.decoded += decoded;
            headers.decoding += file.decoding_bytes();
        }
        Ok(found)
    }
}
