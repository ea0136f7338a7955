//! The description that a file of DICOM has of itself, without its pixels.

use std::fmt;
use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes};

use crate::DicomError;
use crate::attributes::{
    ACQUISITION, Attributes, BITS_ALLOCATED, BITS_STORED, COLUMNS, DESCRIPTION, ECHO_TIME,
    FRAME_OF_REFERENCE, FRAMES, GANTRY_TILT, HIGH_BIT, INSTANCE, INTERCEPT, LOSSY, LOSSY_RATIO, MODALITY,
    MODALITY_LUT, MOST_VALUE, ORIENTATION, PHOTOMETRIC, PIXEL_SPACING, POSITION, REPRESENTATION, ROWS,
    SAMPLES, SERIES, SLICE_THICKNESS, SLOPE, SYNTAX, TEMPORAL_POSITION, Tag,
};
use crate::elements::{Described, Pixels, read_elements, read_start};
use crate::location::FileLocation;
use crate::reserved_list::ReservedList;
use crate::syntax::{Coding, Order, Syntax};

/// Classes whose objects are slices of volumes: CT, MR, PET; classes with many frames; and classes that were converted from many files.
const SLICES: [&str; 10] = [
    "1.2.840.10008.5.1.4.1.1.2",
    "1.2.840.10008.5.1.4.1.1.4",
    "1.2.840.10008.5.1.4.1.1.128",
    "1.2.840.10008.5.1.4.1.1.2.1",
    "1.2.840.10008.5.1.4.1.1.4.1",
    "1.2.840.10008.5.1.4.1.1.130",
    "1.2.840.10008.5.1.4.1.1.2.2",
    "1.2.840.10008.5.1.4.1.1.4.4",
    "1.2.840.10008.5.1.4.1.1.128.1",
    "1.2.840.10008.5.1.4.1.1.4.3",
];

/// Classes that have pixels and are not of the image itself: segmentations of both kinds, parametric maps, doses.
const BESIDE: [&str; 4] = [
    "1.2.840.10008.5.1.4.1.1.66.4",
    "1.2.840.10008.5.1.4.1.1.66.7",
    "1.2.840.10008.5.1.4.1.1.30",
    "1.2.840.10008.5.1.4.1.1.481.2",
];

/// The classes of CT, whose pixels are Hounsfield units only once they are rescaled.
const CT: [&str; 3] =
    ["1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2"];

/// The class of an object, as the object states it.
const OBJECT_CLASS: Tag = (0x0008, 0x0016);

/// The most that any length or position may be, in mm.
const MOST_LENGTH: f64 = 1e6;

/// The memory for reading a file without its frames: buffers, the state of one or two decompressors, values of at most
/// `MOST_VALUE` bytes each. `tests/reserved.rs` checks it with hostile files.
pub(crate) const READING: Bytes = Bytes(256 << 10);

/// The storage of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// One or two.
    pub(crate) bytes: usize,
    /// At most eight for each byte.
    pub(crate) bits: u32,
    pub(crate) is_signed: bool,
}

impl Sample {
    /// The number that the low bits of stored ones say.
    pub(crate) fn number(self, stored: u16) -> i32 {
        // The highest bit that is used is brought to the top, and back with its sign.
        let beyond = 32 - self.bits;
        match self.is_signed {
            true => ((u32::from(stored) << beyond) as i32) >> beyond,
            false => ((u32::from(stored) << beyond) >> beyond) as i32,
        }
    }

    /// Returns `true` if the bits of a decoded pixel above those that are stored are zeros or copies of the sign.
    pub(crate) fn holds(self, decoded: u16) -> bool {
        let is_small = u32::from(decoded) >> self.bits == 0;
        is_small || self.is_signed && self.number(decoded) == i32::from(decoded as i16)
    }
}

/// A file with slices.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) place: FileLocation,
    /// The unique number of its series.
    pub(crate) series: String,
    /// The unique number of what it holds; none where it says none.
    pub(crate) instance: Option<String>,
    /// The unique identifier of the frame of reference that positions are in, if the file states one.
    pub(crate) frame_of_reference: Option<String>,
    /// Modality and description, for people.
    pub(crate) what: String,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) frames: u32,
    pub(crate) sample: Sample,
    pub(crate) syntax: &'static Syntax,
    pub(crate) pixels: Pixels,
    /// The lossy compression of the pixels, here or before the file was made; `None` if there was none.
    pub(crate) lossy: Option<String>,
    /// Degrees by which the gantry was tilted, as the scanner says.
    pub(crate) tilt: Option<f64>,
}

