//! Reading the chunks of an array.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};

use super::array::{Array, Shard};
use super::bytes::little;
use super::codecs::{Codecs, checked};
use super::image::{Placed, extent};
use crate::VolumeError;
use crate::source::VoxelSource;

const DAMAGED: &str =
    "the file was probably cut off while it was copied or written: copy it again, or leave the case out";

/// The bytes of an entry of a shard's index: the place and the length of a chunk.
const ENTRY: usize = 16;

/// The bytes of a checksum.
const CHECKSUM: usize = 4;

/// The place of a chunk that is not there.
const ABSENT: u64 = u64::MAX;

/// An array, and one of its chunks once there is room for one.
pub(super) struct Chunks {
    folder: PathBuf,
    array: Array,
    placed: Placed,
    room: Option<Room>,
}

/// Room for a chunk as it is stored and as it is read, and for the index of a shard.
struct Room {
    chunk: Mapped<u8>,
    stored: Mapped<u8>,
    scratch: Mapped<u8>,
    index: Mapped<u8>,
    /// The numbers of the chunk that is held, and of the file whose index is.
    held: Option<Vec<usize>>,
    indexed: Option<Vec<usize>>,
    _decoders: Reservation,
}

impl Chunks {
    pub(super) fn new(folder: PathBuf, array: Array, placed: Placed) -> Chunks {
        Chunks { folder, array, placed, room: None }
    }

    /// The bytes of the four buffers.
    fn buffers(&self) -> [usize; 4] {
        let chunk = self.array.chunk_bytes;
        let index =
            self.array.shard.map_or(0, |shard| shard.count.saturating_mul(ENTRY).saturating_add(CHECKSUM));
        [chunk, Codecs::most_stored(chunk), self.array.codecs.scratch_bytes(chunk), index]
    }

    fn decoder_bytes(&self) -> Bytes {
        Bytes(self.array.codecs.decoder_bytes(self.array.chunk_bytes as u64))
    }

    /// The index of a voxel of a channel along each axis of the array.
    fn index(&self, channel: usize, voxel: [usize; 3]) -> Vec<usize> {
        let mut index = vec![0; self.array.shape.len()];
        let places = self.placed.space.into_iter().zip(voxel).chain([(self.placed.channel, channel)]);
        for (place, at) in places {
            if let Some(to) = place.and_then(|place| index.get_mut(place)) {
                *to = at;
            }
        }
        index
    }
}

