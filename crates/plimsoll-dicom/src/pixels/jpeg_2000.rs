//! JPEG 2000 (ITU-T T.800), lossless or not.
//!
//! A few bytes of its header make a decoder set up layers for each of many small blocks, so these are counted, and reserved, before.

use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};
use plimsoll_memory::{Budget, Bytes};

use super::codestream::{Header, Style};
use super::{Expected, Failed};

/// The memory of the decoder for each pixel: coefficients, and their transform twice, of 32 bits; and blocks in 8.
const PIXEL_BYTES: u64 = 24;
/// The memory for a block of coefficients: its state, two entries in tag trees, and lists that grow by doubling.
const BLOCK_BYTES: u64 = 512;
/// For a layer of a block.
const LAYER_BYTES: u64 = 64;
/// For a group of blocks.
const PRECINCT_BYTES: u64 = 256;
/// For a tile.
const TILE_BYTES: u64 = 2048;
/// For each byte of the data: pieces of blocks, each of which takes half a byte to name.
const DATA_BYTES: u64 = 192;
/// For a part of a tile, of which lists that grow by doubling have one entry each.
const PART_BYTES: u64 = 192;
/// For each byte of all: a copy, if what is missing in it is added, and changes of progression, which take seven bytes to name.
const BYTE_BYTES: u64 = 16;
const FIXED: u64 = 512 << 10;

/// Decodes an image of one colour into a plane of its extent.
///
/// # Errors
/// Returns the fault of the image, or an error if the budget has no room for decoding it.
pub(super) fn decode(
    bytes: &[u8],
    expected: Expected,
    plane: &mut [u16],
    budget: &Budget,
) -> Result<(), Failed> {
    let header = Header::parse(bytes, expected)?;
    let _held = budget.reserve("decoding JPEG 2000", header.needed(expected, bytes.len()))?;
    match decode_completed(&header.completed(bytes, 0), &header, plane) {
        // The decoder has to come to the end of the last part with its last packet, so it takes padding for one packet too many, and misses
        // a byte of a packet that was taken for padding: one way or the other it refuses.
        Err(_)
            if header.may_be_padded(bytes)
                && decode_completed(&header.completed(bytes, 1), &header, plane).is_ok() =>
        {
            Ok(())
        }
        decoded => Ok(decoded?),
    }
}

/// Decodes a codestream with a length of every part and an end.
fn decode_completed(bytes: &[u8], header: &Header, plane: &mut [u16]) -> Result<(), String> {
    let damaged = |error: &dyn std::fmt::Display| format!("its pixels: {error}");
    let settings = DecodeSettings { resolve_palette_indices: false, strict: true, target_resolution: None };
    let image = Image::new(bytes, &settings).map_err(|error| damaged(&error))?;
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(|error| damaged(&error))?;
    let [component] = decoded.components() else { return Err("its pixels have several colours".into()) };
    let samples = component.samples();
    if samples.len() != plane.len() {
        return Err(format!("it has {} pixels instead of {}", samples.len(), plane.len()));
    }
    // The decoder brings all numbers above 0, signed ones, too. Lossy ones are between whole numbers, and may be beyond.
    let half = f32::from(header.size.precision - 1).exp2();
    let (lift, low, high) = match header.size.is_signed {
        true => (half, -half, half - 1.0),
        false => (0.0, 0.0, 2.0 * half - 1.0),
    };
    for (to, sample) in plane.iter_mut().zip(samples) {
        *to = (sample - lift).round().clamp(low, high) as i32 as u16;
    }
    Ok(())
}

impl Header {
    /// The most memory that decoding takes.
    fn needed(&self, expected: Expected, length: usize) -> Bytes {
        let pixels = expected.count() as u64;
        let (tiles, Style { layers, blocks, precincts, resolutions }) = (self.size.tiles, &self.style);
        // Of each resolution and tile, groups of blocks lie on a grid that may begin before and end behind it.
        let count = |[width, height]: [u32; 2]| {
            let across = (expected.columns as u64 >> width) + 2;
            let down = (expected.rows as u64 >> height) + 2;
            across * down
        };
        let grids = tiles.saturating_mul(3 * resolutions + 1);
        let precincts = count(*precincts).saturating_mul(2).saturating_add(grids.saturating_mul(4));
        let blocks = count(*blocks).saturating_mul(2).saturating_add(precincts.saturating_mul(4));
        let each = BLOCK_BYTES + layers * LAYER_BYTES;
        let length = length as u64;
        let sums = [
            pixels.saturating_mul(PIXEL_BYTES),
            blocks.saturating_mul(each),
            precincts.saturating_mul(PRECINCT_BYTES),
            tiles.saturating_mul(TILE_BYTES),
            self.parts.saturating_mul(PART_BYTES),
            length.min(blocks.saturating_mul(*layers)).saturating_mul(DATA_BYTES),
            length.saturating_mul(BYTE_BYTES),
            FIXED,
        ];
        Bytes(sums.into_iter().fold(0, u64::saturating_add))
    }
}