/// The place of a frame and the meaning of its pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    /// The centre of the first pixel, in LPS millimetres.
    pub(crate) position: [f64; 3],
    /// Directions of rows (along which columns count) and of columns, of length 1.
    pub(crate) directions: [[f64; 3]; 2],
    /// Millimetres between rows, and between columns.
    pub(crate) spacing: [f64; 2],
    /// The thickness of the slice in mm, by which a single slice has a depth.
    pub(crate) thickness: Option<f64>,
    /// From stored values to real ones.
    pub(crate) slope: f64,
    pub(crate) intercept: f64,
    /// Numbers that may distinguish two slices at one place: acquisition, time, echo.
    pub(crate) among: [Option<f64>; 3],
}

/// The names of [`Plane::among`].
pub(crate) const AMONG: [&str; 3] = ["AcquisitionNumber", "TemporalPositionIdentifier", "EchoTime"];

impl Plane {
    /// In which of acquisition, time and echo two slices differ, with what they have.
    pub(crate) fn apart(&self, other: &Plane) -> Option<String> {
        let pairs = AMONG.iter().zip(self.among.iter().zip(&other.among));
        let told = pairs.filter_map(|(name, pair)| match pair {
            (Some(one), Some(other)) if one != other => Some(format!("{name} {one} and {other}")),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join(", "))
    }
}

/// A slice of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) header: Arc<Header>,
    /// The number of the frame in its file, from 0 on.
    pub(crate) frame: u32,
    pub(crate) plane: Plane,
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header.place.path().display().fmt(f)?;
        match self.header.frames {
            1 => Ok(()),
            _ => write!(f, " (frame {})", self.frame + 1),
        }
    }
}

impl Header {
    /// Bytes of a frame before it is compressed.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.rows as u64 * self.columns as u64).saturating_mul(self.sample.bytes as u64)
    }

    /// The memory of the header without lists that are reserved by themselves.
    pub(crate) fn kept_bytes(&self) -> Bytes {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let known = [&self.instance, &self.frame_of_reference, &self.lossy];
        let known: usize = known.into_iter().map(text).sum();
        let texts = self.series.capacity() + self.what.capacity() + known;
        // The counts of an `Arc` are beside it.
        let own = size_of::<Header>() + 2 * size_of::<usize>();
        Bytes((own + texts) as u64 + self.place.heap_bytes())
    }
}

/// Returns the class of the object in a file, without padding; `None` if the file does not state it.
///
/// # Errors
/// Returns an error if the file is damaged, or the budget has no room for reading it.
pub(crate) fn class(place: &FileLocation, budget: &Budget) -> Result<Option<String>, DicomError> {
    let (meta, _) = read_start(place)?;
    let class = match meta.class {
        Some(class) => Some(class),
        // Without a first group the object states itself what it is.
        None => {
            let [own] = &values(place, &[OBJECT_CLASS], budget)?[..] else { return Ok(None) };
            own.as_deref().map(|uid| String::from_utf8_lossy(uid).into_owned())
        }
    };
    Ok(class.map(|class| class.trim_matches(['\0', ' ']).to_string()))
}

