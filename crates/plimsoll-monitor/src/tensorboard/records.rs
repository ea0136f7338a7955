//! TFRecord: length as u64, its checksum, the bytes, their checksum; numbers are little-endian.
//!
//! Checksums are CRC-32C, rotated and shifted by a constant: `tensorflow/core/lib/hash/crc32c.h`.

use std::io::{self, BufReader, Read};
use std::path::Path;

use crc32c::crc32c;
use plimsoll_disk::File;
use prost::Message;

use super::Event;

/// The largest record that is read: larger than any picture that is written, which has about a million pixels.
const LARGEST: u64 = 4 << 20;

/// The checksum that a record has of bytes.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// An event as a record.
pub(super) fn record(event: &Event) -> Vec<u8> {
    let bytes = event.encode_to_vec();
    let length = (bytes.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(bytes.len() + 16);
    record.extend(length);
    record.extend(masked_crc32c(&length).to_le_bytes());
    record.extend(&bytes);
    record.extend(masked_crc32c(&bytes).to_le_bytes());
    record
}

/// Passes each event of a file, with where in the file its record ends, until the function returns false, or to the first record that is torn
/// or damaged.
///
/// # Errors
/// If the file cannot be read.
pub fn each_event(path: &Path, mut each: impl FnMut(Event, u64) -> bool) -> io::Result<()> {
    let file = File::open(path)?;
    let size = file.len()?;
    let mut file = BufReader::new(file);
    let mut end = 0;
    while let Some(bytes) = next(&mut file, size - end)? {
        end += bytes.len() as u64 + 16;
        let Ok(event) = Event::decode(&bytes[..]) else { return Ok(()) };
        if !each(event, end) {
            return Ok(());
        }
    }
    Ok(())
}

/// The bytes of the next record of a file with `left` bytes left; `None` if it is incomplete.
fn next(file: &mut impl Read, left: u64) -> io::Result<Option<Vec<u8>>> {
    if left < 16 {
        return Ok(None);
    }
    let (mut length, mut sum) = ([0; 8], [0; 4]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut sum)?;
    let count = u64::from_le_bytes(length);
    if masked_crc32c(&length) != u32::from_le_bytes(sum) || count > LARGEST.min(left - 16) {
        return Ok(None);
    }
    let mut bytes = vec![0; count as usize];
    file.read_exact(&mut bytes)?;
    file.read_exact(&mut sum)?;
    Ok((masked_crc32c(&bytes) == u32::from_le_bytes(sum)).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4, and the check value of CRC-32C.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // tensorboard.compat.tensorflow_stub.pywrap_tensorflow.masked_crc32c(b"123456789")
        assert_eq!(masked_crc32c(b"123456789"), 0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn a_torn_or_damaged_record_ends_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let event = |step| Event { step, ..Event::default() };
        let whole: Vec<u8> = (1..=3).flat_map(|step| record(&event(step))).collect();
        let steps = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut steps = Vec::new();
            each_event(&path, |event, end| {
                steps.push((event.step, end as usize));
                true
            })
            .unwrap();
            steps
        };
        let third = whole.len() / 3;
        assert_eq!(steps(&whole), [(1, third), (2, 2 * third), (3, 3 * third)]);
        for torn in 2 * third..whole.len() {
            assert_eq!(steps(&whole[..torn]).len(), 2, "{torn}");
        }
        for damaged in third..2 * third {
            let mut bytes = whole.clone();
            bytes[damaged] ^= 0x40;
            assert_eq!(steps(&bytes).len(), 1, "{damaged}");
        }
    }
}
