//! The places of files of DICOM: in a folder and the folders in it, or in a ZIP archive.

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

use crate::DicomError;
use crate::archive::{Member, each_member, is_archive};
use crate::reader::Reader;
use crate::reserved_list::ReservedList;
use crate::start::{MAGIC, Start};

/// The most levels of folders that are searched.
const DEPTH: usize = 8;

/// The place of one file.
#[derive(Clone, Debug)]
pub(crate) enum FileLocation {
    /// On the disk.
    File(PathBuf),
    /// In this archive.
    Member(Box<(PathBuf, Member)>),
}

impl FileLocation {
    /// The path of the file; of a file in an archive, the archive and the name in it.
    pub(crate) fn path(&self) -> &Path {
        match self {
            FileLocation::File(path) => path,
            FileLocation::Member(member) => &member.1.name,
        }
    }

    /// Opens it at its beginning.
    pub(crate) fn open(&self) -> Result<Reader<'_>, DicomError> {
        match self {
            FileLocation::File(path) => Reader::open(path),
            FileLocation::Member(member) => {
                let (archive, member) = &**member;
                Ok(Reader::in_archive(&member.name, member.open(archive)?, member.length))
            }
        }
    }

    /// Returns `true` if bytes can be skipped without being read.
    pub(crate) fn can_seek(&self) -> bool {
        matches!(self, FileLocation::File(_))
    }

    /// Returns `true` if the file begins as DICOM does.
    ///
    /// # Errors
    /// Returns an error if the beginning of a file cannot be read: a damaged file may be a slice.
    pub(crate) fn is_dicom(&self) -> Result<bool, DicomError> {
        Ok(self.start()?.is_some())
    }

    /// The start of a file of DICOM; `None` if the file is something else.
    ///
    /// # Errors
    /// Returns the errors of [`is_dicom`](Self::is_dicom).
    pub(crate) fn start(&self) -> Result<Option<Start>, DicomError> {
        let head = self.open()?.bytes::<{ MAGIC.0 + MAGIC.1.len() }>()?;
        Ok(head.and_then(|head| Start::detect(&head)))
    }

    /// The heap memory of the place.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            FileLocation::File(path) => path.capacity() as u64,
            FileLocation::Member(member) => {
                let (archive, member) = &**member;
                (size_of::<(PathBuf, Member)>() + archive.capacity() + member.name.capacity()) as u64
            }
        }
    }
}

/// Calls `see` with each file of a folder and of those in it, in the order of their names and but for links to folders, or of an archive.
/// The names of a folder are reserved from the budget while its files are seen.
pub(crate) fn each_place(
    path: &Path,
    budget: &Budget,
    see: &mut dyn FnMut(FileLocation) -> Result<(), DicomError>,
) -> Result<(), DicomError> {
    if path.is_dir() {
        return each_file(path, DEPTH, budget, see);
    }
    match is_archive(path)? {
        true => each_member(path, |member| see(FileLocation::Member(Box::new((path.into(), member))))),
        false => see(FileLocation::File(path.into())),
    }
}

fn each_file(
    folder: &Path,
    depth: usize,
    budget: &Budget,
    see: &mut dyn FnMut(FileLocation) -> Result<(), DicomError>,
) -> Result<(), DicomError> {
    let io = |source| DicomError::Io { path: folder.into(), source };
    let mut names =
        Names { paths: ReservedList::new(budget, NAMES), texts: ReservedList::new(budget, NAMES), room: 0 };
    for entry in plimsoll_disk::entries(folder).map_err(io)? {
        names.push(entry.map_err(io)?, budget)?;
    }
    // No two are the same.
    names.paths.as_mut_slice().sort_unstable();
    for entry in &*names.paths {
        if entry.is_dir() {
            if is_looked_into(entry, depth) {
                each_file(entry, depth - 1, budget, see)?;
            }
        } else if entry.is_file() {
            see(FileLocation::File(entry.clone()))?;
        }
    }
    Ok(())
}

/// Returns `true` if a folder within another is searched. Links are not followed: they may lead in a circle.
fn is_looked_into(folder: &Path, depth: usize) -> bool {
    depth > 0 && !folder.is_symlink()
}

/// Returns `true` if `is_one` accepts any file of a folder and of the folders in it, or of an archive. Files come in the order of the
/// system, as names are not kept, and files behind the accepted one are not opened.
pub(crate) fn any_place(
    path: &Path,
    is_one: &mut dyn FnMut(&FileLocation) -> Result<bool, DicomError>,
) -> Result<bool, DicomError> {
    if path.is_dir() {
        return any_file(path, DEPTH, is_one);
    }
    if !is_archive(path)? {
        return is_one(&FileLocation::File(path.into()));
    }
    let mut found = false;
    each_member(path, |member| {
        found = found || is_one(&FileLocation::Member(Box::new((path.into(), member))))?;
        Ok(())
    })?;
    Ok(found)
}

fn any_file(
    folder: &Path,
    depth: usize,
    is_one: &mut dyn FnMut(&FileLocation) -> Result<bool, DicomError>,
) -> Result<bool, DicomError> {
    let io = |source| DicomError::Io { path: folder.into(), source };
    for entry in plimsoll_disk::entries(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let found = match entry.is_dir() {
            true => is_looked_into(&entry, depth) && any_file(&entry, depth - 1, is_one)?,
            false => entry.is_file() && is_one(&FileLocation::File(entry))?,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The holder of the reservation for the names of a folder.
const NAMES: &str = "names of files";

/// The bytes that are reserved for texts of names at a time.
const TEXTS: u64 = 16 << 10;

/// The names of a folder, which are reserved before there are more of them.
struct Names {
    paths: ReservedList<PathBuf>,
    texts: ReservedList<Reservation>,
    /// The reserved bytes that no text uses yet.
    room: u64,
}

impl Names {
    fn push(&mut self, path: PathBuf, budget: &Budget) -> Result<(), OverBudget> {
        let bytes = path.capacity() as u64;
        if bytes > self.room {
            let more = bytes.max(TEXTS);
            self.texts.push(budget.reserve(NAMES, Bytes(more))?)?;
            self.room = more;
        }
        self.room -= bytes;
        self.paths.push(path)
    }
}
