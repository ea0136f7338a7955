//! The decoding of a file's bytes to the bytes of a chunk.

use std::io::Read;

use crc32c::crc32c;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::bytes::{little, take};
use super::{blosc, lz};
use crate::zstd;

/// The memory of inflating, whatever the size of a chunk.
const INFLATING: u64 = 128 << 10;

/// Compressors, by the names that both versions have for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Compressor {
    Blosc,
    Gzip,
    Lz4,
    Zlib,
    Zstd,
}

impl Compressor {
    pub(super) fn named(name: &str) -> Option<Compressor> {
        Some(match name {
            "blosc" => Compressor::Blosc,
            "gzip" => Compressor::Gzip,
            "lz4" => Compressor::Lz4,
            "zlib" => Compressor::Zlib,
            "zstd" => Compressor::Zstd,
            _ => return None,
        })
    }
}

/// The storage of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Codecs {
    pub(super) compressor: Option<Compressor>,
    /// Tells whether a checksum, CRC-32C, follows.
    pub(super) is_checked: bool,
}

/// The bytes of a checksum.
const CHECKSUM: usize = 4;

impl Codecs {
    /// The most bytes that a chunk of this length takes in the file: incompressible data grow a little.
    pub(super) fn most_stored(chunk_bytes: usize) -> usize {
        const HEADERS: usize = 64 << 10;
        chunk_bytes.saturating_add(chunk_bytes / 8).saturating_add(HEADERS)
    }

    /// The bytes of blocks that are decompressed before they are put into the chunk.
    pub(super) fn scratch_bytes(self, chunk_bytes: usize) -> usize {
        if self.compressor == Some(Compressor::Blosc) { chunk_bytes } else { 0 }
    }

    /// Bytes that decompressors take beside.
    pub(super) fn decoder_bytes(self, chunk_bytes: u64) -> u64 {
        match self.compressor {
            Some(Compressor::Blosc | Compressor::Zstd) => zstd::room_for(chunk_bytes) + INFLATING,
            _ => INFLATING,
        }
    }

    /// Decodes a chunk. `scratch` has [`scratch_bytes`](Self::scratch_bytes).
    ///
    /// # Errors
    /// In words, if it is damaged, or not of the chunk's size.
    pub(super) fn decode(self, stored: &[u8], chunk: &mut [u8], scratch: &mut [u8]) -> Result<(), String> {
        let stored = if self.is_checked { checked(stored)? } else { stored };
        match self.compressor {
            None => {
                let same = stored.len() == chunk.len();
                same.then(|| chunk.copy_from_slice(stored))
                    .ok_or_else(|| format!("it has {} bytes, not {}", stored.len(), chunk.len()))
            }
            Some(Compressor::Gzip) => inflate(MultiGzDecoder::new(stored), chunk),
            Some(Compressor::Zlib) => inflate(ZlibDecoder::new(stored), chunk),
            Some(Compressor::Zstd) => zstd::decompress(stored, chunk).map_err(|error| error.to_string()),
            Some(Compressor::Lz4) => {
                let (length, block) = take::<4>(stored)?;
                match little(&length) == chunk.len() as u64 {
                    true => lz::lz4(block, chunk),
                    false => Err(format!("it unpacks to {} bytes, not {}", little(&length), chunk.len())),
                }
            }
            Some(Compressor::Blosc) => blosc::decode(stored, chunk, scratch),
        }
    }
}

/// Reads all bytes that a decompressor gives, which must fill the chunk.
pub(super) fn inflate(mut from: impl Read, chunk: &mut [u8]) -> Result<(), String> {
    from.read_exact(chunk).map_err(|error| error.to_string())?;
    // The checksum is compared where the end is reached.
    match from.read(&mut [0]).map_err(|error| error.to_string())? {
        0 => Ok(()),
        _ => Err(format!("it unpacks to more than {} bytes", chunk.len())),
    }
}

/// The bytes before a checksum that is right.
pub(super) fn checked(stored: &[u8]) -> Result<&[u8], String> {
    let (bytes, sum) = stored.split_last_chunk::<CHECKSUM>().ok_or("it is shorter than its checksum")?;
    let (found, said) = (crc32c(bytes), u32::from_le_bytes(*sum));
    match found == said {
        true => Ok(bytes),
        false => Err(format!("its checksum is {found:08x}, not {said:08x}")),
    }
}
