//! What a slice says of itself, before its pixels.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use dicom_object::{DefaultDicomObject, OpenFileOptions, Tag};
use plimsoll_memory::{Budget, Bytes};

use crate::DicomError;
use crate::layout::bytes_but_pixels;
use crate::pixels::{Encoding, Sample};

/// Classes whose objects are slices of volumes: CT, MR, PET.
const SLICES: [&str; 3] =
    ["1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.128"];
const SERIES: Tag = Tag(0x0020, 0x000E);
const DESCRIPTION: Tag = Tag(0x0008, 0x103E);
const MODALITY: Tag = Tag(0x0008, 0x0060);
const SLICE_THICKNESS: Tag = Tag(0x0018, 0x0050);
const POSITION: Tag = Tag(0x0020, 0x0032);
const ORIENTATION: Tag = Tag(0x0020, 0x0037);
const SAMPLES: Tag = Tag(0x0028, 0x0002);
const PHOTOMETRIC: Tag = Tag(0x0028, 0x0004);
const FRAMES: Tag = Tag(0x0028, 0x0008);
const ROWS: Tag = Tag(0x0028, 0x0010);
const COLUMNS: Tag = Tag(0x0028, 0x0011);
const PIXEL_SPACING: Tag = Tag(0x0028, 0x0030);
const BITS_ALLOCATED: Tag = Tag(0x0028, 0x0100);
const BITS_STORED: Tag = Tag(0x0028, 0x0101);
const HIGH_BIT: Tag = Tag(0x0028, 0x0102);
const REPRESENTATION: Tag = Tag(0x0028, 0x0103);
const INTERCEPT: Tag = Tag(0x0028, 0x1052);
const SLOPE: Tag = Tag(0x0028, 0x1053);
const PIXELS: Tag = Tag(0x7FE0, 0x0010);

/// What stands before a file of DICOM: 128 bytes of anything, and these.
pub(crate) const MAGIC: (usize, &[u8; 4]) = (128, b"DICM");

/// A slice, but for its pixels.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) path: PathBuf,
    /// Bytes of the file.
    pub(crate) length: u64,
    /// The unique number of its series.
    pub(crate) series: String,
    /// Modality and description, for people.
    pub(crate) what: String,
    /// Of the centre of the first pixel, in LPS millimetres.
    pub(crate) position: [f64; 3],
    /// Directions of rows (along which columns count) and of columns, of length 1.
    pub(crate) directions: [[f64; 3]; 2],
    /// Millimetres between rows, and between columns.
    pub(crate) spacing: [f64; 2],
    /// Where a slice stands alone: how thick it is.
    pub(crate) thickness: Option<f64>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// From stored values to real ones.
    pub(crate) slope: f64,
    pub(crate) intercept: f64,
    /// The least and the largest value that may be stored.
    pub(crate) stored: [f64; 2],
    pub(crate) sample: Sample,
}

/// Whether a file begins as DICOM does.
pub(crate) fn is_dicom(path: &Path) -> Result<bool, DicomError> {
    let io = |source| DicomError::Io { path: path.into(), source };
    let mut start = Vec::with_capacity(MAGIC.0 + MAGIC.1.len());
    let file = plimsoll_disk::File::open(path).map_err(io)?;
    file.take((MAGIC.0 + MAGIC.1.len()) as u64).read_to_end(&mut start).map_err(io)?;
    Ok(start.get(MAGIC.0..) == Some(MAGIC.1))
}

/// What an element may take in memory, for each of its bytes: a text of one letter is the worst.
const GROWTH: u64 = 32;

/// Looks over a file before it is opened, and returns what all but its pixels may take in memory.
///
/// # Errors
/// If an element is longer than the file, or sequences are nested too deep.
pub(crate) fn opened_bytes(path: &Path) -> Result<Bytes, DicomError> {
    Ok(Bytes(bytes_but_pixels(path)?.saturating_mul(GROWTH)))
}

/// Opens a file up to its pixels, or with them. It must have been looked over before.
pub(crate) fn open(path: &Path, with_pixels: bool) -> Result<DefaultDicomObject, DicomError> {
    let file =
        plimsoll_disk::File::open(path).map_err(|source| DicomError::Io { path: path.into(), source })?;
    let options = OpenFileOptions::new();
    let options = if with_pixels { options } else { options.read_until(PIXELS) };
    options
        .from_reader(BufReader::new(file))
        .map_err(|error| DicomError::Unreadable { path: path.into(), why: chain(&error) })
}

/// What an error says, with what is behind it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let all: Vec<String> =
        std::iter::successors(Some(error), |error| error.source()).map(|error| error.to_string()).collect();
    all.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Attributes of a file.
struct Attributes<'a> {
    path: &'a Path,
    object: &'a DefaultDicomObject,
}

impl Attributes<'_> {
    fn wrong(&self, attribute: &'static str, why: impl Into<String>) -> DicomError {
        DicomError::Attribute { path: self.path.into(), attribute, why: why.into() }
    }

    fn text(&self, tag: Tag) -> Option<String> {
        let text = self.object.get(tag)?.to_str().ok()?;
        // Padding of an even length.
        Some(text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).replace(char::is_control, " "))
    }

    fn numbers<const N: usize>(&self, tag: Tag, name: &'static str) -> Result<Option<[f64; N]>, DicomError> {
        let Some(element) = self.object.get(tag).filter(|element| element.value().multiplicity() > 0) else {
            return Ok(None);
        };
        let found = element.to_multi_float64().map_err(|error| self.wrong(name, chain(&error)))?;
        let count = found.len();
        let numbers: [f64; N] =
            found.try_into().map_err(|_| self.wrong(name, format!("has {count} numbers, not {N}")))?;
        match numbers.iter().all(|number| number.is_finite()) {
            true => Ok(Some(numbers)),
            false => Err(self.wrong(name, "is not finite")),
        }
    }

    fn need<const N: usize>(&self, tag: Tag, name: &'static str) -> Result<[f64; N], DicomError> {
        self.numbers(tag, name)?.ok_or_else(|| self.wrong(name, "is missing"))
    }

    fn number(&self, tag: Tag, name: &'static str, usual: f64) -> Result<f64, DicomError> {
        Ok(self.numbers::<1>(tag, name)?.map_or(usual, |[number]| number))
    }
}

