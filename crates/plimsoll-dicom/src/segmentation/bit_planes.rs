//! Masks of one bit for each pixel, one after the other without a gap: the first pixel is the lowest bit (PS3.5 8.1.1, D).

use super::output::Output;
use crate::DicomError;

/// The bytes that are written at once.
const CHUNK: usize = 4 << 10;

const BITS: usize = u8::BITS as usize;

/// Bits that are not written yet: where masks are no multiple of eight pixels, a byte has the end of one and the start of the next.
#[derive(Default)]
pub(super) struct BitPlanes {
    byte: u8,
    filled: usize,
    written: u64,
}

impl BitPlanes {
    /// Writes the mask of a segment in a plane of numbers of segments.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub(super) fn append(
        &mut self,
        plane: &[u16],
        segment: u16,
        output: &mut Output<'_>,
    ) -> Result<(), DicomError> {
        // The rest of the byte that was begun, whole bytes, and the start of another.
        let (begun, rest) =
            plane.split_at(if self.filled == 0 { 0 } else { (BITS - self.filled).min(plane.len()) });
        self.push(begun, segment, output)?;
        let (whole, last) = rest.as_chunks::<BITS>();
        let mut bytes = [0u8; CHUNK];
        for part in whole.chunks(CHUNK) {
            for (byte, pixels) in bytes.iter_mut().zip(part) {
                let bits = pixels.iter().rev().map(|pixel| u8::from(*pixel == segment));
                *byte = bits.fold(0, |byte, bit| byte << 1 | bit);
            }
            let (written, _) = bytes.split_at(part.len());
            output.bytes(written)?;
            self.written += part.len() as u64;
        }
        self.push(last, segment, output)
    }

    /// Bit by bit.
    fn push(&mut self, pixels: &[u16], segment: u16, output: &mut Output<'_>) -> Result<(), DicomError> {
        for pixel in pixels {
            self.byte |= u8::from(*pixel == segment) << self.filled;
            self.filled += 1;
            if self.filled == BITS {
                output.bytes(&[self.byte])?;
                *self = BitPlanes { written: self.written + 1, ..BitPlanes::default() };
            }
        }
        Ok(())
    }

    /// Writes the incomplete last byte, and pads the masks to this length in bytes.
    ///
    /// # Errors
    /// Returns an error if the disk fails, or there are more bytes than were announced.
    pub(super) fn finish(mut self, length: u32, output: &mut Output<'_>) -> Result<(), DicomError> {
        if self.filled > 0 {
            output.bytes(&[self.byte])?;
            self.written += 1;
        }
        match u64::from(length).checked_sub(self.written) {
            Some(0) => Ok(()),
            Some(1) => output.bytes(&[0]),
            _ => {
                let why = format!("masks have {} bytes, but {length} were announced", self.written);
                Err(DicomError::Unencodable { why })
            }
        }
    }
}
