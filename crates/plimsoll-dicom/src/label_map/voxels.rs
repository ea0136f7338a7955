//! The voxels of a segmentation, one plane of its grid at a time.

use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{SegmentCoding, VolumeError, VoxelSource};

use super::coding::Coded;
use super::description::{Description, Kind};
use super::grid::{Placed, PlacedFrame};
use crate::DicomError;
use crate::elements::{Pixels, read_meta};
use crate::error::added;
use crate::header::{Header, READING, Slice};
use crate::pixels::{Decoder, decoding_bytes};
use crate::reader::Reader;

/// Frames that are further beside the voxels of their grid are reported, as a share of a voxel.
const NOTABLE: f64 = 0.05;

/// A segmentation on a grid.
pub(super) struct SegmentationVoxels {
    description: Description,
    placed: Placed,
    coded: Coded,
    /// The shape of the grid.
    shape: [usize; 3],
    /// The memory for the description.
    kept: Bytes,
    prepared: Option<Prepared>,
}

/// Room for a plane and for decoding a frame.
struct Prepared {
    frames: FrameDecoder,
    plane: Mapped<u8>,
    /// The plane that is composed.
    number: Option<usize>,
    budget: Budget,
    _kept: Reservation,
}

/// Decodes frames.
enum FrameDecoder {
    /// Each frame by itself.
    Whole(Box<Decoder>),
    /// Single bits that follow each other without a gap from frame to frame: the bits of one frame, or of all if the file cannot be
    /// read from anywhere.
    Bits { bytes: Mapped<u8>, has_all: bool },
}

/// The pixels of a frame.
enum Frame<'a> {
    Numbers(&'a [u16]),
    /// Bytes of eight pixels, each in a number.
    Bytes(&'a [u16]),
    /// Bytes of eight pixels, and the first of the frame's bits in them.
    Bits(&'a [u8], usize),
}

impl Frame<'_> {
    /// The number of a pixel; `None` beyond the frame.
    fn at(&self, pixel: usize) -> Option<u16> {
        match self {
            Frame::Numbers(numbers) => numbers.get(pixel).copied(),
            Frame::Bytes(bytes) => Some(bytes.get(pixel / 8)? >> (pixel % 8) & 1),
            Frame::Bits(bytes, first) => {
                let bit = first + pixel;
                Some(u16::from(bytes.get(bit / 8)? >> (bit % 8) & 1))
            }
        }
    }
}

impl SegmentationVoxels {
    pub(super) fn new(
        description: Description,
        placed: Placed,
        coded: Coded,
        shape: [usize; 3],
        kept: Bytes,
    ) -> SegmentationVoxels {
        SegmentationVoxels { description, placed, coded, shape, kept, prepared: None }
    }
}

/// Returns `true` if the bytes of a file can only be read from its beginning.
fn is_forward(header: &Header) -> bool {
    !header.place.can_seek() || header.syntax.is_deflated
}

impl FrameDecoder {
    fn new(description: &Description, budget: &Budget) -> Result<FrameDecoder, DicomError> {
        let header = &description.header;
        match (&header.pixels, description.is_bits) {
            (Pixels::Plain { .. }, true) => {
                let has_all = is_forward(header);
                let length = if has_all { header.rows * header.columns } else { bits_bytes(description) };
                let mut bytes = Mapped::zeroed(budget, "pixels of DICOM as they are stored", length)?;
                if has_all {
                    let _reading = budget.reserve("a file of DICOM", READING)?;
                    fill(header, 0, &mut bytes)?;
                }
                Ok(FrameDecoder::Bits { bytes, has_all })
            }
            _ => Ok(FrameDecoder::Whole(Box::new(Decoder::new(header.rows * header.columns, budget)?))),
        }
    }

    fn decode(
        &mut self,
        description: &Description,
        frame: u32,
        budget: &Budget,
    ) -> Result<Frame<'_>, DicomError> {
        let header = &description.header;
        match self {
            FrameDecoder::Whole(decoder) => {
                let slice = Slice { header: Arc::clone(header), frame, plane: description.plane };
                let numbers = decoder.decode(&slice)?;
                // A frame of single bits was decoded as one row of bytes.
                Ok(if description.is_bits { Frame::Bytes(numbers) } else { Frame::Numbers(numbers) })
            }
            FrameDecoder::Bits { bytes, has_all } => {
                let [rows, columns] = description.size;
                let first = frame as usize * rows * columns;
                if *has_all {
                    return Ok(Frame::Bits(bytes, first));
                }
                let _reading = budget.reserve("a file of DICOM", READING)?;
                let end = (first + rows * columns).div_ceil(8);
                let length = (end - first / 8).min(bytes.len());
                fill(header, (first / 8) as u64, &mut bytes[..length])?;
                Ok(Frame::Bits(bytes, first % 8))
            }
        }
    }
}