/// Reads the header of a slice; none where the file is no image of pixels: reports, structures, the folder of a disk.
pub(crate) fn read(path: &Path, budget: &Budget) -> Result<Option<Header>, DicomError> {
    let metadata =
        plimsoll_disk::metadata(path).map_err(|source| DicomError::Io { path: path.into(), source })?;
    let _opened = budget.reserve("a header of DICOM", opened_bytes(path)?)?;
    let object = open(path, false)?;
    let kind = object.meta().media_storage_sop_class_uid.trim_end_matches('\0');
    let of = Attributes { path, object: &object };
    // A slice without rows is cut off; a report or the folder of a disk has none.
    if object.get(ROWS).is_none() && !SLICES.contains(&kind) {
        return Ok(None);
    }
    let [rows] = of.need::<1>(ROWS, "Rows")?;
    let [columns] = of.need::<1>(COLUMNS, "Columns")?;
    if rows < 1.0 || columns < 1.0 {
        return Err(of.wrong("Rows", format!("and Columns are {rows} and {columns}")));
    }
    if of.number(SAMPLES, "SamplesPerPixel", 1.0)? != 1.0 {
        return Err(of.wrong("SamplesPerPixel", "is not 1: its pixels are colours"));
    }
    if let Some(photometric) = of.text(PHOTOMETRIC)
        && !["MONOCHROME1", "MONOCHROME2"].contains(&photometric.as_str())
    {
        return Err(
            of.wrong("PhotometricInterpretation", format!("is {photometric}: its pixels are no intensities"))
        );
    }
    if of.number(FRAMES, "NumberOfFrames", 1.0)? != 1.0 {
        return Err(of.wrong("NumberOfFrames", "is not 1: files of many slices are not read"));
    }
    let directions = of.need::<6>(ORIENTATION, "ImageOrientationPatient")?;
    let [x0, x1, x2, y0, y1, y2] = directions;
    let directions = [[x0, x1, x2], [y0, y1, y2]];
    let product = dot(directions[0], directions[1]);
    let is_unit = |direction: [f64; 3]| (dot(direction, direction) - 1.0).abs() < 1e-3;
    if !directions.into_iter().all(is_unit) || product.abs() > 1e-3 {
        return Err(of.wrong("ImageOrientationPatient", "is not of two directions at right angles"));
    }
    let spacing = of.need::<2>(PIXEL_SPACING, "PixelSpacing")?;
    if spacing.iter().any(|length| *length <= 0.0) {
        return Err(of.wrong("PixelSpacing", format!("is {} and {} mm", spacing[0], spacing[1])));
    }
    let [bits] = of.need::<1>(BITS_STORED, "BitsStored")?;
    let [allocated] = of.need::<1>(BITS_ALLOCATED, "BitsAllocated")?;
    let bytes = match allocated {
        8.0 => 1,
        16.0 => 2,
        _ => {
            return Err(
                of.wrong("BitsAllocated", format!("is {allocated}: pixels of 8 and 16 bits are read"))
            );
        }
    };
    if !(1.0..=allocated).contains(&bits) {
        return Err(of.wrong("BitsStored", format!("is {bits}, of {allocated}")));
    }
    let high = of.number(HIGH_BIT, "HighBit", bits - 1.0)?;
    if high != bits - 1.0 {
        return Err(
            of.wrong("HighBit", format!("is {high}, but the highest of {bits} bits is {}", bits - 1.0))
        );
    }
    let slope = of.number(SLOPE, "RescaleSlope", 1.0)?;
    if slope == 0.0 {
        return Err(of.wrong("RescaleSlope", "is 0: all pixels would be the same"));
    }
    let syntax = object.meta().transfer_syntax();
    let encoding = Encoding::of(syntax).ok_or_else(|| {
        of.wrong("TransferSyntaxUID", format!("is {syntax}: decompress it, as `gdcmconv --raw` does"))
    })?;
    let most = bits.exp2();
    let is_signed = of.number(REPRESENTATION, "PixelRepresentation", 0.0)? == 1.0;
    let what: Vec<String> = [MODALITY, DESCRIPTION].into_iter().filter_map(|tag| of.text(tag)).collect();
    Ok(Some(Header {
        path: path.into(),
        length: metadata.len(),
        series: of.text(SERIES).ok_or_else(|| of.wrong("SeriesInstanceUID", "is missing"))?,
        what: what.join(" "),
        position: of.need(POSITION, "ImagePositionPatient")?,
        directions,
        spacing,
        thickness: of.numbers::<1>(SLICE_THICKNESS, "SliceThickness")?.map(|[length]| length),
        rows: rows as usize,
        columns: columns as usize,
        slope,
        intercept: of.number(INTERCEPT, "RescaleIntercept", 0.0)?,
        sample: Sample { encoding, bytes, bits: bits as u32, is_signed },
        stored: if is_signed { [-most / 2.0, most / 2.0 - 1.0] } else { [0.0, most - 1.0] },
    }))
}

pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
