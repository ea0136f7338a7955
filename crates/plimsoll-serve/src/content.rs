//! The kinds of uploads, by their first bytes.

use std::io::Read;
use std::path::Path;

use axum::http::StatusCode;
use plimsoll_disk::File;

use crate::problem::Problem;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// NIfTI-1 or NIfTI-2.
    Nifti,
    /// A gzip file, which is read as NIfTI.
    NiftiGz,
    /// A ZIP archive.
    Zip,
    /// One file of DICOM, with one or many slices.
    Dicom,
}

/// The bytes that are looked at.
const HEAD: u64 = 132;
/// The lengths of headers, with which files of NIfTI begin in either byte order.
const NIFTI: [u32; 2] = [348, 540];

impl Content {
    /// Looks at the first bytes of a file.
    pub(crate) fn detect(path: &Path) -> Result<Content, Problem> {
        let mut head = Vec::with_capacity(HEAD as usize);
        // Whatever it is: a page in the place of an image has an answer of its own.
        let file = File::open_any(path).map_err(|_| Problem::internal())?;
        #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
        file.take(HEAD).read_to_end(&mut head).map_err(|_| Problem::internal())?;
        Content::of(&head).ok_or_else(|| {
            let error = match head.is_empty() {
                true => "the upload is empty",
                false => "the upload is neither NIfTI nor DICOM nor a ZIP archive",
            };
            let hint = "send a .nii or .nii.gz file, a ZIP archive of the slices of a DICOM series, or one of the files of an image's channels, \
                        CASE_0000.nii.gz and so on, as the body of the request";
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, hint)
        })
    }

    fn of(head: &[u8]) -> Option<Content> {
        let length = head.first_chunk().copied().map(u32::from_le_bytes);
        if head.starts_with(&[0x1f, 0x8b]) {
            Some(Content::NiftiGz)
        } else if head.starts_with(b"PK\x03\x04") {
            Some(Content::Zip)
        } else if length
            .is_some_and(|length| NIFTI.iter().any(|own| [*own, own.swap_bytes()].contains(&length)))
        {
            Some(Content::Nifti)
        } else if head.get(128..132) == Some(b"DICM") {
            Some(Content::Dicom)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_first_bytes() {
        let dicom = [&[0; 128][..], b"DICM"].concat();
        for (head, expected) in [
            (&348u32.to_le_bytes()[..], Some(Content::Nifti)),
            (&540u32.to_be_bytes()[..], Some(Content::Nifti)),
            (b"\x1f\x8b\x08", Some(Content::NiftiGz)),
            (b"PK\x03\x04", Some(Content::Zip)),
            (&dicom, Some(Content::Dicom)),
            (b"", None),
            (b"PK\x05\x06", None),
            (b"<html>", None),
        ] {
            assert_eq!(Content::of(head), expected, "{head:?}");
        }
    }
}
