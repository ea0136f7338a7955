//! JPEG of 8 bits (ITU-T T.81, processes 1, 2 and 4), which changes pixels.

use std::io::Cursor;

use image::{ImageDecoder, codecs::jpeg::JpegDecoder};
use plimsoll_memory::{Budget, Bytes};

use super::markers::only_frame;
use super::{Expected, Failed};

/// The memory of a decoder without the image.
const FIXED: u64 = 256 << 10;

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
    let frame = only_frame(bytes, expected)?;
    match (frame.marker, frame.precision) {
        (0xC0 | 0xC1, 8) => {}
        (0xC1, bits) => {
            let why = "bits with cosine transforms, which is not supported: decompress it, for example with `dcmdjpeg`";
            return Err(format!("its pixels are JPEG of {bits} {why}").into());
        }
        (marker, _) => {
            return Err(format!("its pixels are not a sequential JPEG (marker FF{marker:02X})").into());
        }
    }
    // The image; the file twice, here and in the decoder; coefficients of 16 bits, in blocks; rows of blocks.
    let grouped = |side: usize| (side as u64).next_multiple_of(32);
    let (rows, columns) = (grouped(expected.rows), grouped(expected.columns));
    let needed =
        expected.count() as u64 + 2 * bytes.len() as u64 + 2 * rows * columns + 256 * columns + FIXED;
    let _held = budget.reserve("decoding JPEG", Bytes(needed))?;
    let damaged = |error: image::ImageError| format!("its pixels: {error}");
    let decoder = JpegDecoder::new(Cursor::new(bytes)).map_err(damaged)?;
    if decoder.total_bytes() != expected.count() as u64 {
        return Err("it has the wrong number of pixels".into());
    }
    let mut decoded = vec![0; expected.count()];
    decoder.read_image(&mut decoded).map_err(damaged)?;
    plane.iter_mut().zip(decoded).for_each(|(to, pixel)| *to = pixel.into());
    Ok(())
}
