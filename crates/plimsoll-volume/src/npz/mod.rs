//! Archives of NumPy's with one array, or with one that is named `data`: `.npz`.
//!
//! Such an archive is a ZIP file whose members are [arrays](crate::npy). `numpy.savez` stores them as they are, so that a region is read from
//! its place in the file; `numpy.savez_compressed` deflates them.

mod archive;
mod member;

use std::path::Path;

use plimsoll_disk::File;

use crate::VolumeError;
use crate::content::Content;
use crate::gzip::{Stretch, Wrapper};
use crate::npy::open_array;
use crate::source::Opened;
use crate::stream::ByteStream;
use archive::{Member, Method, members};
pub use member::{ArrayMember, MemberReader};

/// The array that is read where there are several.
const NAME: &str = "data";

/// The ending of names of members.
const ENDING: &str = ".npy";

/// The most names that a message lists.
const LISTED: usize = 8;

const HINT: &str =
    "save one array of three axes (depth, height, width), or name it: numpy.savez(path, data=array)";

/// Returns `true` if a file begins as an archive does whose first member is an array.
pub(crate) fn begins(head: &[u8]) -> bool {
    archive::first_name(head).is_some_and(|name| name.ends_with(ENDING.as_bytes()))
}

/// Opens the array of an archive.
///
/// # Errors
/// Returns an error if the file cannot be read, is no archive, has no array, or has several of which none is named
/// `data`; and the errors of an array.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let failed = |source| VolumeError::Io { path: path.into(), action: "open", source };
    let refused =
        |why: String| VolumeError::Text { path: path.into(), format: "a NumPy archive", why, hint: HINT };
    let mut file = File::open(path).map_err(failed)?;
    let damaged = |error: std::io::Error| match error.raw_os_error() {
        Some(_) => failed(error),
        None => refused(error.to_string()),
    };
    let mut members = members(&mut file).map_err(damaged)?;
    members.retain(|member| member.name.ends_with(ENDING));
    let is_named = |member: &&Member| member.name.strip_suffix(ENDING) == Some(NAME);
    let member = match (members.iter().find(is_named), members.as_slice()) {
        (Some(named), _) => named,
        (None, [only]) => only,
        (None, []) => return Err(refused("it has no arrays".into())),
        (None, several) => {
            let names = several.iter().take(LISTED).map(|member| member.name.trim_end_matches(ENDING));
            let names = names.collect::<Vec<_>>().join(", ");
            let count = several.len();
            return Err(refused(format!("it has {count} arrays ({names}), but none is named {NAME}")));
        }
    };
    let start = member.start(&mut file).map_err(damaged)?;
    match member.method {
        Method::Stored => {
            let stream = ByteStream::open_plain(path).map_err(failed)?;
            open_array(path, content, stream, start, Some(member.bytes))
        }
        Method::Deflated => {
            let wrapper = Wrapper::Bare { checksum: member.checksum, length: member.packed };
            let stream = ByteStream::open_stretch(path, Stretch { start, wrapper }).map_err(failed)?;
            open_array(path, content, stream, 0, Some(member.bytes))
        }
        Method::Other(number) => {
            Err(refused(format!("{} is compressed by method {number} of ZIP, not deflate", member.name)))
        }
    }
}
