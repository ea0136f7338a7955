//! Planes of labels in run lengths (RLE Lossless, PS3.5 Annex G): the other way of what slices are decoded with.

use plimsoll_memory::{Budget, Bytes, Reservation};

use crate::DicomError;

/// Bytes of the header: a count, and where up to 15 segments begin.
const HEADER: usize = 64;

/// The most bytes of a run, and of bytes that are as they are.
const MOST: usize = 128;

/// Encodes planes, one after the other.
pub(super) struct RunLengths {
    /// The number of bytes of a label: one, or two, which are encoded apart, the higher first.
    bytes: usize,
    columns: usize,
    row: Vec<u8>,
    encoded: Vec<u8>,
    _buffers: Reservation,
}

impl RunLengths {
    /// An encoder for planes of this number of rows and columns, of labels of one or two bytes.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for the longest possible encoding.
    pub(super) fn new(
        bytes: usize,
        [rows, columns]: [usize; 2],
        budget: &Budget,
    ) -> Result<RunLengths, DicomError> {
        // A byte more for each 128 that are as they are; rows begin anew, and segments are padded to an even number.
        let longest = columns + columns.div_ceil(MOST) + 1;
        let capacity = HEADER + bytes * (rows * longest + 1);
        let buffers = budget.reserve("a plane in run lengths", Bytes((capacity + columns) as u64))?;
        let (row, encoded) = (Vec::with_capacity(columns), Vec::with_capacity(capacity));
        Ok(RunLengths { bytes, columns, row, encoded, _buffers: buffers })
    }

    /// A plane of labels in run lengths, an even number of bytes.
    pub(super) fn encode(&mut self, plane: &[u16]) -> &[u8] {
        let RunLengths { bytes, columns, row, encoded, .. } = self;
        encoded.clear();
        encoded.resize(HEADER, 0);
        let mut words = vec![*bytes as u32];
        for part in (0..*bytes).rev() {
            // A plane in which a segment begins beyond 32 bits is longer than that, and refused as a fragment.
            words.push(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
            for labels in plane.chunks((*columns).max(1)) {
                row.clear();
                row.extend(labels.iter().map(|label| label.to_le_bytes()[part]));
                pack(row, encoded);
            }
            if encoded.len() % 2 == 1 {
                encoded.push(0);
            }
        }
        for (to, word) in encoded.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        encoded
    }
}

/// Encodes a row: a run of 2 to 128 equal bytes as 257 less its length and the byte, others as their number less one and themselves.
fn pack(row: &[u8], to: &mut Vec<u8>) {
    let mut rest = row;
    while let Some(first) = rest.first() {
        let run = rest.iter().take(MOST).take_while(|byte| *byte == first).count();
        let length = match run {
            2.. => run,
            // Up to where three are equal: a run of two between others gains nothing.
            _ => rest
                .windows(3)
                .take(MOST)
                .position(|three| three.iter().all(|byte| Some(byte) == three.first()))
                .unwrap_or(rest.len())
                .min(MOST),
        };
        let (these, others) = rest.split_at(length);
        if run >= 2 {
            to.extend([(257 - run) as u8, *first]);
        } else {
            to.push((length - 1) as u8);
            to.extend(these);
        }
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_as_the_standard_has_them() {
        let packed = |row: &[u8]| {
            let mut to = Vec::new();
            pack(row, &mut to);
            to
        };
        assert_eq!(packed(&[7; 300]), [129, 7, 129, 7, 213, 7]);
        assert_eq!(packed(&[9]), [0, 9]);
        // The example of Apple's Technical Note 1023, which PackBits is from.
        let (mut row, a) = (vec![0xAA, 0xAA, 0xAA, 0x80, 0, 0x2A], [0xAA; 10]);
        row.extend(&a[..4]);
        row.extend([0x80, 0, 0x2A, 0x22]);
        row.extend(a);
        let known =
            [0xFE, 0xAA, 0x02, 0x80, 0x00, 0x2A, 0xFD, 0xAA, 0x03, 0x80, 0x00, 0x2A, 0x22, 0xF7, 0xAA];
        assert_eq!(packed(&row), known);
    }

    /// Decodes run lengths as a reader does: one segment after the other, each from its offset to the number of pixels.
    fn decode(encoded: &[u8], segments: usize, pixels: usize) -> Vec<u8> {
        let word = |at: usize| u32::from_le_bytes(encoded[4 * at..4 * at + 4].try_into().unwrap()) as usize;
        assert_eq!(word(0), segments);
        let mut decoded = Vec::new();
        for segment in 1..=segments {
            let mut rest = &encoded[word(segment)..];
            while decoded.len() < segment * pixels {
                let count = usize::from(rest[0]);
                if count < 128 {
                    decoded.extend_from_slice(&rest[1..count + 2]);
                    rest = &rest[count + 2..];
                } else {
                    decoded.extend(std::iter::repeat_n(rest[1], 257 - count));
                    rest = &rest[2..];
                }
            }
        }
        assert_eq!(decoded.len(), segments * pixels);
        decoded
    }

    proptest! {
        #[test]
        fn planes_are_decoded_to_themselves_within_what_was_reserved(
            columns in 1usize..300,
            bytes in 1usize..=2,
            labels in prop::collection::vec((0u16..400, 1usize..200), 1..40),
        ) {
            let most = if bytes == 1 { 256 } else { 65_536 };
            let runs = labels.iter().map(|(label, run)| (u32::from(*label) * 163 % most, run));
            let mut plane: Vec<u16> =
                runs.flat_map(|(label, run)| std::iter::repeat_n(label as u16, *run)).collect();
            plane.resize(plane.len().next_multiple_of(columns), 3);
            let rows = plane.len() / columns;
            let budget = Budget::new(Bytes::mib(4));
            let mut encoder = RunLengths::new(bytes, [rows, columns], &budget).unwrap();
            let capacity = encoder.encoded.capacity();
            let encoded = encoder.encode(&plane).to_vec();
            prop_assert!(encoded.len().is_multiple_of(2) && encoded.len() <= capacity);
            let decoded = decode(&encoded, bytes, plane.len());
            let found: Vec<u16> = match bytes {
                1 => decoded.iter().map(|byte| u16::from(*byte)).collect(),
                _ => decoded
                    .iter()
                    .zip(&decoded[plane.len()..])
                    .map(|(high, low)| u16::from_be_bytes([*high, *low]))
                    .collect(),
            };
            prop_assert_eq!(found, plane);
        }
    }
}
