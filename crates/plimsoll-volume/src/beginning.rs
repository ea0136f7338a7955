//! The beginning of a file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::stream::ByteStream;

/// Bytes that are looked at, decompressed: up to and with the signature of DICOM.
const LENGTH: usize = 132;

/// The beginning of a file, or that it is a folder.
pub struct Beginning {
    path: PathBuf,
    is_folder: bool,
    head: [u8; LENGTH],
    length: usize,
}

impl Beginning {
    /// Reads it. Of a file that cannot be decompressed it is empty.
    ///
    /// # Errors
    /// Returns an error if the file or folder cannot be opened or read.
    pub(crate) fn read(path: &Path) -> io::Result<Beginning> {
        let mut beginning = Beginning { path: path.into(), is_folder: false, head: [0; LENGTH], length: 0 };
        if plimsoll_disk::metadata(path)?.is_dir() {
            return Ok(Beginning { is_folder: true, ..beginning });
        }
        let read = ByteStream::open(path).and_then(|mut stream| stream.read_some_at(0, &mut beginning.head));
        match read {
            Ok(length) => Ok(Beginning { length, ..beginning }),
            Err(error) => match error.kind() {
                // What cannot be decompressed: whoever reads it by its name says what is wrong with it.
                ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => Ok(beginning),
                _ => Err(error),
            },
        }
    }

    /// The first bytes, decompressed; fewer than 132 if there are no more, none of a folder.
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.length).unwrap_or(&self.head)
    }

    /// Returns `true` for a folder.
    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
