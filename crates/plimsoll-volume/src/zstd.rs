//! Zstandard (RFC 8878): decompressing frame after frame, within a window that is checked before, and compressing into
//! frames of a block.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};

use plimsoll_disk::File;
use plimsoll_parallel::{Panicked, catch_panic};
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::buffered::{pass, peek};

/// The signature of a frame.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The largest window: that which RFC 8878 asks decoders for, and which `zstd` stays within up to level 19.
pub(crate) const MOST_WINDOW: u64 = 8 << 20;

/// The memory of a decompressor for each byte of its window: its buffer grows to the next power of two while the old one is still there.
const FOR_EACH_OF_WINDOW: u64 = 4;

/// The memory of a decompressor without its window: tables and a block.
const BESIDE_WINDOW: u64 = 1 << 20;

/// Bytes that decompressing within a window takes.
pub(crate) fn room(window: u64) -> u64 {
    window * FOR_EACH_OF_WINDOW + BESIDE_WINDOW
}

/// The largest window of frames that decompress to this number of bytes: data compressed as a stream have the window of
/// their level, however short they are.
fn window_for(bytes: u64) -> u64 {
    /// The window of levels up to 3, with which programs compress by default.
    const USUAL: u64 = 2 << 20;
    bytes.checked_next_power_of_two().unwrap_or(MOST_WINDOW).clamp(USUAL, MOST_WINDOW)
}

/// The memory that [`decompress`] takes for this number of bytes, whatever the frames claim.
pub(crate) fn room_for(bytes: u64) -> u64 {
    room(window_for(bytes))
}

/// Decompresses whole frames into a buffer that they fill.
///
/// # Errors
/// Returns an error if a frame is damaged or does not match its checksum, has a larger window than is supported, or if
/// the frames decompress to more or fewer bytes.
pub(crate) fn decompress(mut frames: &[u8], to: &mut [u8]) -> io::Result<()> {
    let length = to.len();
    let mut decoder = decoder(window_for(length as u64));
    let mut filled = 0;
    while !frames.is_empty() {
        if let Some(behind) = behind_skippable(frames)? {
            frames = behind;
            continue;
        }
        guarded(|| decoder.init(&mut frames))?;
        while !decoder.is_finished() || decoder.can_collect() > 0 {
            if !decoder.is_finished() {
                guarded(|| decoder.decode_blocks(&mut frames, BlockDecodingStrategy::UptoBlocks(1)))?;
            }
            filled += decoder.read(&mut to[filled..])?;
            if decoder.can_collect() > 0 && filled == length {
                return Err(wrong(format!("it unpacks to more than {length} bytes")));
            }
        }
        expect_checksum(&decoder)?;
    }
    match filled == length {
        true => Ok(()),
        false => Err(wrong(format!("it unpacks to {filled} bytes, not {length}"))),
    }
}

/// Compares the checksum of a frame that was decompressed, if it has one.
fn expect_checksum(decoder: &FrameDecoder) -> io::Result<()> {
    match (decoder.get_checksum_from_data(), decoder.get_calculated_checksum()) {
        (Some(stored), calculated) if calculated != Some(stored) => {
            Err(wrong("the checksum of a frame does not match its data".into()))
        }
        _ => Ok(()),
    }
}

/// The bytes behind a frame of other programs' data; `None` if the next frame is none of these.
fn behind_skippable(frames: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some((start, rest)) = frames.split_first_chunk::<8>() else { return Ok(None) };
    let [a, b, c, d, size @ ..] = *start;
    if !is_skippable([a, b, c, d]) {
        return Ok(None);
    }
    let behind = usize::try_from(u32::from_le_bytes(size)).ok().and_then(|size| rest.get(size..));
    behind.map(Some).ok_or_else(|| wrong("it ends early".into()))
}

fn is_skippable(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xf == 0x184d_2a50
}

/// The longest header of a frame.
const HEADER: usize = 18;

