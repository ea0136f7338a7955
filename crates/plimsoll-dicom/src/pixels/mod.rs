//! Pixels of a slice as they are stored, however they are compressed.
//!
//! Run lengths and lossless JPEG are decoded here, straight into the plane. Other decoders are libraries' own: what they are given is checked
//! before (that the image in it has the extent that the file says, and nothing in it asks for more memory than that), what they may take
//! is reserved, and should one panic, which no file should make it do, that is an error, too.

mod codestream;
mod jpeg;
mod jpeg_2000;
mod jpeg_lossless;
mod jpeg_ls;
mod markers;
mod run_lengths;

use std::io::{self, Read};
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_parallel::{Panicked, catch_panic};

use crate::DicomError;
use crate::elements::{Pixels, read_meta};
use crate::header::{Header, READING, Sample, Slice};
use crate::reader::Reader;
use crate::syntax::{Coding, Order};

/// The image that is to come out.
#[derive(Clone, Copy, Debug)]
struct Expected {
    rows: usize,
    columns: usize,
    sample: Sample,
}

impl Expected {
    fn count(self) -> usize {
        self.rows * self.columns
    }
}

/// The failure of a decoder: no room, or damaged data.
enum Failed {
    OverBudget(plimsoll_memory::OverBudget),
    Damaged(String),
}

impl From<plimsoll_memory::OverBudget> for Failed {
    fn from(error: plimsoll_memory::OverBudget) -> Failed {
        Failed::OverBudget(error)
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed::Damaged(why)
    }
}

impl From<&str> for Failed {
    fn from(why: &str) -> Failed {
        Failed::Damaged(why.into())
    }
}

/// The memory of decoders of whole images for each pixel, for each compressed byte, and in addition. Codestreams in layers and
/// small blocks may need more: then decoding them is refused.
const FOR_EACH_PIXEL: u64 = 48;
const FOR_EACH_BYTE: u64 = 16;
const BESIDE: u64 = 8 << 20;

/// The most that a decoder of one frame holds: the decoded pixels, the frame as it is stored, and the room of its codec.
pub(crate) fn decoding_bytes(header: &Header, frame: u32) -> Bytes {
    // Stored bytes are mapped in whole pages, too.
    const PAGES: Bytes = Bytes(8 << 10);
    let pixels = header.rows as u64 * header.columns as u64;
    let is_forward = !header.place.can_seek() || header.syntax.is_deflated;
    let bytes = match &header.pixels {
        // If bytes cannot be sought, the bytes of all frames stay in memory.
        Pixels::Plain { length, .. } if is_forward => u64::from(*length),
        Pixels::Plain { .. } => header.frame_bytes(),
        Pixels::Fragments(all) if is_forward && header.frames > 1 => {
            all.fragments.last().map_or(0, |last| last.end - all.start)
        }
        Pixels::Fragments(all) => all.frame(frame, header.frames).map_or(0, |frame| frame.most_bytes()),
    };
    let codec = match header.syntax.coding {
        Coding::Plain(_) => bytes * 2,
        _ => bytes * FOR_EACH_BYTE + pixels * FOR_EACH_PIXEL + BESIDE,
    };
    let plane = Mapped::<u16>::bytes(header.rows * header.columns).unwrap_or(Bytes(u64::MAX));
    plane + Bytes(codec) + READING + PAGES
}

/// Decodes slices, one after the other.
pub(crate) struct Decoder {
    budget: Budget,
    plane: Mapped<u16>,
    /// The pixels of a file of many frames that can only be read forwards, from this byte on.
    held: Option<(Arc<Header>, u64, Mapped<u8>)>,
}

impl Decoder {
    /// A decoder of slices of this number of pixels.
    pub(crate) fn new(pixels: usize, budget: &Budget) -> Result<Decoder, DicomError> {
        Ok(Decoder {
            budget: budget.clone(),
            plane: Mapped::zeroed(budget, "pixels of DICOM", pixels)?,
            held: None,
        })
    }

    /// The stored pixels of a slice in order, in the low bits.
    ///
    /// # Errors
    /// Returns an error if the pixels cannot be read, do not match the file's attributes, or the budget has no room for
    /// the compressed pixels and for decoding them.
    pub(crate) fn decode(&mut self, slice: &Slice) -> Result<&[u16], DicomError> {
        let header = &slice.header;
        let unreadable = |why: String| DicomError::Pixels {
            path: header.place.path().into(),
            why: match header.frames {
                1 => why,
                _ => format!("frame {}: {why}", slice.frame + 1),
            },
        };
        let _reading = self.budget.reserve("a file of DICOM", READING)?;
        let (stored, length) = self.stored(slice).map_err(|error| match error {
            Stored::Dicom(error) => error,
            Stored::Why(why) => unreadable(why),
        })?;
        let bytes = stored.get(..length).unwrap_or(&stored);
        let Header { rows, columns, sample, .. } = **header;
        let expected = Expected { rows, columns, sample };
        let plane = self
            .plane
            .get_mut(..expected.count())
            .ok_or_else(|| unreadable("it is larger than the others".into()))?;
        let decoded = match header.syntax.coding {
            Coding::Plain(order) => plain(bytes, order, sample, plane),
            Coding::Deflated => inflate(bytes, expected, plane, &self.budget),
            Coding::RunLengths => run_lengths::decode(bytes, sample.bytes, plane).map_err(Failed::from),
            Coding::JpegLossless => jpeg_lossless::decode(bytes, expected, plane).map_err(Failed::from),
            Coding::JpegLs => guarded(|| jpeg_ls::decode(bytes, expected, plane, &self.budget)),
            Coding::Jpeg => guarded(|| jpeg::decode(bytes, expected, plane, &self.budget)),
            Coding::Jpeg2000 => guarded(|| jpeg_2000::decode(bytes, expected, plane, &self.budget)),
        };
        decoded.map_err(|failed| match failed {
            Failed::OverBudget(error) => error.into(),
            Failed::Damaged(why) => unreadable(why),
        })?;
        let is_image = matches!(
            header.syntax.coding,
            Coding::Jpeg | Coding::JpegLossless | Coding::JpegLs | Coding::Jpeg2000
        );
        // What is not an image of its own is made of whole cells, whose upper bits mean nothing.
        if is_image && let Some(beyond) = plane.iter().find(|stored| !sample.holds(**stored)) {
            return Err(unreadable(format!("it has a pixel of {beyond}, but BitsStored is {}", sample.bits)));
        }
        Ok(&self.plane)
    }

