//! Probabilities in NumPy's `.npz`: a ZIP archive with the array `probabilities`, `[output][depth][height][width]` in f32.
//!
//! Planes come with all outputs at a time, but the array has one output after the other. So the archive is not compressed, every plane
//! has its place from the beginning, and the checksum of the whole is combined from the checksums of the outputs. All sizes are written in
//! 64 bits (ZIP64), as an array may well be larger than 4 GiB.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use plimsoll_disk::atomic::{AtomicFile, BUFFER};

use crate::error::InferError;

/// The array's file in the archive.
const NAME: &[u8] = b"probabilities.npy";

/// The version of ZIP from which there are sizes of 64 bits.
const VERSION: u16 = 45;

/// 1 January 1980, the first date that ZIP has: the same probabilities are the same bytes.
const DATE: u16 = 1 << 5 | 1;

/// The value that marks a number as stored in the field of 64 bits.
const ELSEWHERE: u32 = u32::MAX;

/// Bytes before the array's file in the archive.
const LOCAL_HEADER: usize = 30 + NAME.len() + 20;

/// An archive being written. Until [`finish`](Self::finish) it has no name.
pub(crate) struct ProbabilityWriter {
    path: PathBuf,
    file: BufWriter<AtomicFile>,
    header: Vec<u8>,
    outputs: Vec<Hasher>,
    shape: [usize; 3],
    written: usize,
}

impl ProbabilityWriter {
    /// Starts the archive of so many outputs of an image of a stored shape. The disk takes the room for all of it at once.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, or the disk has no room.
    pub(crate) fn create(
        path: &Path,
        outputs: usize,
        shape: [usize; 3],
    ) -> Result<ProbabilityWriter, InferError> {
        let header = array_header(outputs, shape);
        let size = header.len() as u64 + array_bytes(outputs, shape);
        let all = LOCAL_HEADER as u64 + size + directory(0, size).len() as u64;
        let file = AtomicFile::create(path).and_then(|file| file.allocate(all).map(|()| file));
        Ok(ProbabilityWriter {
            path: path.into(),
            file: BufWriter::with_capacity(BUFFER, file.map_err(|source| failed(path, source))?),
            header,
            outputs: vec![Hasher::new(); outputs],
            shape,
            written: 0,
        })
    }

    /// Writes the next plane, `[row][output][column]`.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub(crate) fn write_plane(&mut self, probabilities: &[f32]) -> Result<(), InferError> {
        let path = self.path.clone();
        self.plane(probabilities).map_err(|source| failed(&path, source))
    }

    fn plane(&mut self, probabilities: &[f32]) -> io::Result<()> {
        let [depth, height, width] = self.shape;
        let (plane, outputs) = (height * width * size_of::<f32>(), self.outputs.len());
        for (output, sum) in self.outputs.iter_mut().enumerate() {
            let at =
                (LOCAL_HEADER + self.header.len()) as u64 + ((output * depth + self.written) * plane) as u64;
            self.file.seek(SeekFrom::Start(at))?;
            for row in probabilities.chunks_exact(outputs * width) {
                let mut values = row[output * width..][..width].iter();
                let mut bytes = [0; 4096];
                loop {
                    let mut length = 0;
                    for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&mut values) {
                        *to = value.to_le_bytes();
                        length += 4;
                    }
                    if length == 0 {
                        break;
                    }
                    sum.update(&bytes[..length]);
                    self.file.write_all(&bytes[..length])?;
                }
            }
        }
        self.written += 1;
        Ok(())
    }

    /// Completes the archive and gives it its name.
    ///
    /// # Errors
    /// Returns an error if planes are missing, or the disk fails.
    pub(crate) fn finish(self) -> Result<(), InferError> {
        let path = self.path.clone();
        self.complete().map_err(|source| failed(&path, source))
    }

    fn complete(mut self) -> io::Result<()> {
        let depth = self.shape[0];
        if self.written != depth {
            let missing = format!("{} of {depth} planes of probabilities were written", self.written);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, missing));
        }
        let mut sum = Hasher::new();
        sum.update(&self.header);
        self.outputs.iter().for_each(|output| sum.combine(output));
        let sum = sum.finalize();
        let size = self.header.len() as u64 + array_bytes(self.outputs.len(), self.shape);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&local_header(sum, size))?;
        self.file.write_all(&self.header)?;
        self.file.seek(SeekFrom::Start(LOCAL_HEADER as u64 + size))?;
        self.file.write_all(&directory(sum, size))?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    }
}