/// The most bytes that the single bits of one frame are in.
fn bits_bytes(description: &Description) -> usize {
    let [rows, columns] = description.size;
    (rows * columns).div_ceil(8) + 1
}

/// Reads stored bytes of pixels that are not compressed, from this one on.
fn fill(header: &Header, first: u64, bytes: &mut [u8]) -> Result<(), DicomError> {
    let Pixels::Plain { at, .. } = &header.pixels else {
        let why = "its pixels are in fragments".into();
        return Err(DicomError::Pixels { path: header.place.path().into(), why });
    };
    let mut reader: Reader<'_> = header.place.open()?;
    if header.syntax.is_deflated {
        reader = read_meta(reader)?.1;
    }
    reader.skip_to(at + first)?;
    reader.fill(bytes)
}

/// The error of a frame with a pixel that lies outside of the grid or that the decoder did not deliver.
fn outside(description: &Description, frame: &PlacedFrame) -> DicomError {
    let why = format!("frame {} has pixels outside of the grid, or fewer than its size", frame.frame + 1);
    DicomError::Pixels { path: description.path().into(), why }
}

/// Puts the segments of pixels together.
struct Composer<'a> {
    description: &'a Description,
    coded: &'a Coded,
}

impl Composer<'_> {
    /// The value of a voxel that had `before`, with a pixel of a frame of this segment; `None` if the pixel is of no segment that the file
    /// has, or of another one than before where segments may not overlap.
    fn with(&self, before: u8, segment: u16, pixel: u16) -> Option<u8> {
        let number = match self.description.kind {
            Kind::LabelMap { .. } => pixel,
            Kind::Binary if pixel == 0 => return Some(before),
            Kind::Fractional { most } if pixel == 0 || u32::from(pixel) * 2 < u32::from(most) => {
                return Some(before);
            }
            Kind::Binary | Kind::Fractional { .. } => segment,
        };
        let own = self.coded.code(number)?;
        match (self.coded.segments.coding, before) {
            (SegmentCoding::Sets, before) => Some(before | own),
            (_, 0) => Some(own),
            // Two segments of one name are one.
            (_, before) => self.has_one_name(before, own).then_some(before),
        }
    }

    fn has_one_name(&self, one: u8, other: u8) -> bool {
        self.coded.segments.names_of(one) == self.coded.segments.names_of(other)
    }

    /// The error of a pixel that has no value with what was before.
    fn refuse(&self, before: u8, frame: &PlacedFrame, pixel: u16, voxel: [usize; 3]) -> VolumeError {
        let path = self.description.path().to_path_buf();
        let number =
            if matches!(self.description.kind, Kind::LabelMap { .. }) { pixel } else { frame.segment };
        match self.coded.code(number) {
            Some(own) => {
                let segments = [before, own].map(|code| self.coded.segments.names_of(code).join(", "));
                VolumeError::Overlap { path, voxel, segments }
            }
            None => VolumeError::NoSegment { path, voxel, layer: 0, value: number.into() },
        }
    }
}

