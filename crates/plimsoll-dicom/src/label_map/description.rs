//! The description of a segmentation: its segments, its frames and how its pixels are stored.

use std::path::Path;
use std::sync::Arc;

use dicom_dictionary_std::tags;
use plimsoll_memory::{Budget, Bytes, Reservation};

use super::Frames;
use super::coding::{Coded, MOST_SEGMENTS};
use super::grid::PlacedFrame;
use crate::DicomError;
use crate::attributes::{
    Attribute, Attributes, BITS_ALLOCATED, CHARACTER_SET, CODE_MEANING, FRAME_OF_REFERENCE, FRAMES,
    MOST_FRACTION, MOST_VALUE, OVERLAP, PADDING, REFERENCED_SEGMENT, SEGMENT_LABEL, SEGMENT_NUMBER,
    SEGMENTATION_TYPE, SLICE_SPACING, SYNTAX,
};
use crate::elements::{Described, Pixels, read_elements, read_start};
use crate::error::SegmentationFault;
use crate::header::{Header, Plane, READING, Sample, expect_pixels, extent, frames, plane, stored_sample};
use crate::letters::{Letters, trimmed};
use crate::location::FileLocation;
use crate::reserved_list::ReservedList;
use crate::syntax::Syntax;

/// The type of a segmentation, and the meaning of its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A pixel of a frame is in the frame's segment if it is not 0.
    Binary,
    /// A pixel of a frame is in the frame's segment if it is at least half of `most`.
    Fractional {
        /// The value of a pixel that is in the segment entirely.
        most: u16,
    },
    /// A pixel is the number of its segment.
    LabelMap {
        /// The number of pixels that are in no segment, if it is stated.
        padding: Option<u16>,
    },
}

/// A segment as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u16,
    pub(super) name: String,
}

/// A frame as the file describes it, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    /// The centre of its first pixel, in LPS millimetres.
    pub(super) position: [f64; 3],
    /// The number of its segment; 0 of a label map, whose frames have all segments.
    pub(super) segment: u16,
}

/// A segmentation without its pixels.
pub(super) struct Description {
    /// The description as a header of slices, in which frames of single bits are one row of bytes.
    pub(super) header: Arc<Header>,
    /// Rows and columns of a frame, in pixels.
    pub(super) size: [usize; 2],
    /// Tells whether pixels are single bits.
    pub(super) is_bits: bool,
    pub(super) kind: Kind,
    pub(super) segments: Vec<Segment>,
    /// Tells whether the file excludes that segments overlap.
    pub(super) is_disjoint: bool,
    pub(super) frames: Frames,
    /// The directions, the spacing and the thickness that all frames have.
    pub(super) plane: Plane,
    /// Millimetres from plane to plane, if stated.
    pub(super) between: Option<f64>,
    /// Room for names and headers.
    _held: Reservation,
}

/// The segments and frames that are collected while the elements of a file are read.
struct Collected {
    segments: Vec<Segment>,
    frames: Frames,
    first: Option<(Plane, Option<f64>)>,
}

impl Description {
    /// Reads the description of a segmentation and compares the lengths in it with the length of the file.
    ///
    /// # Errors
    /// Returns an error if the file is damaged or contradicts itself, or the budget has no room.
    pub(super) fn read(place: FileLocation, budget: &Budget) -> Result<Description, DicomError> {
        let refuse = |fault| DicomError::Segmentation { path: place.path().into(), fault };
        let _reading = budget.reserve("a header of DICOM", READING)?;
        let texts = Bytes::from_len((MOST_SEGMENTS + 2) * (size_of::<Segment>() + 2 * MOST_VALUE));
        let held = budget.reserve("segments of DICOM", texts + Bytes::from_len(size_of::<Header>()))?;
        let (meta, reader) = read_start(&place)?;
        let mut all = Collected {
            segments: Vec::new(),
            frames: ReservedList::new(budget, "frames of DICOM"),
            first: None,
        };
        let contents = read_elements(reader, meta.syntax, &[], budget, &mut |item| match item {
            Described::Segment(of) => all.add_segment(&of),
            Described::Frame(of) => all.add_frame(of),
        })?;
        let levels = [&contents.root];
        let of = Attributes { path: place.path(), frame: None, levels: &levels };
        let Some(syntax) = meta.syntax else {
            let uid = &meta.syntax_uid;
            return Err(of.wrong(
                SYNTAX,
                format!("is {uid}, which is not supported: decompress it, for example with `gdcmconv --raw`"),
            ));
        };
        if syntax.is_lossy {
            return Err(refuse(SegmentationFault::Lossy { syntax: syntax.name }));
        }
        let (rows, columns) = extent(&of)?;
        let count = frames(&of)?;
        if contents.described != count {
            let described = contents.described;
            return Err(
                of.wrong(FRAMES, format!("is {count}, but positions of {described} frames are given"))
            );
        }
        let kind = Kind::read(&of)?;
        let (is_bits, sample) = pixels_of(&of, kind, syntax)?;
        let Some((plane, between)) = all.first else { return Err(refuse(SegmentationFault::NoSegments)) };
        let pixels = contents.pixels.ok_or_else(|| DicomError::Unreadable {
            path: place.path().into(),
            why: "it has no pixels".into(),
        })?;
        let stored = if is_bits { stored_bits([rows, columns], count, &pixels) } else { [rows, columns] };
        let header = Header {
            series: String::new(),
            instance: None,
            frame_of_reference: of.text(FRAME_OF_REFERENCE),
            what: String::new(),
            rows: stored[0],
            columns: stored[1],
            // Bits of frames follow each other without a gap: they are one piece.
            frames: if is_bits && matches!(pixels, Pixels::Plain { .. }) { 1 } else { count },
            sample,
            syntax,
            pixels,
            lossy: None,
            tilt: None,
            place: place.clone(),
        };
        expect_pixels(&header)?;
        let description = Description {
            header: Arc::new(header),
            size: [rows, columns],
            is_bits,
            kind,
            is_disjoint: of.text(OVERLAP).is_some_and(|found| found == "NO"),
            segments: all.segments,
            frames: all.frames,
            plane,
            between,
            _held: held,
        };
        description.expect_segments()?;
        Ok(description)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        self.header.place.path()
    }

