//! Voxels that are in a file one after the other, plain or compressed as a whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_disk::ScratchFile;
use plimsoll_memory::{Budget, Bytes, Reservation};

use crate::layout::Layout;
use crate::source::VoxelSource;
use crate::stream::ByteStream;
use crate::{IndexFolder, VolumeError, zstd};

/// Bytes that are read in one step where a part of them is picked out, or they are copied.
const PIECE: usize = 64 << 10;

/// Decompressed bytes behind the voxels that are read for the checksum behind them, of an image that is smaller than this; of
/// a larger one, as many as it has itself.
const TRAILING: u64 = 1 << 20;

/// The order in which the channels of an image are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// One channel after the other.
    Apart,
    /// The channels of a voxel together.
    Together,
}

/// The voxels of a file, from the byte on that the layout says.
pub(crate) struct Raw {
    path: PathBuf,
    stream: ByteStream,
    layout: Layout,
    order: Channels,
    /// The reservation for a decompressor whose window is large.
    room: Option<Reservation>,
}

impl Raw {
    /// Checks that a file can have all voxels.
    ///
    /// # Errors
    /// Returns an error if the file is too short for the voxels, or, if it is compressed, too short to decompress to
    /// them.
    pub(crate) fn new(
        path: &Path,
        mut stream: ByteStream,
        layout: Layout,
        order: Channels,
    ) -> Result<Raw, VolumeError> {
        // What it had for the header is reserved only from `decode` on.
        stream.let_go().map_err(|source| VolumeError::Io { path: path.into(), action: "read", source })?;
        let (needed, found, most) = (layout.end(), stream.stored_length(), stream.most_bytes());
        match (needed <= most, stream.is_compressed()) {
            (true, _) => Ok(Raw { path: path.into(), stream, layout, order, room: None }),
            (false, false) => Err(VolumeError::TooShort { path: path.into(), needed, found }),
            (false, true) => {
                Err(VolumeError::ImpossibleSize { path: path.into(), needed, compressed: found, most })
            }
        }
    }

    /// Reads bytes of the (decompressed) file, and what is behind the last voxel once that is read.
    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), VolumeError> {
        if self.decoding_bytes() > Bytes::ZERO && self.room.is_none() {
            return Err(VolumeError::NotDecoded { path: self.path.clone() });
        }
        let (path, end, stream) = (&self.path, self.layout.end(), &mut self.stream);
        stream.read_exact_at(offset, bytes).map_err(|error| damaged_or_refused(path, stream, end, error))?;
        if stream.position() == end { expect_end(path, stream, end) } else { Ok(()) }
    }
}

impl Raw {
    /// Reads all channels of consecutive voxels from voxel `first` on, where the channels of a voxel are stored together.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub(crate) fn read_together(&mut self, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        let step = self.layout.channels as u64 * self.layout.element_type.size() as u64;
        self.read_at(self.layout.start + first as u64 * step, bytes)
    }
}

impl VoxelSource for Raw {
    fn read(&mut self, channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        let Layout { geometry, channels, element_type, start, .. } = self.layout;
        let size = element_type.size();
        if self.order == Channels::Apart || channels == 1 {
            let voxel = channel as u64 * geometry.voxel_count() as u64 + first as u64;
            return self.read_at(start + voxel * size as u64, bytes);
        }
        // All channels of some voxels, or a part of the channels of one that has more than a piece holds.
        let step = channels * size;
        let at_once = (PIECE / step).clamp(1, (bytes.len() / size).max(1));
        let mut piece = vec![0; if step > PIECE { 0 } else { at_once * step }];
        for (number, part) in bytes.chunks_mut(at_once * size).enumerate() {
            let voxel = (first + number * at_once) as u64;
            let place = start + voxel * step as u64;
            if step > PIECE {
                self.read_at(place + (channel * size) as u64, part)?;
                continue;
            }
            let piece = &mut piece[..part.len() / size * step];
            self.read_at(place, piece)?;
            let voxels = piece.chunks_exact(step).map(|voxel| &voxel[channel * size..][..size]);
            part.chunks_exact_mut(size).zip(voxels).for_each(|(to, voxel)| to.copy_from_slice(voxel));
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        match self.stream.window() {
            0 => Bytes::ZERO,
            window => Bytes(zstd::room(window)),
        }
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        let bytes = self.decoding_bytes();
        if bytes > Bytes::ZERO && self.room.is_none() {
            let room = budget.reserve("decompression", bytes);
            self.room = Some(room.map_err(|error| VolumeError::memory(&self.path, error.into()))?);
        }
        Ok(())
    }

    fn is_compressed(&self) -> bool {
        self.stream.is_compressed()
    }

    fn is_random_access(&self) -> bool {
        self.stream.is_random_access()
    }

    fn can_be_indexed(&self) -> bool {
        self.stream.can_be_indexed()
    }

    fn index_in(&mut self, folder: &IndexFolder) {
        self.stream.index_in(folder, &self.path, self.layout.end());
    }

    fn twin(&self) -> Option<Box<dyn VoxelSource>> {
        // Without it, regions are the same and take longer.
        let stream = self.stream.twin(&self.path).ok().flatten()?;
        let (path, layout, order) = (self.path.clone(), self.layout, self.order);
        Some(Box::new(Raw { path, stream, layout, order, room: None }))
    }

    fn find_points(&mut self, stop: &AtomicBool) -> Result<(), VolumeError> {
        let (mut at, end) = (self.stream.position(), self.layout.end());
        let mut piece = vec![0; PIECE];
        while self.stream.finds_points() && at < end && !stop.load(Ordering::Relaxed) {
            // No longer than the buffer.
            let part = &mut piece[..(end - at).min(PIECE as u64) as usize];
            self.read_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn decompress_beside(&mut self, beside: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        if self.is_random_access() {
            return Ok(());
        }
        let end = self.layout.end();
        let path = self.path.clone();
        let failed = |source| VolumeError::Decompress {
            path: path.clone(),
            beside: beside.into(),
            bytes: Bytes(end),
            source,
        };
        let mut decompressed = ScratchFile::beside(beside, end).map_err(failed)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // No longer than the buffer.
            let part = &mut piece[..(end - at).min(PIECE as u64) as usize];
            self.read_at(at, part)?;
            decompressed.write_all_at(at, part).map_err(failed)?;
            at += part.len() as u64;
        }
        self.stream = ByteStream::decompressed(decompressed, end).map_err(failed)?;
        self.room = None;
        Ok(())
    }
}

/// Reads what is behind the voxels of compressed data, with its checksum.
fn expect_end(path: &Path, stream: &mut ByteStream, end: u64) -> Result<(), VolumeError> {
    let most = end.max(TRAILING);
    let is_whole = stream.verify_rest(most);
    match is_whole.map_err(|error| damaged_or_refused(path, stream, end, error))? {
        true => Ok(()),
        false => Err(VolumeError::Trailing { path: path.into(), end, most }),
    }
}

/// Distinguishes a damaged file from an error of the operating system.
pub(crate) fn damaged_or_refused(
    path: &Path,
    stream: &ByteStream,
    expected: u64,
    error: io::Error,
) -> VolumeError {
    let path = path.into();
    let got = stream.position();
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            if stream.is_compressed() {
                VolumeError::Damaged { path, expected, got, problem: error }
            } else {
                VolumeError::TooShort { path, needed: expected, found: got }
            }
        }
        _ => VolumeError::Io { path, action: "read", source: error },
    }
}