/// Reads the slices of a file; none where it is no image of slices: reports, structures, segmentations, doses, the folder of a disk.
///
/// # Errors
/// Returns an error if the file is damaged, its attributes are missing or describe no slice, or the budget has no room
/// for its frames.
pub(crate) fn read(
    place: FileLocation,
    budget: &Budget,
) -> Result<Option<(Header, ReservedList<Plane>)>, DicomError> {
    let _reading = budget.reserve("a header of DICOM", READING)?;
    let (meta, reader) = read_start(&place)?;
    if meta.class.as_deref().is_some_and(|class| BESIDE.contains(&class)) {
        return Ok(None);
    }
    let is_ct = meta.class.as_deref().is_some_and(|class| CT.contains(&class));
    // Without a first group the object says itself what it is.
    let asked: &[Tag] = if meta.class.is_some() { &[] } else { &[OBJECT_CLASS] };
    let mut planes = ReservedList::new(budget, "frames of DICOM");
    let contents = read_elements(reader, meta.syntax, asked, budget, &mut |item| match item {
        Described::Frame(of) => Ok(planes.push(plane(of, is_ct)?)?),
        Described::Segment(_) => Ok(()),
    })?;
    let own = contents.root.get(OBJECT_CLASS).map(|uid| String::from_utf8_lossy(uid).into_owned());
    let class = meta.class.or(own).unwrap_or_default();
    let class = class.trim_matches(['\0', ' ']);
    if BESIDE.contains(&class) {
        return Ok(None);
    }
    let is_ct = CT.contains(&class);
    let levels = [&contents.root];
    let of = Attributes { path: place.path(), frame: None, levels: &levels };
    // A slice without rows is cut off; a report or the folder of a disk has none.
    if !of.has(ROWS) && !SLICES.contains(&class) {
        return Ok(None);
    }
    let Some(syntax) = meta.syntax else {
        let uid = &meta.syntax_uid;
        return Err(of.wrong(
            SYNTAX,
            format!("is {uid}, which is not supported: decompress it, for example with `gdcmconv --raw`"),
        ));
    };
    let (rows, columns) = extent(&of)?;
    let sample = sample(&of, syntax)?;
    let frames = frames(&of)?;
    if of.has(MODALITY_LUT) {
        return Err(of.wrong(MODALITY_LUT, "is a table of values, which is not supported"));
    }
    if contents.described == 0 && frames == 1 {
        let of = Attributes { levels: &[&contents.shared, &contents.root], ..of };
        planes.push(plane(of, is_ct)?)?;
    } else if contents.described != frames {
        let described = contents.described;
        return Err(of.wrong(FRAMES, format!("is {frames}, but positions of {described} frames are given")));
    }
    let shown: Vec<String> = [MODALITY, DESCRIPTION].into_iter().filter_map(|known| of.text(known)).collect();
    let lossy = lossy(&of, syntax);
    let header = Header {
        series: of.text(SERIES).ok_or_else(|| of.wrong(SERIES, "is missing"))?,
        instance: of.text(INSTANCE),
        frame_of_reference: of.text(FRAME_OF_REFERENCE),
        what: shown.join(" "),
        rows,
        columns,
        frames,
        sample,
        syntax,
        pixels: contents.pixels.ok_or_else(|| unreadable(&place, "it has no pixels".into()))?,
        lossy,
        tilt: of.numbers::<1>(GANTRY_TILT).ok().flatten().map(|[degrees]| degrees),
        place,
    };
    expect_pixels(&header)?;
    Ok(Some((header, planes)))
}

/// Values of a file as they are in it, one for each tag; none where it has none, or one that is longer than [`MOST_VALUE`].
///
/// # Errors
/// Returns an error if the file is damaged, or the budget has no room for reading it.
pub(crate) fn values(
    place: &FileLocation,
    tags: &[Tag],
    budget: &Budget,
) -> Result<Vec<Option<Vec<u8>>>, DicomError> {
    // Kept while it is read, and once more for the caller.
    let asked = Bytes::from_len(2 * tags.len() * MOST_VALUE);
    let _reading = budget.reserve("a header of DICOM", READING + asked)?;
    let (meta, reader) = read_start(place)?;
    let contents = read_elements(reader, meta.syntax, tags, budget, &mut |_| Ok(()))?;
    Ok(tags.iter().map(|tag| contents.root.get(*tag).map(<[u8]>::to_vec)).collect())
}

fn unreadable(place: &FileLocation, why: String) -> DicomError {
    DicomError::Unreadable { path: place.path().into(), why }
}

