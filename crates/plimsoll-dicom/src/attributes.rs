//! The attributes that are read, and their values. All others are passed over.

use std::path::Path;

use crate::DicomError;
use crate::syntax::Order;

/// Group and element of an attribute.
pub(crate) type Tag = (u16, u16);

/// The kind of value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text for people, of which at most [`MOST_VALUE`] bytes are kept.
    Description,
    /// A unique number, or letters that mean something.
    Code,
    /// Numbers in decimal digits (DS, IS).
    Decimals,
    /// Numbers of 16 bits.
    Shorts,
    /// Items that have attributes.
    Sequence,
}

/// An attribute that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) tag: Tag,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// The most bytes of a value: six decimal numbers have 101, a text of 64 letters up to 256.
pub(crate) const MOST_VALUE: usize = 512;

macro_rules! attributes {
    ($($name:ident = $tag:expr, $says:literal, $kind:ident;)*) => {
        $(pub(crate) const $name: Attribute = Attribute { tag: $tag, name: $says, kind: Kind::$kind };)*
        /// All of them.
        static ALL: [Attribute; [$(Kind::$kind),*].len()] = [$($name),*];
    };
}

attributes! {
    CLASS = (0x0002, 0x0002), "MediaStorageSOPClassUID", Code;
    SYNTAX = (0x0002, 0x0010), "TransferSyntaxUID", Code;
    CHARACTER_SET = (0x0008, 0x0005), "SpecificCharacterSet", Description;
    INSTANCE = (0x0008, 0x0018), "SOPInstanceUID", Code;
    MODALITY = (0x0008, 0x0060), "Modality", Description;
    DESCRIPTION = (0x0008, 0x103E), "SeriesDescription", Description;
    CODE_MEANING = (0x0008, 0x0104), "CodeMeaning", Description;
    SLICE_THICKNESS = (0x0018, 0x0050), "SliceThickness", Decimals;
    ECHO_TIME = (0x0018, 0x0081), "EchoTime", Decimals;
    SLICE_SPACING = (0x0018, 0x0088), "SpacingBetweenSlices", Decimals;
    GANTRY_TILT = (0x0018, 0x1120), "GantryDetectorTilt", Decimals;
    SERIES = (0x0020, 0x000E), "SeriesInstanceUID", Code;
    ACQUISITION = (0x0020, 0x0012), "AcquisitionNumber", Decimals;
    POSITION = (0x0020, 0x0032), "ImagePositionPatient", Decimals;
    ORIENTATION = (0x0020, 0x0037), "ImageOrientationPatient", Decimals;
    FRAME_OF_REFERENCE = (0x0020, 0x0052), "FrameOfReferenceUID", Code;
    TEMPORAL_POSITION = (0x0020, 0x0100), "TemporalPositionIdentifier", Decimals;
    SAMPLES = (0x0028, 0x0002), "SamplesPerPixel", Shorts;
    PHOTOMETRIC = (0x0028, 0x0004), "PhotometricInterpretation", Code;
    FRAMES = (0x0028, 0x0008), "NumberOfFrames", Decimals;
    ROWS = (0x0028, 0x0010), "Rows", Shorts;
    COLUMNS = (0x0028, 0x0011), "Columns", Shorts;
    PIXEL_SPACING = (0x0028, 0x0030), "PixelSpacing", Decimals;
    BITS_ALLOCATED = (0x0028, 0x0100), "BitsAllocated", Shorts;
    BITS_STORED = (0x0028, 0x0101), "BitsStored", Shorts;
    HIGH_BIT = (0x0028, 0x0102), "HighBit", Shorts;
    REPRESENTATION = (0x0028, 0x0103), "PixelRepresentation", Shorts;
    PADDING = (0x0028, 0x0120), "PixelPaddingValue", Shorts;
    INTERCEPT = (0x0028, 0x1052), "RescaleIntercept", Decimals;
    SLOPE = (0x0028, 0x1053), "RescaleSlope", Decimals;
    LOSSY = (0x0028, 0x2110), "LossyImageCompression", Code;
    LOSSY_RATIO = (0x0028, 0x2112), "LossyImageCompressionRatio", Description;
    MODALITY_LUT = (0x0028, 0x3000), "ModalityLUTSequence", Sequence;
    SEGMENTATION_TYPE = (0x0062, 0x0001), "SegmentationType", Code;
    SEGMENTS = (0x0062, 0x0002), "SegmentSequence", Sequence;
    SEGMENT_NUMBER = (0x0062, 0x0004), "SegmentNumber", Shorts;
    SEGMENT_LABEL = (0x0062, 0x0005), "SegmentLabel", Description;
    SEGMENT_IDENTIFICATION = (0x0062, 0x000A), "SegmentIdentificationSequence", Sequence;
    REFERENCED_SEGMENT = (0x0062, 0x000B), "ReferencedSegmentNumber", Shorts;
    MOST_FRACTION = (0x0062, 0x000E), "MaximumFractionalValue", Shorts;
    PROPERTY_TYPE = (0x0062, 0x000F), "SegmentedPropertyTypeCodeSequence", Sequence;
    OVERLAP = (0x0062, 0x0013), "SegmentsOverlap", Code;
    SHARED_GROUPS = (0x5200, 0x9229), "SharedFunctionalGroupsSequence", Sequence;
    FRAME_GROUPS = (0x5200, 0x9230), "PerFrameFunctionalGroupsSequence", Sequence;
    FRAME_CONTENT = (0x0020, 0x9111), "FrameContentSequence", Sequence;
    PLANE_POSITION = (0x0020, 0x9113), "PlanePositionSequence", Sequence;
    PLANE_ORIENTATION = (0x0020, 0x9116), "PlaneOrientationSequence", Sequence;
    PIXEL_MEASURES = (0x0028, 0x9110), "PixelMeasuresSequence", Sequence;
    PIXEL_VALUES = (0x0028, 0x9145), "PixelValueTransformationSequence", Sequence;
}

