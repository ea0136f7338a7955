//! Where the elements of a file are: looked at before the reader of DICOM sees it, which believes every length and nests as deep as a file
//! says.

use std::io::{BufReader, Read};
use std::path::Path;

use crate::DicomError;
use crate::header::MAGIC;

/// How many sequences and items may be open: 32 of each.
const MOST_OPEN: usize = 64;

/// The length of what ends at a delimiter.
const UNDEFINED: u32 = u32::MAX;

const GROUP_LENGTH: (u16, u16) = (0x0002, 0x0000);
const SYNTAX: (u16, u16) = (0x0002, 0x0010);
const PIXELS: (u16, u16) = (0x7FE0, 0x0010);
/// The group of items and delimiters.
const ITEMS: u16 = 0xFFFE;
const ITEM: (u16, u16) = (ITEMS, 0xE000);
const ITEM_END: (u16, u16) = (ITEMS, 0xE00D);
const SEQUENCE_END: (u16, u16) = (ITEMS, 0xE0DD);

/// Implicit VR, little-endian.
const IMPLICIT: &str = "1.2.840.10008.1.2";
/// Big-endian, and those whose elements are compressed.
const OTHERS: [&str; 4] =
    ["1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.4.95", "1.2.840.10008.1.2.4.205"];

/// Types whose length has 16 bits.
const SHORT: [&[u8; 2]; 21] = [
    b"AE", b"AS", b"AT", b"CS", b"DA", b"DS", b"DT", b"FL", b"FD", b"IS", b"LO", b"LT", b"PN", b"SH", b"SL",
    b"SS", b"ST", b"TM", b"UI", b"UL", b"US",
];

/// What is before the value of an element.
struct Element {
    tag: (u16, u16),
    /// None where it is not said: of implicit VR, and of items.
    kind: Option<[u8; 2]>,
    length: u32,
}

/// A sequence, or an item of one.
struct Open {
    is_item: bool,
    /// None where it ends at a delimiter.
    end: Option<u64>,
}

struct Walk<'a> {
    path: &'a Path,
    from: BufReader<plimsoll_disk::File>,
    at: u64,
    /// Bytes of the file.
    length: u64,
    is_implicit: bool,
}

/// Returns how many bytes of a file are no pixels.
///
/// # Errors
/// If the file cannot be read, an element is longer than the file, or sequences are nested deeper than 32.
pub(crate) fn bytes_but_pixels(path: &Path) -> Result<u64, DicomError> {
    let io = |source| DicomError::Io { path: path.into(), source };
    let file = plimsoll_disk::File::open(path).map_err(io)?;
    let length = file.len().map_err(io)?;
    let mut walk = Walk { path, from: BufReader::new(file), at: 0, length, is_implicit: false };
    // What is before the mark may be anything but the mark, which would be taken for the true one.
    let before = walk.bytes::<4>()?;
    if before == Some(*MAGIC.1) {
        return Err(walk.wrong("it has no preamble"));
    }
    walk.skip((MAGIC.0 + MAGIC.1.len() - 4) as u64)?;
    walk.is_implicit = walk.meta()?;
    Ok(length.saturating_sub(walk.elements()?))
}

