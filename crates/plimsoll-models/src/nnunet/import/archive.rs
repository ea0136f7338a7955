//! Models in an archive.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::archive_directory_bytes;
use zip::ZipArchive;

use super::{Listed, MOST_FILES, Source, below, copy_exactly};
use crate::ModelError;
use crate::nnunet::NnUnetError;

/// The memory for a byte of an archive's directory.
const DIRECTORY_BYTE: u64 = 16;
/// Deflate makes at most 1032 bytes of one; what claims more is no archive of weights.
const MOST_GROWTH: u64 = 1040;
/// The most bytes that all files of an archive may have together for each byte of the archive, beside a constant for texts and pictures.
/// Weights barely shrink: an archive that grows further would fill the disk with zeros.
const MOST_TOGETHER: u64 = 16;
const BESIDE: Bytes = Bytes::mib(16);

pub(super) struct Archive {
    path: PathBuf,
    /// The bytes of the archive.
    length: u64,
    archive: ZipArchive<File>,
    /// The indices of files in the archive, without folders.
    places: Vec<usize>,
    _held: plimsoll_memory::Reservation,
}

impl Archive {
    pub(super) fn open(path: &Path, budget: &Budget) -> Result<Archive, ModelError> {
        let failed = |source| ModelError::io(path, source);
        let mut file = File::open(path).map_err(failed)?;
        let refuse = |why: String| ModelError::from(NnUnetError::Import { path: path.into(), why });
        let directory = archive_directory_bytes(&mut file).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => refuse(error.to_string()),
            _ => failed(error),
        })?;
        let held =
            budget.reserve("the directory of an archive", Bytes(directory.saturating_mul(DIRECTORY_BYTE)));
        let _held = held.map_err(|source| NnUnetError::OverBudget { path: path.into(), source })?;
        let length = file.len().map_err(failed)?;
        let archive = ZipArchive::new(file).map_err(|error| refuse(error.to_string()))?;
        Ok(Archive { path: path.into(), length, archive, places: Vec::new(), _held })
    }
}

impl Source for Archive {
    fn list(&mut self) -> Result<Vec<Listed>, ModelError> {
        let path = &self.path;
        let refuse = |why: String| ModelError::from(NnUnetError::Import { path: path.into(), why });
        if self.archive.len() > MOST_FILES {
            return Err(refuse(format!("it has {} files, more than {MOST_FILES}", self.archive.len())));
        }
        let mut listed = Vec::new();
        for place in 0..self.archive.len() {
            let file = self.archive.by_index_raw(place).map_err(|error| refuse(error.to_string()))?;
            let name = file.name().map_err(|error| refuse(error.to_string()))?.into_owned();
            if file.is_symlink() {
                return Err(refuse(format!("`{name}` is a link")));
            }
            if file.encrypted() {
                return Err(refuse(format!("`{name}` is encrypted")));
            }
            let Some(own) = below(name.trim_end_matches('/')) else {
                return Err(refuse(format!("`{name}` is outside the folder of the archive")));
            };
            if file.is_dir() {
                continue;
            }
            let (bytes, packed) = (file.size(), file.compressed_size());
            if bytes > packed.saturating_mul(MOST_GROWTH) {
                return Err(refuse(format!(
                    "`{name}` claims {}, unpacked from {}",
                    Bytes(bytes),
                    Bytes(packed)
                )));
            }
            self.places.push(place);
            listed.push(Listed { name: own, bytes });
        }
        let all = listed.iter().fold(0u64, |all, file| all.saturating_add(file.bytes));
        let most = self.length.saturating_mul(MOST_TOGETHER).saturating_add(BESIDE.0);
        match all > most {
            true => Err(refuse(format!(
                "its files total {}, but an archive of {} may have at most {}",
                Bytes(all),
                Bytes(self.length),
                Bytes(most)
            ))),
            false => Ok(listed),
        }
    }

    fn copy(
        &mut self,
        place: usize,
        _: &Listed,
        to: &mut dyn Write,
        piece: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let place = self.places.get(place).copied().unwrap_or(usize::MAX);
        let mut file = self.archive.by_index(place).map_err(io::Error::from)?;
        let claimed = file.size();
        copy_exactly(&mut file, claimed, to, piece)
    }
}