impl SegmentationVoxels {
    /// A plane of the grid, composed of the frames that are in it.
    fn plane(&mut self, number: usize) -> Result<&[u8], VolumeError> {
        let SegmentationVoxels { description, placed, coded, shape: [_, _, width], prepared, .. } = self;
        let Some(prepared) = prepared else {
            return Err(VolumeError::NotDecoded { path: description.path().into() });
        };
        if prepared.number == Some(number) {
            return Ok(&prepared.plane);
        }
        prepared.number = None;
        prepared.plane.fill(0);
        let composer = Composer { description, coded };
        let first = placed.frames.partition_point(|frame| frame.slice < number);
        let [rows, columns] = description.size;
        for frame in placed.frames.iter().skip(first).take_while(|frame| frame.slice == number) {
            let pixels = prepared.frames.decode(description, frame.frame, &prepared.budget).map_err(added)?;
            let along = |axis: usize, at: usize| match placed.is_reversed[axis] {
                true => frame.start[axis] - at,
                false => frame.start[axis] + at,
            };
            for row in 0..rows {
                let height = along(0, row);
                for column in 0..columns {
                    let voxel = [number, height, along(1, column)];
                    let to = prepared.plane.get_mut(voxel[1] * *width + voxel[2]);
                    let (Some(to), Some(pixel)) = (to, pixels.at(row * columns + column)) else {
                        return Err(added(outside(description, frame)));
                    };
                    let with = composer.with(*to, frame.segment, pixel);
                    *to = with.ok_or_else(|| composer.refuse(*to, frame, pixel, voxel))?;
                }
            }
        }
        prepared.number = Some(number);
        Ok(&prepared.plane)
    }
}

impl VoxelSource for SegmentationVoxels {
    fn read(&mut self, _channel: usize, mut first: usize, mut bytes: &mut [u8]) -> Result<(), VolumeError> {
        let [_, height, width] = self.shape;
        let pixels = height * width;
        while !bytes.is_empty() {
            let (number, at) = (first / pixels, first % pixels);
            let plane = self.plane(number)?;
            let count = (pixels - at).min(bytes.len());
            let (to, rest) = std::mem::take(&mut bytes).split_at_mut(count);
            to.copy_from_slice(&plane[at..at + count]);
            (bytes, first) = (rest, first + count);
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        let mapped = |bytes: usize| Mapped::<u8>::bytes(bytes).unwrap_or(Bytes(u64::MAX));
        let header = &self.description.header;
        let [_, height, width] = self.shape;
        let of_frame = match (&header.pixels, self.description.is_bits) {
            (Pixels::Plain { .. }, true) if is_forward(header) => {
                mapped(header.rows * header.columns) + READING
            }
            (Pixels::Plain { .. }, true) => mapped(bits_bytes(&self.description)) + READING,
            _ => (0..header.frames).map(|frame| decoding_bytes(header, frame)).max().unwrap_or(Bytes::ZERO),
        };
        self.kept + mapped(height * width) + of_frame
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.prepared.is_none() {
            let _kept =
                budget.reserve("a segmentation of DICOM", self.kept).map_err(|error| added(error.into()))?;
            let [_, height, width] = self.shape;
            let plane = Mapped::zeroed(budget, "a plane of labels", height * width);
            let plane = plane.map_err(|error| added(error.into()))?;
            let frames = FrameDecoder::new(&self.description, budget).map_err(added)?;
            self.prepared = Some(Prepared { frames, plane, number: None, budget: budget.clone(), _kept });
        }
        Ok(())
    }

    fn is_random_access(&self) -> bool {
        self.prepared.is_some()
    }

    fn frame_of_reference(&self) -> Option<&str> {
        self.description.header.frame_of_reference.as_deref()
    }

    fn warnings(&self) -> Vec<String> {
        let path = self.description.path().display();
        let halves = matches!(self.description.kind, Kind::Fractional { .. }).then(|| {
            format!("{path} is fractional: a voxel is in a segment if its value is at least half of MaximumFractionalValue")
        });
        let beside = self.placed.beside;
        let beside = (beside > NOTABLE).then(|| {
            format!("frames of {path} are up to {beside:.2} voxels off the grid, and are moved onto it")
        });
        halves.into_iter().chain(beside).collect()
    }
}