impl Walk<'_> {
    fn wrong(&self, why: &str) -> DicomError {
        DicomError::Unreadable { path: self.path.into(), why: format!("{why}, at byte {}", self.at) }
    }

    fn io(&self, source: std::io::Error) -> DicomError {
        DicomError::Io { path: self.path.into(), source }
    }

    /// The next bytes; none where fewer are left.
    fn bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, DicomError> {
        if self.length.saturating_sub(self.at) < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| self.io(error))?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    /// Where a value of so many bytes ends.
    fn end(&self, length: u64) -> Result<u64, DicomError> {
        match self.at.checked_add(length).filter(|end| *end <= self.length) {
            Some(end) => Ok(end),
            None => Err(self.wrong(&format!(
                "an element has {length} bytes, but {} are left",
                self.length.saturating_sub(self.at)
            ))),
        }
    }

    fn skip(&mut self, length: u64) -> Result<(), DicomError> {
        self.at = self.end(length)?;
        let by = i64::try_from(length).map_err(|_| self.wrong("an element is too long"))?;
        self.from.seek_relative(by).map_err(|error| self.io(error))
    }

    /// The next element, up to its value; none at the end of the file.
    fn element(&mut self) -> Result<Option<Element>, DicomError> {
        let Some([g0, g1, e0, e1]) = self.bytes::<4>()? else { return Ok(None) };
        let tag = (u16::from_le_bytes([g0, g1]), u16::from_le_bytes([e0, e1]));
        let mut kind = None;
        if !self.is_implicit && tag.0 != ITEMS {
            let Some(found) = self.bytes::<2>()? else { return Ok(None) };
            kind = Some(found);
            // Two bytes more: of the length, or of nothing.
            let Some(next) = self.bytes::<2>()? else { return Ok(None) };
            if SHORT.contains(&&found) {
                return Ok(Some(Element { tag, kind, length: u16::from_le_bytes(next).into() }));
            }
        }
        let Some(length) = self.bytes::<4>()? else { return Ok(None) };
        Ok(Some(Element { tag, kind, length: u32::from_le_bytes(length) }))
    }

    /// Walks over what is said of the file itself. Returns whether its elements are of implicit VR.
    fn meta(&mut self) -> Result<bool, DicomError> {
        let first = self.element()?.filter(|element| element.tag == GROUP_LENGTH && element.length == 4);
        let Some(length) = first.map(|_| self.bytes::<4>()).transpose()?.flatten() else {
            return Err(self.wrong("the length of its first group is missing"));
        };
        let end = self.end(u32::from_le_bytes(length).into())?;
        let mut is_implicit = false;
        while self.at < end {
            let Some(element) = self.element()? else {
                return Err(self.wrong("it is cut off"));
            };
            if self.end(element.length.into())? > end {
                return Err(self.wrong("an element is longer than its group"));
            }
            if element.tag != SYNTAX {
                self.skip(element.length.into())?;
                continue;
            }
            // A unique number has at most 64 bytes.
            let mut syntax = Vec::new();
            for _ in 0..element.length.min(64) {
                syntax.extend(self.bytes::<1>()?.into_iter().flatten());
            }
            self.skip(element.length.saturating_sub(64).into())?;
            let syntax = String::from_utf8_lossy(&syntax);
            let syntax = syntax.trim_matches(|c: char| c == '\0' || c.is_whitespace());
            if OTHERS.contains(&syntax) {
                return Err(self.wrong("its transfer syntax is big-endian or compresses all elements"));
            }
            is_implicit = syntax == IMPLICIT;
        }
        match self.at == end {
            true => Ok(is_implicit),
            false => Err(self.wrong("an element is longer than its group")),
        }
    }

    /// Walks over all elements. Returns how many bytes are of pixels.
    fn elements(&mut self) -> Result<u64, DicomError> {
        let mut open: Vec<Open> = Vec::new();
        let mut pixels = 0u64;
        loop {
            while let Some(Open { end: Some(end), .. }) = open.last() {
                if self.at < *end {
                    break;
                }
                if self.at > *end {
                    return Err(self.wrong("an element is longer than its sequence"));
                }
                open.pop();
            }
            let Some(Element { tag, kind, length }) = self.element()? else { return Ok(pixels) };
            let in_item = open.last().is_none_or(|last| last.is_item);
            match tag {
                ITEM if !in_item => open.push(Open { is_item: true, end: self.end_of(length)? }),
                ITEM_END | SEQUENCE_END if !open.is_empty() => {
                    let is_its = (tag == ITEM_END) == in_item;
                    let ends_it = is_its && open.pop().is_some_and(|last| last.end.is_none());
                    if !ends_it {
                        return Err(self.wrong("it has a delimiter of nothing"));
                    }
                }
                _ if !in_item => return Err(self.wrong("a sequence has what is no item")),
                // Some files have delimiters too many at their end.
                (ITEMS, _) if open.is_empty() && length == 0 => {}
                (ITEMS, _) => return Err(self.wrong("it has an item of nothing")),
                PIXELS if length == UNDEFINED => match kind {
                    Some([b'S', b'Q']) => return Err(self.wrong("its pixels are a sequence")),
                    _ => pixels += self.fragments()?,
                },
                _ if length == UNDEFINED || self.is_sequence(tag, kind, length)? => {
                    open.push(Open { is_item: false, end: self.end_of(length)? });
                }
                _ => {
                    self.skip(length.into())?;
                    pixels += if tag == PIXELS { u64::from(length) } else { 0 };
                }
            }
            if open.len() > MOST_OPEN {
                return Err(self.wrong("its sequences are nested deeper than 32"));
            }
        }
    }

    fn end_of(&self, length: u32) -> Result<Option<u64>, DicomError> {
        if length == UNDEFINED { Ok(None) } else { self.end(length.into()).map(Some) }
    }

    /// Whether an element with a length is a sequence: where it does not say so, whether it begins as these do.
    fn is_sequence(
        &mut self,
        tag: (u16, u16),
        kind: Option<[u8; 2]>,
        length: u32,
    ) -> Result<bool, DicomError> {
        if kind.is_some() || tag == PIXELS || length < 8 {
            return Ok(kind == Some(*b"SQ"));
        }
        let Some(start) = self.bytes::<2>()? else { return Ok(false) };
        self.at -= 2;
        self.from.seek_relative(-2).map_err(|error| self.io(error))?;
        Ok(start == ITEMS.to_le_bytes())
    }

    /// Walks over the fragments of pixels, and returns how many bytes they have.
    fn fragments(&mut self) -> Result<u64, DicomError> {
        let mut bytes = 0u64;
        loop {
            match self.element()? {
                Some(Element { tag: ITEM, length, .. }) => {
                    self.skip(length.into())?;
                    bytes += u64::from(length);
                }
                Some(Element { tag: SEQUENCE_END, .. }) => return Ok(bytes),
                _ => return Err(self.wrong("its pixels are cut off")),
            }
        }
    }
}