    /// The bytes of a slice as they are stored, and how many of the buffer they are.
    fn stored(&mut self, slice: &Slice) -> Result<(Mapped<u8>, usize), Stored> {
        let (header, budget) = (&slice.header, self.budget.clone());
        let is_forward = !header.place.can_seek() || header.syntax.is_deflated;
        let whole = if is_forward && header.frames > 1 { Some(self.hold(header)?) } else { None };
        let mut reader = match whole {
            Some((at, bytes)) => Reader::over(header.place.path(), bytes, at),
            None if header.syntax.is_deflated => read_meta(header.place.open()?)?.1,
            None => header.place.open()?,
        };
        match &header.pixels {
            Pixels::Plain { at, .. } => {
                let frame = header.frame_bytes();
                let mut buffer = buffer(&budget, frame)?;
                reader.skip_to(at + frame * u64::from(slice.frame))?;
                reader.fill(&mut buffer)?;
                let length = buffer.len();
                Ok((buffer, length))
            }
            Pixels::Fragments(fragments) => {
                let frame = fragments.frame(slice.frame, header.frames).map_err(Stored::Why)?;
                let mut buffer = buffer(&budget, frame.most_bytes())?;
                let length = frame.read(&mut reader, &mut buffer)?;
                Ok((buffer, length))
            }
        }
    }

    /// The pixels of all frames of a file, and where they begin in it.
    fn hold(&mut self, header: &Arc<Header>) -> Result<(u64, &[u8]), Stored> {
        if self.held.as_ref().is_none_or(|(held, ..)| !Arc::ptr_eq(held, header)) {
            self.held = None;
            let (at, end) = match &header.pixels {
                Pixels::Plain { at, length } => (*at, at + u64::from(*length)),
                Pixels::Fragments(all) => {
                    (all.start, all.fragments.last().map_or(all.start, |last| last.end))
                }
            };
            let mut reader = header.place.open()?;
            if header.syntax.is_deflated {
                reader = read_meta(reader)?.1;
            }
            let mut bytes = buffer(&self.budget, end - at)?;
            reader.skip_to(at)?;
            reader.fill(&mut bytes)?;
            self.held = Some((Arc::clone(header), at, bytes));
        }
        match &self.held {
            Some((_, at, bytes)) => Ok((*at, bytes)),
            None => Err(Stored::Why("its pixels are not in memory".into())),
        }
    }
}

/// Why pixels cannot be read.
enum Stored {
    Dicom(DicomError),
    Why(String),
}

impl From<DicomError> for Stored {
    fn from(error: DicomError) -> Stored {
        Stored::Dicom(error)
    }
}

fn buffer(budget: &Budget, bytes: u64) -> Result<Mapped<u8>, DicomError> {
    // What is longer than any address is refused by the budget.
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    Ok(Mapped::zeroed(budget, "pixels of DICOM as they are stored", length)?)
}

/// Runs a decoder that is a library's.
fn guarded(decode: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    catch_panic(decode)
        .unwrap_or_else(|Panicked| Err("its pixels are damaged: the decoder failed on them".into()))
}

/// Pixels that are stored as they are.
fn plain(bytes: &[u8], order: Order, sample: Sample, plane: &mut [u16]) -> Result<(), Failed> {
    match (sample.bytes, order) {
        (1, _) => plane.iter_mut().zip(bytes).for_each(|(to, byte)| *to = u16::from(*byte)),
        (_, order) => {
            let number = match order {
                Order::Little => u16::from_le_bytes,
                Order::Big => u16::from_be_bytes,
            };
            plane.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(to, pair)| *to = number(*pair));
        }
    }
    Ok(())
}

/// A frame that is deflated.
fn inflate(bytes: &[u8], expected: Expected, plane: &mut [u16], budget: &Budget) -> Result<(), Failed> {
    let length = expected.count() * expected.sample.bytes;
    let _held = budget.reserve("pixels of DICOM inflated", Bytes::from_len(length))?;
    let mut inflated = vec![0; length];
    DeflateDecoder::new(bytes).read_exact(&mut inflated).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "its pixels are cut off".to_string(),
        _ => error.to_string(),
    })?;
    plain(&inflated, Order::Little, expected.sample, plane)
}