/// Checks that pixels are as many as they should be, and compressed as the file says; so the file's length bounds what is decoded.
pub(crate) fn expect_pixels(header: &Header) -> Result<(), DicomError> {
    let frames = u64::from(header.frames);
    match (&header.pixels, header.syntax.coding) {
        (Pixels::Plain { length, .. }, Coding::Plain(_)) => {
            let (found, needed) = (u64::from(*length), header.frame_bytes().saturating_mul(frames));
            // One more makes an odd length even.
            if found != needed && found != needed.next_multiple_of(2) {
                let why = format!("its pixels take {found} bytes instead of {needed}");
                return Err(unreadable(&header.place, why));
            }
            Ok(())
        }
        (Pixels::Fragments(fragments), Coding::Plain(_)) => {
            let pieces = fragments.fragments.len();
            let why =
                format!("its pixels are in {pieces} fragments, but its transfer syntax is uncompressed");
            Err(unreadable(&header.place, why))
        }
        (Pixels::Plain { .. }, _) => {
            let why = format!("its pixels are not in fragments, as {} requires", header.syntax.name);
            Err(unreadable(&header.place, why))
        }
        (Pixels::Fragments(fragments), _) => (0..header.frames).try_for_each(|frame| {
            fragments.frame(frame, header.frames).map_err(|why| unreadable(&header.place, why)).map(drop)
        }),
    }
}

pub(crate) fn extent(of: &Attributes<'_>) -> Result<(usize, usize), DicomError> {
    let [rows] = of.need::<1>(ROWS)?;
    let [columns] = of.need::<1>(COLUMNS)?;
    if rows < 1.0 || columns < 1.0 {
        return Err(of.wrong(ROWS, format!("and Columns are {rows} and {columns}")));
    }
    Ok((rows as usize, columns as usize))
}

pub(crate) fn frames(of: &Attributes<'_>) -> Result<u32, DicomError> {
    let frames = of.number(FRAMES, 1.0)?;
    match frames.fract() == 0.0 && (1.0..f64::from(u32::MAX)).contains(&frames) {
        true => Ok(frames as u32),
        false => Err(of.wrong(FRAMES, format!("is {frames}"))),
    }
}

fn sample(of: &Attributes<'_>, syntax: &Syntax) -> Result<Sample, DicomError> {
    let photometric = of.text(PHOTOMETRIC).ok_or_else(|| of.wrong(PHOTOMETRIC, "is missing"))?;
    if !["MONOCHROME1", "MONOCHROME2"].contains(&photometric.as_str()) {
        return Err(of.wrong(PHOTOMETRIC, format!("is {photometric}: its pixels are not intensities")));
    }
    stored_sample(of, syntax)
}

/// The sample of pixels of one channel, whatever their numbers mean.
pub(crate) fn stored_sample(of: &Attributes<'_>, syntax: &Syntax) -> Result<Sample, DicomError> {
    if of.need::<1>(SAMPLES)? != [1.0] {
        return Err(of.wrong(SAMPLES, "is not 1: its pixels are colours"));
    }
    let [bits] = of.need::<1>(BITS_STORED)?;
    let [allocated] = of.need::<1>(BITS_ALLOCATED)?;
    let bytes = match allocated {
        8.0 => 1,
        16.0 => 2,
        _ => {
            let why = format!("is {allocated}: 8 and 16 bits are supported");
            return Err(of.wrong(BITS_ALLOCATED, why));
        }
    };
    if !(1.0..=allocated).contains(&bits) {
        return Err(of.wrong(BITS_STORED, format!("is {bits}, of {allocated}")));
    }
    let [high] = of.need::<1>(HIGH_BIT)?;
    if high != bits - 1.0 {
        let why = format!("is {high}, but the highest of {bits} bits is {}", bits - 1.0);
        return Err(of.wrong(HIGH_BIT, why));
    }
    if bytes == 1 && syntax.coding == Coding::Plain(Order::Big) {
        return Err(of.wrong(BITS_ALLOCATED, "is 8, in big-endian words of 16: only 16 bits are supported"));
    }
    let is_signed = match of.need::<1>(REPRESENTATION)? {
        [0.0] => false,
        [1.0] => true,
        [other] => return Err(of.wrong(REPRESENTATION, format!("is {other}, and not 0 or 1"))),
    };
    Ok(Sample { bytes, bits: bits as u32, is_signed })
}

/// Describes the lossy compression of the pixels; `None` if there was none.
fn lossy(of: &Attributes<'_>, syntax: &Syntax) -> Option<String> {
    let ratio = of.text(LOSSY_RATIO).map(|ratio| format!(", {ratio} : 1"));
    let ratio = ratio.as_deref().unwrap_or("");
    if syntax.is_lossy {
        return Some(format!("{}{ratio}", syntax.name));
    }
    let before = of.text(LOSSY).is_some_and(|lossy| lossy == "01");
    before.then(|| format!("before it was stored in this form{ratio}"))
}

