//! The beginning of a file of DICOM (PS3.10, section 7), by which it is recognised.

use crate::attributes::Tag;

/// The offset and the text of the signature of a file of DICOM, behind 128 bytes of anything.
pub(crate) const MAGIC: (usize, &[u8; 4]) = (128, b"DICM");

/// The way in which a file of DICOM begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With 128 bytes of anything and `DICM`, according to DICOM PS3.10.
    Preamble,
    /// With the first group, without what should stand before it.
    Meta,
    /// With the elements of its object, as ACR-NEMA and some scanners write them.
    Elements {
        /// Tells whether elements state their types.
        is_explicit: bool,
    },
}

impl Start {
    /// Recognises the start of a file of DICOM by its first bytes; `None` for another file.
    pub(crate) fn detect(head: &[u8]) -> Option<Start> {
        if head.get(MAGIC.0..).is_some_and(|rest| rest.starts_with(MAGIC.1)) {
            return Some(Start::Preamble);
        }
        let first = Begun::at(head, 0)?;
        if first.is_explicit && first.tag == GROUP_LENGTH && first.length == 4 {
            return Some(Start::Meta);
        }
        let is_early = first.tag.0 == 0x0008 && first.tag.1 <= 0x0018 && first.length <= MOST_FIRST;
        let next = Begun::at(head, first.end)?;
        let follows = next.tag.0 == 0x0008 && next.tag > first.tag && next.is_explicit == first.is_explicit;
        (is_early && follows).then_some(Start::Elements { is_explicit: first.is_explicit })
    }
}

/// The longest value of the first element of an object: names of character sets.
const MOST_FIRST: usize = 96;

/// The beginning of an element among the first bytes of a file.
struct Begun {
    tag: Tag,
    is_explicit: bool,
    length: usize,
    /// Behind its value.
    end: usize,
}

impl Begun {
    fn at(head: &[u8], at: usize) -> Option<Begun> {
        let of: [u8; 8] = head.get(at..at.checked_add(8)?)?.try_into().ok()?;
        let [a, b, c, d, kind @ .., low, high] = of;
        let tag = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let is_explicit = SHORT.iter().any(|short| **short == kind);
        let length = match is_explicit {
            true => usize::from(u16::from_le_bytes([low, high])),
            false => usize::try_from(u32::from_le_bytes([kind[0], kind[1], low, high])).ok()?,
        };
        let end = at.checked_add(8)?.checked_add(length)?;
        length.is_multiple_of(2).then_some(Begun { tag, is_explicit, length, end })
    }
}

/// The tag of the length of the first group.
pub(crate) const GROUP_LENGTH: Tag = (0x0002, 0x0000);

/// Types whose length has 16 bits.
pub(crate) const SHORT: [&[u8; 2]; 21] = [
    b"AE", b"AS", b"AT", b"CS", b"DA", b"DS", b"DT", b"FL", b"FD", b"IS", b"LO", b"LT", b"PN", b"SH", b"SL",
    b"SS", b"ST", b"TM", b"UI", b"UL", b"US",
];
