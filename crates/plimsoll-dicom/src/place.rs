//! Where files of DICOM are: in a folder and those in it, or in a ZIP archive.

use std::path::{Path, PathBuf};

use crate::DicomError;
use crate::archive::{Member, each_member, is_archive};
use crate::elements::MAGIC;
use crate::reader::Reader;

/// How deep folders are looked into.
const DEPTH: usize = 8;

/// Where one file is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// On the disk.
    File(PathBuf),
    /// In this archive.
    Member(Box<(PathBuf, Member)>),
}

impl Place {
    /// What it is called: of a file in an archive, the archive and the name in it.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Place::File(path) => path,
            Place::Member(member) => &member.1.name,
        }
    }

    /// Opens it at its beginning.
    pub(crate) fn open(&self) -> Result<Reader<'_>, DicomError> {
        match self {
            Place::File(path) => Reader::of_file(path),
            Place::Member(member) => {
                let (archive, member) = &**member;
                Ok(Reader::of_member(&member.name, member.open(archive)?, member.length))
            }
        }
    }

    /// Whether bytes can be passed over without being read.
    pub(crate) fn can_seek(&self) -> bool {
        matches!(self, Place::File(_))
    }

    /// Whether it begins as DICOM does.
    ///
    /// # Errors
    /// If its beginning cannot be read: one that is damaged may be a slice.
    pub(crate) fn is_dicom(&self) -> Result<bool, DicomError> {
        let start = self.open()?.bytes::<{ MAGIC.0 + MAGIC.1.len() }>()?;
        Ok(start.is_some_and(|start| start.ends_with(MAGIC.1)))
    }

    /// What it takes in memory beside its own size.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            Place::File(path) => path.capacity() as u64,
            Place::Member(member) => {
                let (archive, member) = &**member;
                (size_of::<(PathBuf, Member)>() + archive.capacity() + member.name.capacity()) as u64
            }
        }
    }
}

/// Calls `see` with each file of a folder and of those in it, but for links to folders, or of an archive.
pub(crate) fn each_place(
    path: &Path,
    see: &mut dyn FnMut(Place) -> Result<(), DicomError>,
) -> Result<(), DicomError> {
    if path.is_dir() {
        return each_file(path, DEPTH, see);
    }
    match is_archive(path)? {
        true => each_member(path, |member| see(Place::Member(Box::new((path.into(), member))))),
        false => see(Place::File(path.into())),
    }
}

fn each_file(
    folder: &Path,
    depth: usize,
    see: &mut dyn FnMut(Place) -> Result<(), DicomError>,
) -> Result<(), DicomError> {
    let io = |source| DicomError::Io { path: folder.into(), source };
    for entry in plimsoll_disk::read_dir(folder).map_err(io)? {
        if entry.is_dir() {
            // Links may lead round, and bring the same files again.
            if depth > 0 && !entry.is_symlink() {
                each_file(&entry, depth - 1, see)?;
            }
        } else if entry.is_file() {
            see(Place::File(entry))?;
        }
    }
    Ok(())
}