/// Slope and intercept. Pixels that are not rescaled may lack both, except in CT.
fn rescaling(of: &Attributes<'_>, is_ct: bool) -> Result<(f64, f64), DicomError> {
    let (slope, intercept) = match (of.numbers::<1>(SLOPE)?, of.numbers::<1>(INTERCEPT)?) {
        (Some([slope]), Some([intercept])) => (slope, intercept),
        (None, None) if !is_ct => (1.0, 0.0),
        (None, _) => return Err(of.wrong(SLOPE, "is missing, so its intensities are unknown")),
        (_, None) => return Err(of.wrong(INTERCEPT, "is missing, so its intensities are unknown")),
    };
    if slope == 0.0 {
        return Err(of.wrong(SLOPE, "is 0: all pixels would be the same"));
    }
    // The largest of 16 bits, as it is written.
    let most = f64::from(u16::MAX) * slope.abs() + intercept.abs();
    if !(most as f32).is_finite() {
        let why = format!("and RescaleIntercept are {slope} and {intercept}: intensities would be infinite");
        return Err(of.wrong(SLOPE, why));
    }
    Ok((slope, intercept))
}

/// Reads the place of a frame.
pub(crate) fn plane(of: Attributes<'_>, is_ct: bool) -> Result<Plane, DicomError> {
    let [x0, x1, x2, y0, y1, y2] = of.need::<6>(ORIENTATION)?;
    let directions = [[x0, x1, x2], [y0, y1, y2]];
    let product = dot(directions[0], directions[1]);
    let is_unit = |direction: [f64; 3]| (dot(direction, direction) - 1.0).abs() < 1e-3;
    if !directions.into_iter().all(is_unit) || product.abs() > 1e-3 {
        return Err(of.wrong(ORIENTATION, "does not have two directions at right angles"));
    }
    let spacing = of.need::<2>(PIXEL_SPACING)?;
    if spacing.iter().any(|length| *length <= 0.0 || *length > MOST_LENGTH) {
        return Err(of.wrong(PIXEL_SPACING, format!("is {} and {} mm", spacing[0], spacing[1])));
    }
    let position: [f64; 3] = of.need(POSITION)?;
    if let Some(far) = position.iter().find(|at| at.abs() > MOST_LENGTH) {
        return Err(of.wrong(POSITION, format!("has {far} mm, which is beyond {MOST_LENGTH} mm")));
    }
    let thickness = of.numbers::<1>(SLICE_THICKNESS)?.map(|[length]| length);
    if let Some(length) = thickness.filter(|length| *length > MOST_LENGTH) {
        return Err(of.wrong(SLICE_THICKNESS, format!("is {length} mm, which is beyond {MOST_LENGTH} mm")));
    }
    let (slope, intercept) = rescaling(&of, is_ct)?;
    let among = [ACQUISITION, TEMPORAL_POSITION, ECHO_TIME];
    // Only messages tell of them, so that one that is damaged is none.
    let among = among.map(|known| of.numbers::<1>(known).ok().flatten().map(|[number]| number));
    Ok(Plane { position, directions, spacing, thickness, slope, intercept, among })
}

pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DICOM PS3.5, 8.1.1: stored bits are the low ones, in two's complement where they are signed.
    #[test]
    fn the_low_bits_of_stored_pixels_are_their_numbers() {
        let of = |bits, is_signed| Sample { bytes: 2, bits, is_signed };
        assert_eq!(of(12, false).number(0xF800), 0x800);
        assert_eq!(of(12, true).number(0xF800), -2048);
        assert_eq!((of(16, true).number(0xFFFF), of(16, false).number(0xFFFF)), (-1, 65535));
    }

    #[test]
    fn decoded_pixels_are_held_where_the_low_bits_say_all_of_them() {
        let of = |bits, is_signed| Sample { bytes: 2, bits, is_signed };
        assert!(of(12, false).holds(0xFFF) && !of(12, false).holds(0x1000) && !of(12, false).holds(0xFFFF));
        // With their sign, or without what is above it.
        assert!(of(12, true).holds(0xF800) && of(12, true).holds(0x800) && !of(12, true).holds(0xF000));
        assert!(of(16, true).holds(0x8000) && of(16, false).holds(0xFFFF));
    }
}