/// Pixels, of a file or of an icon within it.
pub(crate) const PIXELS: Tag = (0x7FE0, 0x0010);
/// The offset of each frame, in 64 bits.
pub(crate) const EXTENDED_OFFSETS: Tag = (0x7FE0, 0x0001);

/// The attribute that a tag is of, if it is read.
pub(crate) fn attribute(tag: Tag) -> Option<&'static Attribute> {
    ALL.iter().find(|attribute| attribute.tag == tag)
}

/// Values as they are in a file.
#[derive(Debug)]
pub(crate) struct Values {
    values: Vec<(Tag, Vec<u8>)>,
    order: Order,
}

impl Values {
    pub(crate) fn new(order: Order) -> Values {
        Values { values: Vec::new(), order }
    }

    /// Keeps a value. Of an attribute that is there twice, which none may be, it is the first.
    pub(crate) fn keep(&mut self, tag: Tag, bytes: &[u8]) {
        if self.get(tag).is_none() {
            self.values.push((tag, bytes.to_vec()));
        }
    }

    /// The bytes of a value.
    pub(crate) fn get(&self, tag: Tag) -> Option<&[u8]> {
        self.values.iter().find(|(other, _)| *other == tag).map(|(_, bytes)| bytes.as_slice())
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }

    /// A text, without what pads it.
    pub(crate) fn text(&self, of: Attribute) -> Option<String> {
        let text = String::from_utf8_lossy(self.get(of.tag)?);
        Some(text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).replace(char::is_control, " "))
    }
}

/// The attributes of an image or of a frame: what a frame does not say, all frames together or the file may.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) path: &'a Path,
    /// The frame, from 0 on, in a file of several.
    pub(crate) frame: Option<u32>,
    /// Those that count first are first.
    pub(crate) levels: &'a [&'a Values],
}

impl Attributes<'_> {
    pub(crate) fn wrong(&self, attribute: Attribute, why: impl Into<String>) -> DicomError {
        let why = why.into();
        let why = match self.frame {
            Some(frame) => format!("of frame {} {why}", frame + 1),
            None => why,
        };
        DicomError::Attribute { path: self.path.into(), attribute: attribute.name, why }
    }

    /// The first value that is not empty.
    fn bytes(&self, attribute: Attribute) -> Option<(&[u8], Order)> {
        let is_empty = |bytes: &[u8]| match attribute.kind {
            Kind::Shorts => bytes.is_empty(),
            _ => bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()),
        };
        self.levels.iter().find_map(|level| {
            let bytes = level.get(attribute.tag).filter(|bytes| !is_empty(bytes))?;
            Some((bytes, level.order))
        })
    }

    /// The value of an attribute as the file has it, if it is not empty.
    pub(crate) fn value(&self, attribute: Attribute) -> Option<&[u8]> {
        self.bytes(attribute).map(|(bytes, _)| bytes)
    }

    /// Returns `true` if the file has the attribute, with a value or without one.
    pub(crate) fn has(&self, attribute: Attribute) -> bool {
        self.levels.iter().any(|level| level.get(attribute.tag).is_some())
    }

    /// A text, if it is not empty.
    pub(crate) fn text(&self, attribute: Attribute) -> Option<String> {
        self.levels.iter().filter_map(|level| level.text(attribute)).find(|found| !found.is_empty())
    }

    /// So many numbers; none where there is no value.
    pub(crate) fn numbers<const N: usize>(
        &self,
        attribute: Attribute,
    ) -> Result<Option<[f64; N]>, DicomError> {
        let Some((bytes, order)) = self.bytes(attribute) else { return Ok(None) };
        let found: Vec<f64> = match attribute.kind {
            Kind::Shorts => {
                let (pairs, rest) = bytes.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(self.wrong(attribute, format!("has {} bytes", bytes.len())));
                }
                let number = |pair: &[u8; 2]| match order {
                    Order::Little => u16::from_le_bytes(*pair).into(),
                    Order::Big => u16::from_be_bytes(*pair).into(),
                };
                pairs.iter().map(number).collect()
            }
            _ => {
                let text = String::from_utf8_lossy(bytes);
                let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
                if text.is_empty() {
                    return Ok(None);
                }
                let number = |part: &str| {
                    let part = part.trim();
                    let why =
                        || self.wrong(attribute, format!("has `{}`, which is not a number", shown(part)));
                    part.parse::<f64>().map_err(|_| why())
                };
                text.split('\\').map(number).collect::<Result<_, _>>()?
            }
        };
        if found.is_empty() {
            return Ok(None);
        }
        let count = found.len();
        let numbers: [f64; N] =
            found.try_into().map_err(|_| self.wrong(attribute, format!("has {count} numbers, not {N}")))?;
        match numbers.iter().all(|number| number.is_finite()) {
            true => Ok(Some(numbers)),
            false => Err(self.wrong(attribute, "is not finite")),
        }
    }

    pub(crate) fn need<const N: usize>(&self, attribute: Attribute) -> Result<[f64; N], DicomError> {
        self.numbers(attribute)?.ok_or_else(|| self.wrong(attribute, "is missing"))
    }

    pub(crate) fn number(&self, attribute: Attribute, usual: f64) -> Result<f64, DicomError> {
        Ok(self.numbers::<1>(attribute)?.map_or(usual, |[number]| number))
    }
}

/// The beginning of a value for an error message, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(20).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