    /// The error of a segmentation that cannot be read for this reason.
    pub(super) fn refuse(&self, fault: SegmentationFault) -> DicomError {
        DicomError::Segmentation { path: self.path().into(), fault }
    }

    /// The names of the values that voxels are read as, and the value of each segment.
    ///
    /// # Errors
    /// Returns an error if two frames are of one segment and at one place.
    pub(super) fn coded(&self, frames: &[PlacedFrame]) -> Result<Coded, DicomError> {
        let pairs = || frames.iter().zip(frames.iter().skip(1));
        if let Some((one, other)) =
            pairs().find(|(one, other)| one.slice == other.slice && one.segment == other.segment)
        {
            let (one, other) = (one.frame + 1, other.frame + 1);
            return Err(self.refuse(SegmentationFault::Twice { one, other }));
        }
        let may_overlap = !self.is_disjoint && pairs().any(|(one, other)| one.slice == other.slice);
        Ok(Coded::new(&self.segments, self.kind, may_overlap))
    }

    /// Checks that the numbers of segments and of frames agree.
    fn expect_segments(&self) -> Result<(), DicomError> {
        if self.segments.is_empty() {
            return Err(self.refuse(SegmentationFault::NoSegments));
        }
        for (at, segment) in self.segments.iter().enumerate() {
            let same = |other: &&Segment| other.number == segment.number;
            if let Some(one) = self.segments.iter().take(at).find(same) {
                let (one, other) = (one.name.clone(), segment.name.clone());
                let fault = SegmentationFault::OneNumber { one, other, number: segment.number };
                return Err(self.refuse(fault));
            }
        }
        if matches!(self.kind, Kind::LabelMap { .. }) {
            // The background of a label map is described as a segment, too.
            return match self.segments.len() > MOST_SEGMENTS + 1 {
                true => Err(self.refuse(SegmentationFault::TooManySegments { most: MOST_SEGMENTS })),
                false => Ok(()),
            };
        }
        if self.segments.len() > MOST_SEGMENTS {
            return Err(self.refuse(SegmentationFault::TooManySegments { most: MOST_SEGMENTS }));
        }
        if let Some(zero) = self.segments.iter().find(|segment| segment.number == 0) {
            return Err(self.refuse(SegmentationFault::NumberZero { name: zero.name.clone() }));
        }
        let is_unknown = |frame: &Frame| !self.segments.iter().any(|segment| segment.number == frame.segment);
        match (1..).zip(&*self.frames).find(|(_, frame)| is_unknown(frame)) {
            Some((frame, Frame { segment, .. })) => {
                Err(self.refuse(SegmentationFault::UnknownSegment { frame, number: *segment }))
            }
            None => Ok(()),
        }
    }
}

impl Collected {
    fn add_segment(&mut self, of: &Attributes<'_>) -> Result<(), DicomError> {
        let number = short(of, SEGMENT_NUMBER)?;
        let number = number.ok_or_else(|| of.wrong(SEGMENT_NUMBER, "is missing"))?;
        let named = |attribute: Attribute, tag| {
            let name = of.value(attribute).map(|bytes| text(of, tag, bytes)).transpose()?;
            Ok::<_, DicomError>(name.filter(|name| !name.is_empty()))
        };
        let name = match named(SEGMENT_LABEL, tags::SEGMENT_LABEL)? {
            Some(name) => name,
            None => named(CODE_MEANING, tags::CODE_MEANING)?.unwrap_or_else(|| format!("Segment {number}")),
        };
        // One more than a label map may have is enough to refuse the file.
        if self.segments.len() < MOST_SEGMENTS + 2 {
            self.segments.push(Segment { number, name });
        }
        Ok(())
    }

