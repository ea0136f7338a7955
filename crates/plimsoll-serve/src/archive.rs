//! ZIP archives of uploads: their claims are checked before anything is unpacked, and nothing beyond a claim is.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use flate2::read::DeflateDecoder;
use plimsoll_disk::File;
use plimsoll_disk::zip::{Entry, directory, start_of_member};
use plimsoll_memory::Bytes;

use crate::problem::Problem;
use crate::shares::CHUNK;

/// The most files of an archive that the reader of DICOM takes.
const MOST_FILES: usize = 65_534;
/// The most channels of an image in files of their own.
const MOST_CHANNELS: usize = 64;

/// The kind of the files of an archive.
#[derive(Debug)]
pub(crate) enum ArchiveContent {
    /// Anything but images of NIfTI: the reader of DICOM looks for slices in it.
    Slices,
    /// Files of the channels of one image.
    Channels(Vec<ChannelFile>),
}

/// The file of a channel in an archive.
#[derive(Debug)]
pub(crate) struct ChannelFile {
    entry: Entry,
    /// Four digits and the ending: `0000.nii.gz`.
    name: String,
}

/// Reads the directory of an archive, and refuses one that claims to be larger than the limit.
pub(crate) fn look(path: &Path, unpacked: Bytes) -> Result<ArchiveContent, Problem> {
    let mut file = File::open(path).map_err(|_| Problem::internal())?;
    let (mut files, mut claimed) = (0, 0u64);
    let mut channels = Vec::new();
    let mut names = BTreeSet::new();
    let directory = directory(&mut file).map_err(|error| damaged(&error))?;
    directory
        .each::<Fault>(&mut file, &mut |entry| {
            files += 1;
            claimed = claimed.saturating_add(entry.length);
            if files > MOST_FILES {
                let error = format!("the archive has more than {MOST_FILES} files");
                return Err(Fault(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    error,
                    "send the slices of one series alone",
                )));
            }
            if claimed > unpacked.0 {
                return Err(Fault(too_large(claimed, unpacked)));
            }
            let Some(name) = channel_name(&entry.name) else { return Ok(()) };
            if channels.len() == MOST_CHANNELS || !names.insert(name.clone()) {
                let error =
                    "the archive has several images: two files of the same channel, or more than 64 channels";
                return Err(Fault(unprocessable(error)));
            }
            channels.push(ChannelFile { entry, name });
            Ok(())
        })
        .map_err(|Fault(problem)| problem)?;
    // Names of four digits are in the order of their numbers.
    let is_gapless = (0..).zip(&names).all(|(number, name)| name.starts_with(&format!("{number:04}.")));
    match channels.is_empty() {
        true => Ok(ArchiveContent::Slices),
        false if !is_gapless => {
            Err(unprocessable("the channels of the image are not numbered 0000, 0001 and so on"))
        }
        false => Ok(ArchiveContent::Channels(channels)),
    }
}

/// Unpacks the channels of an image into a folder, with names of their own: `image_0000.nii.gz`.
pub(crate) fn unpack(
    path: &Path,
    channels: &[ChannelFile],
    folder: &Path,
    stop: &AtomicBool,
) -> Result<(), Problem> {
    plimsoll_disk::create_dir_all(folder).map_err(|error| full(&error))?;
    for channel in channels {
        let to = folder.join(format!("image_{}", channel.name));
        extract(path, &channel.entry, to, stop)?;
    }
    Ok(())
}

/// An error of a member within the error of the directory.
struct Fault(Problem);

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault(damaged(&error))
    }
}

/// The last four digits of a name like `CASE_0001.nii.gz`, with the ending; `None` for other files.
fn channel_name(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let (stem, ending) =
        [".nii.gz", ".nii"].iter().find_map(|ending| Some((name.strip_suffix(ending)?, *ending)))?;
    let (_, digits) = stem.rsplit_once('_')?;
    let is_channel = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_channel.then(|| format!("{digits}{ending}"))
}

fn extract(path: &Path, entry: &Entry, to: PathBuf, stop: &AtomicBool) -> Result<(), Problem> {
    let mut file = File::open(path).map_err(|_| Problem::internal())?;
    let start = start_of_member(&mut file, entry.header).map_err(|error| damaged(&error))?;
    file.seek(SeekFrom::Start(start)).map_err(|error| damaged(&error))?;
    let packed = file.take(entry.packed);
    let mut from: Box<dyn Read> = match entry.method {
        _ if entry.is_encrypted => return Err(unprocessable("a file of the archive is encrypted")),
        0 => Box::new(packed),
        8 => Box::new(DeflateDecoder::new(packed)),
        _ => return Err(unprocessable("a file of the archive is neither stored nor deflated")),
    };
    let mut to = File::create_new(to).map_err(|error| full(&error))?;
    let mut chunk = vec![0; CHUNK];
    let (mut length, mut sum) = (0u64, crc32fast::Hasher::new());
    loop {
        let count = from.read(&mut chunk).map_err(|error| damaged(&error))?;
        let Some(read) = chunk.get(..count).filter(|read| !read.is_empty()) else { break };
        length += read.len() as u64;
        if length > entry.length {
            return Err(unprocessable("a file of the archive is longer than its directory states"));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Problem::closing());
        }
        sum.update(read);
        to.write_all(read).map_err(|error| full(&error))?;
    }
    match length == entry.length && sum.finalize() == entry.checksum {
        true => Ok(()),
        false => Err(unprocessable("a file of the archive is damaged: its length or its checksum is wrong")),
    }
}

/// The limit of unpacked bytes is exceeded.
pub(crate) fn too_large(claimed: u64, unpacked: Bytes) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("unpacked, the upload has {} or more, and the limit is {unpacked}", Bytes(claimed)),
        "send one image alone, or raise `--unpacked-limit` of the server",
    )
}

/// An error of the disk that requests are written to.
pub(crate) fn full(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Problem::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the disk of the server has no room for the request",
                "make room there, or name a folder on another disk with `--scratch` of the server",
            )
        }
        _ => Problem::internal(),
    }
}

fn damaged(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
            unprocessable(&format!("the archive is damaged or incomplete: {error}"))
        }
        _ => Problem::internal(),
    }
}

fn unprocessable(error: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        error,
        "send a plain ZIP archive of the slices of one series, or of CASE_0000.nii.gz, CASE_0001.nii.gz and so on",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_told_by_their_names() {
        for (name, expected) in [
            ("case_0000.nii.gz", Some("0000.nii.gz")),
            ("folder/Ann_Smith_0001.nii", Some("0001.nii")),
            ("case_00000.nii.gz", None),
            ("case.nii.gz", None),
            ("slice_0001.dcm", None),
        ] {
            assert_eq!(channel_name(name.as_bytes()).as_deref(), expected, "{name}");
        }
    }
}
