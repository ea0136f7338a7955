//! Pixels of a slice as they are stored: plain, or in run lengths.

use dicom_object::{DefaultDicomObject, Tag};

const PIXELS: Tag = Tag(0x7FE0, 0x0010);

/// How pixels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// One after the other, little-endian.
    Plain,
    /// Run lengths of each byte of all pixels, the highest byte first (RLE Lossless, DICOM PS3.5 Annex G).
    RunLengths,
}

impl Encoding {
    /// That of a transfer syntax; none where it is another one.
    pub(crate) fn of(syntax: &str) -> Option<Encoding> {
        match syntax {
            // Implicit VR, and explicit VR, little-endian.
            "1.2.840.10008.1.2" | "1.2.840.10008.1.2.1" => Some(Encoding::Plain),
            "1.2.840.10008.1.2.5" => Some(Encoding::RunLengths),
            _ => None,
        }
    }
}

/// How a pixel is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) encoding: Encoding,
    /// One or two.
    pub(crate) bytes: usize,
    /// At most eight for each byte.
    pub(crate) bits: u32,
    pub(crate) is_signed: bool,
}

impl Sample {
    /// The number that the low bits of stored ones say.
    fn number(self, stored: u16) -> i32 {
        // The highest bit that is used is brought to the top, and back with its sign.
        let beyond = 32 - self.bits;
        match self.is_signed {
            true => ((u32::from(stored) << beyond) as i32) >> beyond,
            false => ((u32::from(stored) << beyond) >> beyond) as i32,
        }
    }
}

/// Calls `see` with each of so many pixels in order.
///
/// # Errors
/// What is wrong with the pixels of the object.
pub(crate) fn each(
    object: &DefaultDicomObject,
    sample: Sample,
    pixels: usize,
    mut see: impl FnMut(usize, i32),
) -> Result<(), String> {
    let element = object.get(PIXELS).ok_or("it has no pixels")?;
    let length = pixels * sample.bytes;
    match sample.encoding {
        Encoding::Plain => {
            let bytes = element.to_bytes().map_err(|error| error.to_string())?;
            // One more makes an odd length even.
            if bytes.len() != length && bytes.len() != length.next_multiple_of(2) {
                return Err(format!("its pixels take {} bytes, and should take {length}", bytes.len()));
            }
            for (place, stored) in bytes.chunks_exact(sample.bytes).take(pixels).enumerate() {
                let stored = match *stored {
                    [low, high] => u16::from_le_bytes([low, high]),
                    [only] => u16::from(only),
                    _ => return Err("pixels are of one or two bytes".into()),
                };
                see(place, sample.number(stored));
            }
        }
        Encoding::RunLengths => {
            let fragments = element.value().fragments().ok_or("its pixels are no run lengths")?;
            let bytes: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.iter().copied()).collect();
            let decoded = run_lengths(&bytes, sample.bytes, pixels).ok_or("its run lengths are damaged")?;
            let mut planes = decoded.chunks_exact(pixels);
            let (Some(high), low) = (planes.next(), planes.next()) else {
                return Err("it has no pixels".into());
            };
            for (place, high) in high.iter().enumerate() {
                let stored = match low.and_then(|low| low.get(place)) {
                    Some(low) => u16::from_be_bytes([*high, *low]),
                    None => u16::from(*high),
                };
                see(place, sample.number(stored));
            }
        }
    }
    Ok(())
}

/// Bytes of the header of run lengths: a count, and where up to 15 segments begin.
const HEADER: usize = 64;

/// Decodes segments of so many bytes each; none where they are not as long, or lead out of the data.
fn run_lengths(bytes: &[u8], segments: usize, length: usize) -> Option<Vec<u8>> {
    let word = |at: usize| {
        let four = bytes.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
    };
    if word(0)? != segments || bytes.len() < HEADER {
        return None;
    }
    let mut decoded = Vec::with_capacity(segments * length);
    for segment in 0..segments {
        let mut rest = bytes.get(word(segment + 1)?..)?;
        let end = (segment + 1) * length;
        while decoded.len() < end {
            let (&count, after) = rest.split_first()?;
            // From 0 to 127: as many and one more bytes as they are. From −1 to −127: the next byte, as often and once more.
            let count = i32::from(count as i8);
            let run = (count.unsigned_abs() + 1) as usize;
            let taken = match count {
                -128 => 0,
                0.. => {
                    decoded.extend_from_slice(after.get(..run)?);
                    run
                }
                _ => {
                    decoded.extend(std::iter::repeat_n(*after.first()?, run));
                    1
                }
            };
            rest = after.get(taken..)?;
        }
        // A run may be longer than what is left only where it is damaged.
        if decoded.len() != end {
            return None;
        }
    }
    Some(decoded)
}
