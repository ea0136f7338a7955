//! The readers of what arrives from the network, without a service: fuzz targets give them any bytes.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::Bytes;

use crate::archive::{self, ArchiveContent};
use crate::content::Content;
use crate::mcp::refused_message;
use crate::problem::Problem;

pub use crate::dicomweb::{PartLengths, part_lengths};

/// The refusal of an upload, as its client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedUpload {
    /// The fault.
    pub error: String,
    /// A remedy.
    pub hint: String,
}

impl From<Problem> for RefusedUpload {
    fn from(problem: Problem) -> RefusedUpload {
        RefusedUpload { error: problem.error, hint: problem.hint }
    }
}

/// Reads an upload as far as the service itself does: its kind, the directory of an archive, and the files of channels in it, which are unpacked
/// into a new folder. The readers of images and of DICOM read the rest.
///
/// # Errors
/// Returns an error if the upload is no image, or its files have more than `unpacked` bytes, or are damaged.
pub fn read_upload(upload: &Path, unpacked: Bytes, folder: &Path) -> Result<(), RefusedUpload> {
    if Content::detect(upload)? != Content::Zip {
        return Ok(());
    }
    match archive::look(upload, unpacked)? {
        ArchiveContent::Slices => Ok(()),
        ArchiveContent::Channels(channels) => {
            Ok(archive::unpack(upload, &channels, folder, &AtomicBool::new(false))?)
        }
    }
}

/// The answer to a text that is no message of the Model Context Protocol; `None` if it is one.
pub fn refused_text(text: &str) -> Option<String> {
    refused_message(text).map(|answer| answer.to_string())
}
