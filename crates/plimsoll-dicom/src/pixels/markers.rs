//! The markers of JPEG and JPEG-LS up to the first scan (ITU-T T.81, Annex B; T.87, Annex C).

use super::Expected;

/// Start of a lossless frame of Huffman codes.
pub(super) const LOSSLESS: u8 = 0xC3;
/// Start of a frame of JPEG-LS.
pub(super) const LS: u8 = 0xF7;

const BEGIN: u8 = 0xD8;
const END: u8 = 0xD9;
/// Start of scan.
pub(super) const SCAN: u8 = 0xDA;
/// Markers that have no segment: for arithmetic, and restarts.
const ALONE: [std::ops::RangeInclusive<u8>; 2] = [0x01..=0x01, 0xD0..=0xD7];

/// A segment that follows a marker.
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    pub(super) bytes: &'a [u8],
    /// The bytes behind the segment.
    pub(super) rest: &'a [u8],
}

/// The segments of an image up to its first scan, whose header is the last.
pub(super) struct Segments<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Segments<'a> {
    /// # Errors
    /// Returns an error if it does not begin as JPEG does.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Segments<'a>, &'static str> {
        match bytes.strip_prefix(&[0xFF, BEGIN]) {
            Some(rest) => Ok(Segments { rest: Some(rest) }),
            None => Err("its pixels do not start like JPEG"),
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<Segment<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.rest.take()?;
        let cut = Some(Err("its pixels are cut off before their first scan"));
        loop {
            // Any number of bytes that are all ones may be before a marker.
            let Some((&[first, marker], behind)) = rest.split_first_chunk() else { return cut };
            if first != 0xFF {
                return Some(Err("its pixels have no marker where one should be"));
            }
            if marker == 0xFF {
                rest = &rest[1..];
                continue;
            }
            if marker == END {
                return cut;
            }
            if ALONE.iter().any(|alone| alone.contains(&marker)) {
                rest = behind;
                continue;
            }
            let Some(length) = behind.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
            else {
                return cut;
            };
            let (Some(bytes), Some(rest)) = (behind.get(2..length), behind.get(length..)) else { return cut };
            if marker != SCAN {
                self.rest = Some(rest);
            }
            return Some(Ok(Segment { marker, bytes, rest }));
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) marker: u8,
    pub(super) precision: u8,
}

/// The header of a frame, if the marker begins one.
///
/// # Errors
/// Returns an error if it is of another image than the expected one.
pub(super) fn frame(segment: &Segment<'_>, expected: Expected) -> Result<Option<Frame>, String> {
    let is_frame = matches!(segment.marker, 0xC0..=0xCF) && !matches!(segment.marker, 0xC4 | 0xC8 | 0xCC);
    if !is_frame && segment.marker != LS {
        return Ok(None);
    }
    let Some(&[precision, r0, r1, c0, c1, components]) = segment.bytes.first_chunk() else {
        return Err("its pixels have a header that is cut off".into());
    };
    let (rows, columns) = (u16::from_be_bytes([r0, r1]), u16::from_be_bytes([c0, c1]));
    if components != 1 {
        return Err(format!("its pixels have {components} components"));
    }
    if (usize::from(rows), usize::from(columns)) != (expected.rows, expected.columns) {
        let Expected { rows: height, columns: width, .. } = expected;
        return Err(format!("its pixels are {rows} × {columns}, but should be {height} × {width}"));
    }
    if !(2..=8 * expected.sample.bytes).contains(&usize::from(precision)) {
        return Err(format!("its pixels have {precision} bits instead of {}", 8 * expected.sample.bytes));
    }
    Ok(Some(Frame { marker: segment.marker, precision }))
}

/// The header of the only frame of an image.
///
/// # Errors
/// Returns an error if there is none before the first scan, there are several, or it is of another image than the
/// expected one.
pub(super) fn only_frame(bytes: &[u8], expected: Expected) -> Result<Frame, String> {
    let mut found = None;
    for segment in Segments::new(bytes)? {
        if let Some(frame) = frame(&segment?, expected)?
            && found.replace(frame).is_some()
        {
            return Err("its pixels have two headers".into());
        }
    }
    found.ok_or_else(|| "its pixels have no header".into())
}
