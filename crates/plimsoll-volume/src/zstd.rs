//! Decompressing Zstandard (RFC 8878): frame after frame, within a window that is looked at before.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use plimsoll_disk::File;
use plimsoll_image::{Panicked, run_decoder};
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::forward::{pass, peek};

/// What a frame begins with.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The largest window: that which RFC 8878 asks decoders for, and which `zstd` stays within up to level 19.
pub(crate) const MOST_WINDOW: u64 = 8 << 20;

/// What a decompressor with a window takes for each byte of it: its buffer grows to the next power of two while the old one is still there.
const FOR_EACH_OF_WINDOW: u64 = 4;

/// What it takes beside: tables and a block.
const BESIDE_WINDOW: u64 = 1 << 20;

/// Bytes that decompressing within a window takes.
pub(crate) fn room(window: u64) -> u64 {
    window * FOR_EACH_OF_WINDOW + BESIDE_WINDOW
}

/// Bytes that [`decompress`] takes for so many bytes: its buffer holds a window, and what is decoded at a time, but no more than there is.
pub(crate) fn room_for(bytes: u64) -> u64 {
    const AT_ONCE: u64 = 1 << 20;
    room((MOST_WINDOW + AT_ONCE).min(bytes.next_power_of_two()))
}

/// Decompresses whole frames into a buffer that they fill.
///
/// # Errors
/// If they are damaged, have a larger window than is read, or stand for more or fewer bytes.
pub(crate) fn decompress(frames: &[u8], to: &mut [u8]) -> io::Result<()> {
    let mut decoder = decoder(MOST_WINDOW);
    let length = to.len();
    let found = guarded(|| decoder.decode_all(frames, to))?;
    if let Some(stored) = decoder.get_checksum_from_data()
        && decoder.get_calculated_checksum() != Some(stored)
    {
        return Err(wrong("the checksum of a frame is not that of its data".into()));
    }
    match found == length {
        true => Ok(()),
        false => Err(wrong(format!("it stands for {found} bytes, not {length}"))),
    }
}

/// The longest header of a frame.
const HEADER: usize = 18;

/// The most that one compressed byte can stand for: a block of four bytes repeats one 2¹⁷ times.
pub(crate) const MOST_EXPANDED: u64 = 1 << 15;

/// Frames of a file, one after the other.
pub(crate) struct Frames {
    file: BufReader<File>,
    decoder: FrameDecoder,
    /// Of the first frame, by which memory is reserved; others may not have a larger one.
    window: u64,
    is_inside: bool,
}

impl Frames {
    /// The frames from the present place of a file on.
    ///
    /// # Errors
    /// If the file cannot be read, begins with no frame, or the window is larger than is read.
    pub(crate) fn new(mut file: BufReader<File>) -> io::Result<Frames> {
        skip_skippable(&mut file)?;
        let mut header = [0; HEADER];
        let length = peek(&mut file, &mut header)?;
        let found = header.get(..length).and_then(window);
        let window = found.ok_or_else(|| wrong("it does not begin with a frame of Zstandard".into()))?;
        if window > MOST_WINDOW {
            return Err(wrong(format!(
                "its window has {window} bytes, and one of up to {MOST_WINDOW} is read: compress it without --long or --ultra"
            )));
        }
        Ok(Frames { file, decoder: decoder(window), window, is_inside: false })
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Goes back to the first frame, which is at this place of the file, with nothing held but the file's buffer.
    pub(crate) fn rewind(&mut self, start: SeekFrom) -> io::Result<()> {
        self.file.seek(start)?;
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
            if let Some(stored) = self.decoder.get_checksum_from_data()
                && self.decoder.get_calculated_checksum() != Some(stored)
            {
                return Err(wrong("the checksum of a frame is not that of its data".into()));
            }
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
    let error = match run_decoder(step) {
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

/// Passes over frames of other programs' data.
fn skip_skippable(file: &mut BufReader<File>) -> io::Result<()> {
    loop {
        let mut start = [0; 8];
        let length = peek(file, &mut start)?;
        let [a, b, c, d, size @ ..] = start;
        let magic = u32::from_le_bytes([a, b, c, d]);
        if length < start.len() || magic & !0xf != 0x184d_2a50 {
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
