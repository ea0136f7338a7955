//! Run lengths of each byte of all pixels, the highest byte first (RLE Lossless, DICOM PS3.5 Annex G).

/// Bytes of the header: a count, and where up to 15 segments begin.
const HEADER: usize = 64;

const DAMAGED: &str = "its run lengths are damaged";

/// Decodes as many segments as pixels have bytes, each of which has a byte for every pixel.
///
/// # Errors
/// Returns an error if the run lengths have another number or length, or point outside of the data.
pub(super) fn decode(bytes: &[u8], segments: usize, plane: &mut [u16]) -> Result<(), &'static str> {
    let word = |at: usize| {
        let four = bytes.get(4 * at..4 * at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(four) as usize)
    };
    if word(0) != Some(segments) || bytes.len() < HEADER {
        return Err(DAMAGED);
    }
    plane.fill(0);
    for segment in 0..segments {
        let data = word(segment + 1).and_then(|start| bytes.get(start..)).ok_or(DAMAGED)?;
        decode_segment(data, plane).ok_or(DAMAGED)?;
    }
    Ok(())
}

/// Puts each byte of a segment below the bytes that its pixel has already.
fn decode_segment(mut rest: &[u8], plane: &mut [u16]) -> Option<()> {
    let mut done = 0;
    while done < plane.len() {
        let (&count, after) = rest.split_first()?;
        // From 0 to 127: as many and one more bytes as they are. From −1 to −127: the next byte, as often and once more.
        let count = i32::from(count as i8);
        let run = (count.unsigned_abs() + 1) as usize;
        if count == -128 {
            rest = after;
            continue;
        }
        // A run may be longer than what is left only where it is damaged.
        let to = plane.get_mut(done..done + run)?;
        rest = if count >= 0 {
            let (literal, behind) = after.split_at_checked(run)?;
            to.iter_mut().zip(literal).for_each(|(pixel, byte)| *pixel = *pixel << 8 | u16::from(*byte));
            behind
        } else {
            let (&byte, behind) = after.split_first()?;
            to.iter_mut().for_each(|pixel| *pixel = *pixel << 8 | u16::from(byte));
            behind
        };
        done += run;
    }
    Some(())
}
