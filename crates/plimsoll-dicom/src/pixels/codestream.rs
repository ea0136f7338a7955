//! The headers of JPEG 2000 (ITU-T T.800, Annex A): what of them memory depends on.
//!
//! They are walked as the decoder walks them. A segment that the decoder does not know, or would take to be of another length, could hide
//! from one of the two what the other reads, so each is refused.

use std::borrow::Cow;

use super::Expected;

/// Markers: start of all, size, coding style, start of a part of a tile, start of its data, end of all.
const START: u16 = 0xFF4F;
const SIZE: u16 = 0xFF51;
const STYLE: u16 = 0xFF52;
const TILE_PART: u16 = 0xFF90;
const DATA: u16 = 0xFF93;
const END: u16 = 0xFFD9;
/// Region of interest; steps of quantization, of all and of a component; changes of the order of progression; comment.
const REGION: u16 = 0xFF5E;
const STEPS: u16 = 0xFF5C;
const COMPONENT_STEPS: u16 = 0xFF5D;
const PROGRESSION: u16 = 0xFF5F;
const COMMENT: u16 = 0xFF64;
/// Markers of segments that are skipped by their length: lengths of parts and places of components before all parts, lengths of packets in a part.
const PASSED: [u16; 2] = [0xFF55, 0xFF63];
const PASSED_IN_PARTS: [u16; 1] = [0xFF58];
/// Markers without a segment.
const ALONE: std::ops::RangeInclusive<u16> = 0xFF30..=0xFF3F;

/// The most times that an image is halved, and steps: three bands each time, and one that is left.
const MOST_LEVELS: u8 = 32;
const MOST_STEPS: usize = 3 * MOST_LEVELS as usize + 1;
/// A tile's number has 16 bits.
const MOST_TILES: u64 = 65_535;

const CUT: &str = "its pixels are cut off within their headers";

/// The numbers in the headers that memory depends on.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) size: Size,
    pub(super) style: Style,
    /// The number of parts of all tiles.
    pub(super) parts: u64,
    /// The last part, where it says no length, which means up to the end: where the length should be, and what it is.
    open_part: Option<(usize, u32)>,
    /// The end of the data, and whether the marker of the end exists.
    end: usize,
    has_end: bool,
}

#[derive(Debug)]
pub(super) struct Size {
    pub(super) precision: u8,
    pub(super) is_signed: bool,
    pub(super) tiles: u64,
}

#[derive(Debug)]
pub(super) struct Style {
    pub(super) layers: u64,
    /// Width and height of blocks, and of groups of them, as powers of two; the smallest of any resolution.
    pub(super) blocks: [u32; 2],
    pub(super) precincts: [u32; 2],
    pub(super) resolutions: u64,
}

impl Header {
    /// Reads the headers of a codestream, of the image and of all parts of tiles.
    ///
    /// # Errors
    /// Returns an error if the codestreams are cut off, are of another image than the expected one, or use an
    /// unsupported feature.
    pub(super) fn parse(bytes: &[u8], expected: Expected) -> Result<Header, String> {
        if short(bytes, 0) != Some(START) {
            return Err("its pixels are not a JPEG 2000 codestream".into());
        }
        let mut at = 2;
        let first = segment(bytes, &mut at)?;
        if first.marker != SIZE {
            return Err("its pixels have no size".into());
        }
        let size = read_size(first.bytes, expected)?;
        let mut style = None;
        let mut part = loop {
            let next = segment(bytes, &mut at)?;
            match next.marker {
                TILE_PART => break next,
                STYLE if style.is_none() => style = Some(read_style(next.bytes)?),
                _ => next.expect_known(&PASSED)?,
            }
        };
        let style = style.ok_or("its pixels have no coding style")?;
        let (mut parts, mut open_part) = (0, None);
        loop {
            parts += 1;
            let &[_, _, l0, l1, l2, l3, _, _] = part.bytes else { return Err(part.unknown()) };
            loop {
                let next = segment(bytes, &mut at)?;
                match next.marker {
                    DATA => break,
                    _ => next.expect_known(&PASSED_IN_PARTS)?,
                }
            }
            // From here to the end of the part are blocks.
            let length = match u32::from_be_bytes([l0, l1, l2, l3]) {
                0 => {
                    let length = u32::try_from(before_end(bytes).saturating_sub(part.at)).map_err(|_| CUT)?;
                    open_part = Some((part.at + 6, length));
                    length
                }
                length => length,
            };
            let end = part.at.saturating_add(length as usize);
            if end < at {
                return Err("its pixels have a part that ends within its header".into());
            }
            at = end;
            let rest = bytes.get(at..).ok_or("its pixels are cut off")?;
            match (short(rest, 0), rest) {
                (Some(TILE_PART), _) => part = segment(bytes, &mut at)?,
                (Some(END), _) => return Ok(Header { size, style, parts, open_part, end, has_end: true }),
                // Some files lack the marker of the end; a zero makes their length even.
                (None, [] | [0]) => return Ok(Header { size, style, parts, open_part, end, has_end: false }),
                _ => return Err(format!("its pixels have neither a tile part nor an end at byte {at}")),
            }
        }
    }