/// The most bytes that one compressed byte can decompress to: a block of four bytes repeats one 2¹⁷ times.
pub(crate) const MOST_EXPANDED: u64 = 1 << 15;

/// Frames of a file, one after the other.
pub(crate) struct Frames {
    file: BufReader<File>,
    decoder: FrameDecoder,
    /// The window of the first frame, by which memory is reserved; others may not have a larger one.
    window: u64,
    is_inside: bool,
}

impl Frames {
    /// The frames of a file, which stands at its beginning.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, begins with no frame, or the window is larger than is supported.
    pub(crate) fn new(mut file: BufReader<File>) -> io::Result<Frames> {
        skip_skippable(&mut file)?;
        let mut header = [0; HEADER];
        let length = peek(&mut file, &mut header)?;
        let found = header.get(..length).and_then(window);
        let window = found.ok_or_else(|| wrong("it does not begin with a frame of Zstandard".into()))?;
        if window > MOST_WINDOW {
            return Err(wrong(format!(
                "its window has {window} bytes, more than {MOST_WINDOW}: compress it without --long or --ultra"
            )));
        }
        Ok(Frames { file, decoder: decoder(window), window, is_inside: false })
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Goes back to the beginning of the file, with nothing held but the file's buffer.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.decoder = decoder(self.window);
        self.is_inside = false;
        Ok(())
    }

    /// Reads the next bytes; 0 only at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let Frames { file, decoder, .. } = self;
            if !self.is_inside {
                skip_skippable(file)?;
                if file.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                guarded(|| decoder.init(&mut *file))?;
                self.is_inside = true;
            }
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                guarded(|| decoder.decode_blocks(&mut *file, BlockDecodingStrategy::UptoBlocks(1)))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            expect_checksum(&self.decoder)?;
            self.is_inside = false;
        }
    }
}

/// A decoder of frames with windows up to this, which holds nothing yet.
fn decoder(window: u64) -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(window);
    decoder
}

/// Runs the decoder. What it says of a file that cannot be read is what the system says; should it panic, that is an error, too.
fn guarded<T>(step: impl FnOnce() -> Result<T, FrameDecoderError>) -> io::Result<T> {
    let error = match catch_panic(step) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(Panicked) => return Err(wrong("the decoder failed on it".into())),
    };
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(found) = cause {
        if let Some(number) = found.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Err(io::Error::from_raw_os_error(number));
        }
        cause = found.source();
    }
    Err(wrong(error.to_string()))
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The bytes of a frame that is written: one block, beyond which the encoder finds no repetitions. Its tables grow with blocks: with the longest,
/// 128 KiB, it takes 1.7 MiB, with these 0.6.
const BLOCK: usize = 32 << 10;

/// A writer of frames of a block each, one after the other, with checksums.
pub(crate) struct FrameWriter<W> {
    to: W,
    /// The bytes that are not compressed yet, up to one frame.
    block: Vec<u8>,
    check: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    pub(crate) fn new(to: W) -> FrameWriter<W> {
        FrameWriter { to, block: Vec::with_capacity(BLOCK), check: Vec::new() }
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.write_frame()?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() {
            self.write_frame()?;
        }
        Ok(self.to)
    }

    /// Each frame is decompressed before it is written: an encoder that is wrong would change what is only seen when it is needed.
    fn write_frame(&mut self) -> io::Result<()> {
        let FrameWriter { to, block, check } = self;
        let frame = catch_panic(|| compress_to_vec(&block[..], CompressionLevel::Fastest));
        let frame = frame.map_err(|Panicked| wrong("the encoder failed".into()))?;
        check.resize(block.len(), 0);
        decompress(&frame, check)?;
        if check != block {
            return Err(wrong("the encoder changed what it compressed".into()));
        }
        to.write_all(&frame)?;
        block.clear();
        Ok(())
    }
}