    fn add_frame(&mut self, of: Attributes<'_>) -> Result<(), DicomError> {
        let (path, frame) = (of.path, of.frame.map_or(1, |frame| frame + 1));
        let segment = match of.text(SEGMENTATION_TYPE).as_deref() {
            Some(LABEL_MAP) => 0,
            _ => short(&of, REFERENCED_SEGMENT)?.ok_or_else(|| of.wrong(REFERENCED_SEGMENT, "is missing"))?,
        };
        let between = of.numbers::<1>(SLICE_SPACING)?.map(|[length]| length.abs());
        let own = plane(of, false)?;
        let (first, _) = self.first.get_or_insert((own, between.filter(|length| *length > 0.0)));
        let differs = |what| {
            let fault = SegmentationFault::Differs { frame, what };
            Err(DicomError::Segmentation { path: path.into(), fault })
        };
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= SAME;
        if !own.directions.as_flattened().iter().zip(first.directions.as_flattened()).all(is_near) {
            return differs("its directions");
        }
        if !own.spacing.iter().zip(&first.spacing).all(is_near) {
            return differs("its spacing");
        }
        Ok(self.frames.push(Frame { position: own.position, segment })?)
    }
}

/// The most by which directions and spacings of frames may differ: files have few digits.
const SAME: f64 = 1e-3;

const BINARY: &str = "BINARY";
const FRACTIONAL: &str = "FRACTIONAL";
const LABEL_MAP: &str = "LABELMAP";

impl Kind {
    fn read(of: &Attributes<'_>) -> Result<Kind, DicomError> {
        let found = of.text(SEGMENTATION_TYPE).ok_or_else(|| of.wrong(SEGMENTATION_TYPE, "is missing"))?;
        match found.as_str() {
            BINARY => Ok(Kind::Binary),
            FRACTIONAL => {
                let most = short(of, MOST_FRACTION)?.filter(|most| *most > 0);
                let most = most.ok_or_else(|| of.wrong(MOST_FRACTION, "is missing or 0"))?;
                Ok(Kind::Fractional { most })
            }
            LABEL_MAP => Ok(Kind::LabelMap { padding: short(of, PADDING)? }),
            _ => {
                let fault = SegmentationFault::Type { found };
                Err(DicomError::Segmentation { path: of.path.into(), fault })
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Binary => BINARY,
            Kind::Fractional { .. } => FRACTIONAL,
            Kind::LabelMap { .. } => LABEL_MAP,
        }
    }
}

/// A whole number of 16 bits; `None` if the attribute has no value.
fn short(of: &Attributes<'_>, attribute: Attribute) -> Result<Option<u16>, DicomError> {
    // Numbers of this kind were read from 16 bits.
    Ok(of.numbers::<1>(attribute)?.map(|[number]| number as u16))
}

/// A text in the character set of the file.
fn text(of: &Attributes<'_>, tag: dicom_object::Tag, bytes: &[u8]) -> Result<String, DicomError> {
    let set = of.value(CHARACTER_SET);
    let letters =
        Letters { path: of.path, set: set.map(String::from_utf8_lossy), texts: "the names of segments" };
    let found = set.map(|set| (tags::SPECIFIC_CHARACTER_SET, set)).into_iter().chain([(tag, bytes)]);
    let object = letters.decode(found)?;
    let element = object.get(tag).and_then(|element| element.to_str().ok());
    let text = element.ok_or_else(|| DicomError::Unreadable {
        path: of.path.into(),
        why: "the name of a segment is no text".into(),
    })?;
    Ok(trimmed(&text).replace(char::is_control, " "))
}

/// Reads whether pixels are single bits, and their storage: single bits are stored as bytes of eight.
fn pixels_of(of: &Attributes<'_>, kind: Kind, syntax: &Syntax) -> Result<(bool, Sample), DicomError> {
    let refuse = |bits| {
        let fault = SegmentationFault::Bits { kind: kind.name(), bits };
        DicomError::Segmentation { path: of.path.into(), fault }
    };
    let [allocated] = of.need::<1>(BITS_ALLOCATED)?;
    if allocated == 1.0 {
        return match kind {
            Kind::Binary => Ok((true, Sample { bytes: 1, bits: 8, is_signed: false })),
            _ => Err(refuse(1)),
        };
    }
    let sample = stored_sample(of, syntax)?;
    match kind {
        Kind::Binary | Kind::Fractional { .. } if sample.bytes != 1 => Err(refuse(allocated as u32)),
        _ => Ok((false, Sample { is_signed: false, ..sample })),
    }
}

/// The rows and columns of bytes that frames of single bits are stored as: all in one piece, or each frame in whole bytes.
fn stored_bits([rows, columns]: [usize; 2], frames: u32, pixels: &Pixels) -> [usize; 2] {
    let of_frame = rows.saturating_mul(columns);
    let bits = match pixels {
        Pixels::Plain { .. } => of_frame.saturating_mul(frames as usize),
        Pixels::Fragments(_) => of_frame,
    };
    [1, bits.div_ceil(8)]
}
