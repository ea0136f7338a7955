//! Chunks of Blosc's version 1: blocks whose bytes or bits were put in another order, so that bytes or bits of equal weight are adjacent, and then
//! compressed.
//!
//! Format: <https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst>.

use flate2::read::ZlibDecoder;

use super::bytes::{little, take};
use super::codecs::inflate;
use super::lz;
use crate::zstd;

/// The version of the format; the second is of Blosc2, with a longer header.
const VERSION: u8 = 2;
const HEADER: usize = 16;

/// Flags: bytes in another order, stored as it is, bits in another order, blocks in one piece.
const BYTES: u8 = 1;
const STORED: u8 = 2;
const BITS: u8 = 4;
const WHOLE: u8 = 16;

/// Elements of more bytes are not stored in pieces of equal bytes, nor are blocks of fewer elements.
const MOST_PIECES: usize = 16;
const LEAST_ELEMENTS: usize = 128;

/// The header of a chunk.
struct Header {
    flags: u8,
    element: usize,
    bytes: usize,
    block: usize,
}

impl Header {
    fn read(stored: &[u8], expected: usize) -> Result<Header, String> {
        let (header, _) = take::<HEADER>(stored)?;
        let [version, _, flags, element, rest @ ..] = header;
        if version != VERSION {
            return Err(format!("it has version {version} of Blosc's format, but {VERSION} is supported"));
        }
        let mut numbers = [[0; 4]; 3];
        numbers.as_flattened_mut().copy_from_slice(&rest);
        let [bytes, block, packed] = numbers.map(|number| u32::from_le_bytes(number) as usize);
        if bytes != expected || packed != stored.len() {
            return Err(format!(
                "it unpacks to {bytes} bytes, not {expected}, or has {} bytes, not {packed}",
                stored.len()
            ));
        }
        if element == 0 || (block == 0 && bytes > 0) {
            return Err("its blocks or elements have no bytes".into());
        }
        Ok(Header { flags, element: usize::from(element), bytes, block })
    }

    /// The number of pieces of a block of this many bytes: one for each byte of an element, or one for all.
    fn pieces(&self, block: usize) -> usize {
        let is_last = block != self.block;
        let is_in_pieces = self.flags & WHOLE == 0
            && self.element <= MOST_PIECES
            && self.block / self.element >= LEAST_ELEMENTS
            && !is_last;
        if is_in_pieces { self.element } else { 1 }
    }
}

/// Decodes a chunk into a buffer that it fills; `scratch` is as long.
///
/// # Errors
/// Returns an error in words if it is damaged, of an unsupported compressor, or decompresses to more or fewer bytes.
pub(super) fn decode(stored: &[u8], to: &mut [u8], scratch: &mut [u8]) -> Result<(), String> {
    let header = Header::read(stored, to.len())?;
    let behind = stored.get(HEADER..).unwrap_or_default();
    if header.flags & STORED != 0 {
        return match behind.len() == header.bytes {
            true => {
                to.copy_from_slice(behind);
                Ok(())
            }
            false => Err(format!("it has {} bytes, not {}", behind.len(), header.bytes)),
        };
    }
    let is_bytes = header.flags & BYTES != 0 && header.element > 1;
    let is_bits = header.flags & BITS != 0;
    for (number, to) in to.chunks_mut(header.block).enumerate() {
        let place = behind.get(4 * number..4 * number + 4).ok_or("it ends early")?;
        let block = stored.get(little(place) as usize..).ok_or("a block of it begins after its end")?;
        if !is_bytes && !is_bits {
            decompress(&header, block, to)?;
            continue;
        }
        let scratch = scratch.get_mut(..to.len()).ok_or("a block of it is longer than the chunk")?;
        decompress(&header, block, scratch)?;
        if is_bytes {
            bytes_together(scratch, to, header.element)
        } else {
            bits_together(scratch, to, header.element)
        }
    }
    Ok(())
}

fn decompress(header: &Header, mut block: &[u8], to: &mut [u8]) -> Result<(), String> {
    let pieces = header.pieces(to.len());
    let length = to.len() / pieces;
    // What is left over where elements are no part of a block is refused below.
    if length * pieces != to.len() {
        return Err("its blocks are not a whole number of elements".into());
    }
    for to in to.chunks_exact_mut(length.max(1)) {
        let (size, rest) = take::<4>(block)?;
        let (piece, rest) = rest.split_at_checked(little(&size) as usize).ok_or("it ends early")?;
        block = rest;
        if piece.len() == to.len() {
            to.copy_from_slice(piece);
            continue;
        }
        match header.flags >> 5 {
            0 => lz::blosclz(piece, to),
            1 => lz::lz4(piece, to),
            3 => inflate(ZlibDecoder::new(piece), to),
            4 => zstd::decompress(piece, to).map_err(|error| error.to_string()),
            2 => Err("it is compressed by Snappy, which is not supported".into()),
            other => Err(format!("it is compressed by Blosc codec {other}, which is unknown")),
        }?;
    }
    Ok(())
}

/// Puts the bytes of elements together, of which the first of all come first, then the second of all, and so on.
fn bytes_together(from: &[u8], to: &mut [u8], element: usize) {
    let count = from.len() / element;
    let (apart, left_over) = from.split_at(count * element);
    let (together, end) = to.split_at_mut(count * element);
    for (place, bytes) in apart.chunks_exact(count.max(1)).enumerate() {
        for (to, byte) in together[place..].iter_mut().step_by(element).zip(bytes) {
            *to = *byte;
        }
    }
    end.copy_from_slice(left_over);
}

/// Puts the bits of elements together, of which the lowest of the first bytes of all come first. Blocks whose elements are no multiple of
/// eight are as they were.
fn bits_together(from: &[u8], to: &mut [u8], element: usize) {
    let count = from.len() / element;
    if !count.is_multiple_of(8) {
        to.copy_from_slice(from);
        return;
    }
    let (apart, left_over) = from.split_at(count * element);
    let (together, end) = to.split_at_mut(count * element);
    let row = count / 8;
    for (place, planes) in apart.chunks_exact((8 * row).max(1)).enumerate() {
        for group in 0..row {
            // The bits of eight elements: a byte for each of their bits.
            let square: [u8; 8] = std::array::from_fn(|bit| planes[bit * row + group]);
            for (inside, to) in
                together[8 * group * element + place..].iter_mut().step_by(element).take(8).enumerate()
            {
                *to = (0..8).fold(0, |byte, bit| byte | (square[bit] >> inside & 1) << bit);
            }
        }
    }
    end.copy_from_slice(left_over);
}