    /// Returns `true` if the last byte may be padding to an even length: it is zero, the last part has no length, and no marker ends the
    /// data. The byte may also belong to the part.
    pub(super) fn may_be_padded(&self, bytes: &[u8]) -> bool {
        self.open_part.is_some() && !self.has_end && bytes.last() == Some(&0)
    }

    /// The codestream, without this number of bytes of padding, with everything that the decoder requires: a length of
    /// every part, and the marker of the end. Where it has them it is the same, and else a copy.
    pub(super) fn completed<'a>(&self, bytes: &'a [u8], padding: u32) -> Cow<'a, [u8]> {
        if self.open_part.is_none() && self.has_end {
            return Cow::Borrowed(bytes);
        }
        let end = self.end.saturating_sub(padding as usize);
        let mut all = Vec::with_capacity(end + 2);
        all.extend_from_slice(bytes.get(..end).unwrap_or(bytes));
        if let Some((at, length)) = self.open_part
            && let Some(to) = all.get_mut(at..at + 4)
        {
            to.copy_from_slice(&length.saturating_sub(padding).to_be_bytes());
        }
        all.extend_from_slice(&END.to_be_bytes());
        Cow::Owned(all)
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

/// The offset of the end marker, behind which there may be a zero; the length of the data if there is none.
fn before_end(bytes: &[u8]) -> usize {
    let ends = [&[0xFF, 0xD9][..], &[0xFF, 0xD9, 0]];
    bytes.len() - ends.into_iter().find(|end| bytes.ends_with(end)).map_or(0, <[u8]>::len)
}

/// A marker of a header, where it is, and what follows it without its length.
struct Segment<'a> {
    marker: u16,
    at: usize,
    bytes: &'a [u8],
}

/// The next segment from a place on, which is moved behind it.
fn segment<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Segment<'a>, &'static str> {
    let marker = loop {
        let marker = short(bytes, *at).ok_or(CUT)?;
        if !ALONE.contains(&marker) {
            break marker;
        }
        *at += 2;
    };
    let start = *at;
    let length = match marker {
        DATA | END => 0,
        _ => short(bytes, start + 2).ok_or(CUT)?.into(),
    };
    *at = start + 2 + length;
    let bytes = match length {
        0 if [DATA, END].contains(&marker) => &[],
        _ => bytes.get(start + 4..*at).ok_or(CUT)?,
    };
    Ok(Segment { marker, at: start, bytes })
}

