//! An image that is given to several models.

use std::path::Path;

use plimsoll_data::{CaseFingerprint, KeptImage};

/// The image of a case that several models label one after the other. The first inspects it, and keeps it on the disk at the spacing of the
/// networks; others that see it alike read it from there.
#[derive(Debug)]
pub struct SharedImage {
    pub(crate) kept: KeptImage,
    fingerprint: Option<CaseFingerprint>,
}

impl SharedImage {
    /// An image that nothing is known of yet. Voxels are kept on the disk of `file`, which need not exist.
    pub fn beside(file: &Path) -> SharedImage {
        SharedImage { kept: KeptImage::beside(file), fingerprint: None }
    }

    /// The result of an inspection for a model of these channels.
    pub(crate) fn fingerprint(&self, channels: usize) -> Option<&CaseFingerprint> {
        self.fingerprint.as_ref().filter(|found| found.channels.len() == channels)
    }

    pub(crate) fn inspected(&mut self, fingerprint: &CaseFingerprint) {
        self.fingerprint = Some(fingerprint.clone());
    }
}
