//! JPEG-LS, lossless and nearly (ITU-T T.87).

use plimsoll_memory::{Budget, Bytes};

use super::markers::{LS, only_frame};
use super::{Expected, Failed};

/// The memory of the decoder without the image that it returns: contexts, and rows of 32 bits, counted for those.
const FIXED: u64 = 64 << 10;
const ROW_BYTES: u64 = 32;

/// Decodes an image of one colour into a plane of its extent.
///
/// # Errors
/// Returns the fault of the image, or an error if the budget has no room for a second copy of it.
pub(super) fn decode(
    bytes: &[u8],
    expected: Expected,
    plane: &mut [u16],
    budget: &Budget,
) -> Result<(), Failed> {
    let frame = only_frame(bytes, expected)?;
    if frame.marker != LS {
        return Err(format!("its pixels are not JPEG-LS (marker FF{:02X})", frame.marker).into());
    }
    let image = Bytes::from_len(size_of_val(plane));
    let rows = Bytes(FIXED + expected.columns as u64 * ROW_BYTES);
    let _held = budget.reserve("decoding JPEG-LS", image + rows)?;
    let (columns, rows) = (expected.columns as u32, expected.rows as u32);
    let (decoded, ..) =
        jpegls::decode(bytes, columns, rows).map_err(|error| format!("its pixels: {error}"))?;
    if decoded.len() != plane.len() {
        return Err(format!("it has {} pixels instead of {}", decoded.len(), plane.len()).into());
    }
    plane.copy_from_slice(&decoded);
    Ok(())
}