impl Segment<'_> {
    fn unknown(&self) -> String {
        let Segment { marker, at, bytes } = self;
        let length = bytes.len();
        format!(
            "its pixels have a segment {marker:04X} of {length} bytes at byte {at}, which is not supported there"
        )
    }

    /// Refuses a segment of which nothing is kept here, unless the decoder knows it and takes it to be as long as it says.
    fn expect_known(&self, passed: &[u16]) -> Result<(), String> {
        let is_known = match (self.marker, self.bytes) {
            (PROGRESSION | COMMENT, _) => true,
            (REGION, bytes) => bytes.len() == 3,
            (STEPS, [style, steps @ ..]) | (COMPONENT_STEPS, [_, style, steps @ ..]) => {
                match (style & 0x1F, steps.len()) {
                    (0, count) => count <= MOST_STEPS,
                    (1, length) => length == 2,
                    (2, length) => length.is_multiple_of(2) && length <= 2 * MOST_STEPS,
                    _ => false,
                }
            }
            (marker, _) => passed.contains(&marker),
        };
        if is_known { Ok(()) } else { Err(self.unknown()) }
    }
}

fn read_size(segment: &[u8], expected: Expected) -> Result<Size, String> {
    let Some(sizes) = segment.get(2..) else { return Err("it is cut off in its sizes".into()) };
    let (words, rest) = sizes.as_chunks::<4>();
    // The last word and what follows it are of the components: their number, and three bytes of each.
    let (&[width, height, left, top, tile_width, tile_height, tile_left, tile_top, [0, 1, depth, 1]], &[1]) =
        (words, rest)
    else {
        return Err("its pixels have several or subsampled components".into());
    };
    let [width, height, left, top] =
        [width, height, left, top].map(|word| u64::from(u32::from_be_bytes(word)));
    let [tile_width, tile_height, tile_left, tile_top] =
        [tile_width, tile_height, tile_left, tile_top].map(|word| u64::from(u32::from_be_bytes(word)));
    let (rows, columns) = (height.saturating_sub(top), width.saturating_sub(left));
    if (rows, columns) != (expected.rows as u64, expected.columns as u64) {
        let Expected { rows: height, columns: width, .. } = expected;
        return Err(format!("its pixels are {rows} × {columns}, but should be {height} × {width}"));
    }
    let precision = (depth & 0x7F) + 1;
    if usize::from(precision) > 8 * expected.sample.bytes {
        return Err(format!("its pixels have {precision} bits instead of {}", 8 * expected.sample.bytes));
    }
    let is_signed = depth & 0x80 != 0;
    if is_signed != expected.sample.is_signed {
        let told = |is_signed| if is_signed { "signed" } else { "unsigned" };
        let (found, should) = (told(is_signed), told(expected.sample.is_signed));
        return Err(format!("its pixels are {found}, but PixelRepresentation is {should}"));
    }
    if tile_width == 0 || tile_height == 0 || tile_left > left || tile_top > top {
        return Err("its pixels are in tiles of no size".into());
    }
    let across = (width - tile_left).div_ceil(tile_width);
    let down = (height - tile_top).div_ceil(tile_height);
    let tiles = across.saturating_mul(down);
    if tiles > MOST_TILES {
        return Err(format!("its pixels are in {tiles} tiles, more than {MOST_TILES}"));
    }
    Ok(Size { precision, is_signed, tiles })
}

fn read_style(segment: &[u8]) -> Result<Style, &'static str> {
    let not_read = "its pixels have an unsupported coding style";
    let Some((&[scheme, _, l0, l1, _, levels, width, height, _, _], groups)) = segment.split_first_chunk()
    else {
        return Err(not_read);
    };
    let resolutions = usize::from(levels) + 1;
    let expected = if scheme & 1 == 0 { 0 } else { resolutions };
    if levels > MOST_LEVELS || groups.len() != expected {
        return Err(not_read);
    }
    let power = |byte: u8| u32::from(byte & 0xF) + 2;
    let mut precincts = [15, 15];
    for (resolution, byte) in groups.iter().enumerate() {
        // Above the lowest, a group of blocks is half as wide in each band.
        let halved = u32::from(resolution > 0);
        let [across, down] = [byte & 0xF, byte >> 4].map(|power| u32::from(power).saturating_sub(halved));
        precincts = [precincts[0].min(across), precincts[1].min(down)];
    }
    let blocks = [power(width).min(precincts[0]), power(height).min(precincts[1])];
    Ok(Style {
        layers: u16::from_be_bytes([l0, l1]).into(),
        blocks,
        precincts,
        resolutions: resolutions as u64,
    })
}