/// Passes over frames of other programs' data.
fn skip_skippable(file: &mut BufReader<File>) -> io::Result<()> {
    loop {
        let mut start = [0; 8];
        let length = peek(file, &mut start)?;
        let [a, b, c, d, size @ ..] = start;
        if length < start.len() || !is_skippable([a, b, c, d]) {
            return Ok(());
        }
        pass(file, start.len() as u64 + u64::from(u32::from_le_bytes(size)))?;
    }
}

/// The window of a frame by its header (RFC 8878, 3.1.1.1); none if it is none.
fn window(header: &[u8]) -> Option<u64> {
    let (magic, rest) = header.split_first_chunk::<4>()?;
    let (descriptor, rest) = rest.split_first()?;
    if *magic != MAGIC {
        return None;
    }
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (rest.first()? >> 3, u64::from(rest.first()? & 7));
        let base = 1u64 << (10 + exponent);
        return Some(base + base / 8 * mantissa);
    }
    // A single segment: the window is all there is.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let digits = rest.get(dictionary..dictionary + length)?;
    let size = digits.iter().rev().fold(0u64, |sum, digit| sum << 8 | u64::from(*digit));
    Some(if length == 2 { size + 256 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of one block that repeats a byte, without a checksum, whose header claims a window (RFC 8878, 3.1.1.1.2).
    fn repeated(window: u8, byte: u8, count: u32) -> Vec<u8> {
        let [a, b, c, _] = (count << 3 | 3).to_le_bytes();
        [&MAGIC[..], &[0, window, a, b, c, byte]].concat()
    }

    #[test]
    fn frames_of_a_chunk_follow_each_other_and_fill_it() {
        let (usual, skipped) = (11 << 3, [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9]);
        let both = [repeated(usual, 7, 40), skipped.to_vec(), repeated(usual, 8, 24)].concat();
        let mut chunk = [0; 64];
        decompress(&both, &mut chunk).unwrap();
        assert!(chunk[..40].iter().all(|byte| *byte == 7) && chunk[40..].iter().all(|byte| *byte == 8));
        assert!(decompress(&both, &mut [0; 65]).is_err() && decompress(&both, &mut [0; 63]).is_err());
        assert!(decompress(&both[..both.len() - 1], &mut chunk).is_err());
        // A small chunk with the window of a large file: room for it was not reserved.
        let error = decompress(&repeated(12 << 3, 7, 64), &mut chunk).unwrap_err();
        assert!(error.to_string().contains("window"), "{error}");
    }

    #[test]
    fn what_is_written_in_parts_is_read_again() {
        for length in [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            for spread in [1, 3, 256] {
                let mix = |at: usize| (at.wrapping_mul(2_654_435_761) >> 12) % spread;
                let bytes: Vec<u8> = (0..length).map(|at| mix(at / 5) as u8).collect();
                let mut writer = FrameWriter::new(Vec::new());
                bytes.chunks(50_001).for_each(|part| writer.write_all(part).unwrap());
                let frames = writer.finish().unwrap();
                let mut read = vec![0; length];
                decompress(&frames, &mut read).unwrap();
                assert_eq!(read, bytes, "{length} {spread}");
            }
        }
    }

    #[test]
    fn the_checksum_of_each_frame_is_compared() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracles/formats/zstd_3.zarr/c/0/0/0");
        let frame = std::fs::read(path).unwrap();
        let mut twice = [0; 2 * 64];
        decompress(&[&frame[..], &frame].concat(), &mut twice).unwrap();
        assert_eq!(twice[..64], twice[64..]);
        let mut damaged = frame.clone();
        // Its last bytes are the checksum.
        *damaged.last_mut().unwrap() ^= 1;
        for frames in [[&damaged[..], &frame].concat(), [&frame[..], &damaged].concat()] {
            let error = decompress(&frames, &mut twice).unwrap_err();
            assert!(error.to_string().contains("checksum"), "{error}");
        }
    }
}