/// Bytes of the array's numbers.
fn array_bytes(outputs: usize, [depth, height, width]: [usize; 3]) -> u64 {
    (outputs * depth * height * width * size_of::<f32>()) as u64
}

fn failed(path: &Path, source: io::Error) -> InferError {
    InferError::Probabilities { path: path.into(), source }
}

/// NumPy's header of the array, version 1.0, padded to 64 bytes.
fn array_header(outputs: usize, [depth, height, width]: [usize; 3]) -> Vec<u8> {
    const BEFORE: usize = 10;
    let mut text = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({outputs}, {depth}, {height}, {width}), }}"
    );
    while !(BEFORE + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    // Four numbers of at most 20 digits.
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

/// Sizes of 64 bits: the field that ZIP64 adds to a header.
fn sizes(size: u64) -> Vec<u8> {
    let mut field = Vec::new();
    field.extend(1u16.to_le_bytes());
    field.extend(16u16.to_le_bytes());
    field.extend(size.to_le_bytes());
    field.extend(size.to_le_bytes());
    field
}

/// Returns the common part of both headers of the file: from the required version to the length of its extra field.
fn common(sum: u32) -> Vec<u8> {
    let mut header = Vec::new();
    // The version; no flags; not compressed; midnight.
    [VERSION, 0, 0, 0, DATE].iter().for_each(|number| header.extend(number.to_le_bytes()));
    [sum, ELSEWHERE, ELSEWHERE].iter().for_each(|number| header.extend(number.to_le_bytes()));
    [NAME.len() as u16, 20].iter().for_each(|number| header.extend(number.to_le_bytes()));
    header
}

fn local_header(sum: u32, size: u64) -> Vec<u8> {
    [&0x0403_4b50u32.to_le_bytes()[..], &common(sum), NAME, &sizes(size)].concat()
}

/// The archive's directory, and its end.
fn directory(sum: u32, size: u64) -> Vec<u8> {
    let at = LOCAL_HEADER as u64 + size;
    let mut entry = [&0x0201_4b50u32.to_le_bytes()[..], &VERSION.to_le_bytes(), &common(sum)].concat();
    // No comment, the first disk, no attributes, at the beginning of the archive.
    entry.extend([0; 14]);
    entry.extend(NAME);
    entry.extend(sizes(size));
    let length = entry.len() as u64;

    let mut end = entry;
    end.extend(0x0606_4b50u32.to_le_bytes());
    end.extend(44u64.to_le_bytes());
    end.extend(VERSION.to_le_bytes());
    end.extend(VERSION.to_le_bytes());
    end.extend([0; 8]);
    [1, 1, length, at].iter().for_each(|number: &u64| end.extend(number.to_le_bytes()));
    // Where that end is.
    end.extend(0x0706_4b50u32.to_le_bytes());
    end.extend(0u32.to_le_bytes());
    end.extend((at + length).to_le_bytes());
    end.extend(1u32.to_le_bytes());
    // The end that older readers look for: one entry.
    end.extend(0x0605_4b50u32.to_le_bytes());
    end.extend([0; 4]);
    end.extend(1u16.to_le_bytes());
    end.extend(1u16.to_le_bytes());
    end.extend((length as u32).to_le_bytes());
    end.extend(ELSEWHERE.to_le_bytes());
    end.extend(0u16.to_le_bytes());
    end
}