impl VoxelSource for Chunks {
    fn read(&mut self, channel: usize, first: usize, mut bytes: &mut [u8]) -> Result<(), VolumeError> {
        let size = self.array.element.kind.size();
        let [_, height, width] = self.placed.space.map(|place| extent(place, &self.array.shape));
        let mut voxel = first;
        while !bytes.is_empty() {
            let at = [voxel / (height * width), voxel / width % height, voxel % width];
            let index = self.index(channel, at);
            let chunk = &self.array.chunk;
            let numbers: Vec<usize> = index.iter().zip(chunk).map(|(index, chunk)| index / chunk).collect();
            let start = index.iter().zip(chunk).fold(0, |sum, (index, chunk)| sum * chunk + index % chunk);
            let along = extent(self.placed.space[2], chunk);
            let count = (along - at[2] % along).min(width - at[2]).min(bytes.len() / size).max(1);
            let Some(room) = &mut self.room else {
                return Err(VolumeError::NotDecoded { path: self.folder.clone() });
            };
            room.hold(&self.folder, &self.array, numbers)?;
            let (to, rest) = std::mem::take(&mut bytes).split_at_mut(count * size);
            to.copy_from_slice(&room.chunk[start * size..(start + count) * size]);
            (bytes, voxel) = (rest, voxel + count);
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        let buffers = self.buffers().into_iter().filter(|bytes| *bytes > 0);
        let sum: Result<Vec<Bytes>, MapError> = buffers.map(Mapped::<u8>::bytes).collect();
        sum.map_or(Bytes(u64::MAX), |all| {
            all.into_iter().fold(self.decoder_bytes(), |sum, bytes| Bytes(sum.0.saturating_add(bytes.0)))
        })
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.room.is_some() {
            return Ok(());
        }
        let memory = |problem: MapError| VolumeError::memory(&self.folder, problem);
        let decoders = budget.reserve("decoder of chunks", self.decoder_bytes());
        let decoders = decoders.map_err(|error| memory(error.into()))?;
        let [chunk, stored, scratch, index] = self.buffers();
        let buffer = |bytes: usize| Mapped::zeroed(budget, "a chunk of an image", bytes).map_err(memory);
        self.room = Some(Room {
            chunk: buffer(chunk)?,
            stored: buffer(stored)?,
            scratch: buffer(scratch)?,
            index: buffer(index)?,
            held: None,
            indexed: None,
            _decoders: decoders,
        });
        Ok(())
    }

    fn chunks(&self) -> Option<[usize; 3]> {
        Some(self.placed.space.map(|place| extent(place, &self.array.chunk)))
    }

    fn millimetres_per_unit(&self) -> f64 {
        self.placed.unit
    }

    fn warnings(&self) -> Vec<String> {
        self.placed.warnings.clone()
    }
}

impl Room {
    /// Reads and decodes a chunk, unless it is the one that is held.
    fn hold(&mut self, folder: &Path, array: &Array, numbers: Vec<usize>) -> Result<(), VolumeError> {
        if self.held.as_deref() == Some(&numbers) {
            return Ok(());
        }
        self.held = None;
        let in_file = array.file.iter().zip(&array.chunk).map(|(file, chunk)| file / chunk);
        let per_file: Vec<usize> = in_file.collect();
        let file: Vec<usize> = numbers.iter().zip(&per_file).map(|(number, per)| number / per).collect();
        let path = array.keys.path(folder, &file);
        let failed = |source| VolumeError::Io { path: path.clone(), action: "read", source };
        let damaged = |why: String| VolumeError::Text {
            path: path.clone(),
            format: "a chunk of Zarr",
            why,
            hint: DAMAGED,
        };
        let stored = match File::open(&path) {
            Ok(file_of_chunk) => {
                let length = file_of_chunk.len().map_err(failed)?;
                match array.shard {
                    None => Some((file_of_chunk, 0, length)),
                    Some(shard) => {
                        let within = numbers.iter().zip(&per_file);
                        let within = within.fold(0, |sum, (number, per)| sum * per + number % per);
                        let mut file_of_chunk = file_of_chunk;
                        if self.indexed.as_deref() != Some(&file) {
                            self.indexed = None;
                            read_index(&mut file_of_chunk, length, shard, &mut self.index)
                                .map_err(failed)?
                                .map_err(damaged)?;
                            self.indexed = Some(file);
                        }
                        let entry = &self.index[within * ENTRY..(within + 1) * ENTRY];
                        let (place, count) = (little(&entry[..8]), little(&entry[8..]));
                        let is_there = (place, count) != (ABSENT, ABSENT);
                        is_there.then_some((file_of_chunk, place, count))
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(VolumeError::Io { path, action: "open", source }),
        };
        match stored {
            None => {
                let fill = &array.fill[..array.element.kind.size()];
                self.chunk.chunks_exact_mut(fill.len()).for_each(|value| value.copy_from_slice(fill));
            }
            Some((mut file, place, count)) => {
                let most = self.stored.len();
                let length = usize::try_from(count).ok().filter(|count| *count <= most);
                let length = length.ok_or_else(|| {
                    damaged(format!(
                        "it has {count} bytes, but one of {} may have at most {most}",
                        self.chunk.len()
                    ))
                })?;
                let to = &mut self.stored[..length];
                let read = file.seek(SeekFrom::Start(place)).and_then(|_| file.read_exact(to));
                // A place beyond all that a file can have is an invalid argument of the system.
                read.map_err(|error| match (error.raw_os_error(), error.kind()) {
                    (None, _) | (Some(_), io::ErrorKind::InvalidInput) => damaged("it ends early".into()),
                    (Some(_), _) => failed(error),
                })?;
                let decoded = array.codecs.decode(to, &mut self.chunk, &mut self.scratch);
                decoded.map_err(damaged)?;
            }
        }
        self.held = Some(numbers);
        Ok(())
    }
}

/// Reads the index of the chunks of a file: why it cannot be used, or the system's error.
fn read_index(file: &mut File, length: u64, shard: Shard, to: &mut [u8]) -> io::Result<Result<(), String>> {
    let bytes = shard.count * ENTRY + if shard.is_checked { CHECKSUM } else { 0 };
    let Some(before) = length.checked_sub(bytes as u64) else {
        return Ok(Err(format!("it has {length} bytes, fewer than the index of its {} chunks", shard.count)));
    };
    let to = &mut to[..bytes];
    file.seek(SeekFrom::Start(if shard.is_at_end { before } else { 0 }))?;
    file.read_exact(to)?;
    Ok(if shard.is_checked {
        checked(to).map(drop).map_err(|why| format!("its index: {why}"))
    } else {
        Ok(())
    })
}
