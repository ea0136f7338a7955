//! The elements of a file, one after the other (DICOM PS3.5, sections 7 and 10). What is asked for is kept, and all else is passed over,
//! so that no file takes more memory than its frames do, whatever it claims: a length is checked before anything is done with it.

use plimsoll_memory::Budget;

use crate::DicomError;
use crate::attributes::{
    Attributes, CLASS, EXTENDED_OFFSETS, FRAME_GROUPS, Kind, MODALITY_LUT, MOST_VALUE, PIXELS, SEGMENTS,
    SHARED_GROUPS, SYNTAX, Tag, Values, attribute,
};
use crate::fragments::{Fragment, Fragments};
use crate::location::FileLocation;
use crate::reader::Reader;
use crate::reserved_list::ReservedList;
use crate::start::{GROUP_LENGTH, MAGIC, SHORT, Start};
use crate::syntax::{Order, Syntax};

/// The most sequences and items that may be open: 32 of each.
const MOST_OPEN: usize = 64;

/// The length of what ends at a delimiter.
const UNDEFINED: u32 = u32::MAX;

/// The group of items and delimiters.
const ITEMS: u16 = 0xFFFE;
const ITEM: Tag = (ITEMS, 0xE000);
const ITEM_END: Tag = (ITEMS, 0xE00D);
const SEQUENCE_END: Tag = (ITEMS, 0xE0DD);

/// Types whose length has 32 bits.
const LONG: [&[u8; 2]; 13] =
    [b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"];

/// The tag, type and length of an element.
struct Element {
    tag: Tag,
    /// None where it is not said: of implicit VR, and of items.
    kind: Option<[u8; 2]>,
    length: u32,
}

/// A sequence, or an item of one.
struct Open {
    /// The tag of the sequence.
    tag: Tag,
    is_item: bool,
    /// None where it ends at a delimiter.
    end: Option<u64>,
    /// Tells whether the elements inside state their types.
    is_explicit: bool,
}

/// The first group of a file: the class of its object and its transfer syntax.
pub(crate) struct Meta {
    /// The class of the object.
    pub(crate) class: Option<String>,
    /// None where it is not one that is read.
    pub(crate) syntax: Option<&'static Syntax>,
    /// Its unique number.
    pub(crate) syntax_uid: String,
}

/// The place of the pixels in a file.
#[derive(Debug)]
pub(crate) enum Pixels {
    /// Plain pixels: their offset and their number of bytes.
    Plain { at: u64, length: u32 },
    /// Compressed.
    Fragments(Fragments),
}

/// An item of a sequence whose items are reported one by one.
#[derive(Clone, Copy)]
pub(crate) enum Described<'a> {
    /// A frame, with the attributes that all frames share and the attributes of the file.
    Frame(Attributes<'a>),
    /// A segment of a segmentation, with the attributes of the file.
    Segment(Attributes<'a>),
}

/// A function that is called with each described item.
type OnItem<'a> = dyn FnMut(Described<'_>) -> Result<(), DicomError> + 'a;

/// The attributes and the place of the pixels of a file.
pub(crate) struct Contents {
    pub(crate) root: Values,
    /// The attributes that all frames share.
    pub(crate) shared: Values,
    /// The number of frames that are described one by one.
    pub(crate) described: u32,
    pub(crate) pixels: Option<Pixels>,
}

/// Reads the first group of a file, and leaves the reader behind it: inflating, if what follows is deflated.
///
/// # Errors
/// Returns an error if the file is damaged.
pub(crate) fn read_meta(mut reader: Reader<'_>) -> Result<(Meta, Reader<'_>), DicomError> {
    let Some(_) = reader.bytes::<{ MAGIC.0 }>()? else { return Err(reader.wrong("it is cut off")) };
    if reader.bytes()? != Some(*MAGIC.1) {
        return Err(reader.wrong("it does not start like a DICOM file"));
    }
    read_group(reader)
}

/// Reads the start of a file like [`read_meta`]; the file may also begin with its first group, or with its elements. In the last case it has
/// no class, and its transfer syntax is the one that its elements are written in.
///
/// # Errors
/// Returns the errors of [`read_meta`].
pub(crate) fn read_start(place: &FileLocation) -> Result<(Meta, Reader<'_>), DicomError> {
    match place.start()? {
        Some(Start::Elements { is_explicit }) => {
            let uid = if is_explicit { Syntax::EXPLICIT } else { Syntax::IMPLICIT };
            let meta = Meta { class: None, syntax: Syntax::named(uid), syntax_uid: uid.into() };
            Ok((meta, place.open()?))
        }
        Some(Start::Meta) => read_group(place.open()?),
        Some(Start::Preamble) | None => read_meta(place.open()?),
    }
}

/// Reads the first group from where the reader stands.
fn read_group(reader: Reader<'_>) -> Result<(Meta, Reader<'_>), DicomError> {
    let mut walk = Walk { reader, is_explicit: true, order: Order::Little, open: Vec::new() };
    let first = walk.element()?.filter(|element| element.tag == GROUP_LENGTH && element.length == 4);
    let Some(length) = first.map(|_| walk.reader.bytes::<4>()).transpose()?.flatten() else {
        return Err(walk.reader.wrong("the length of its first group is missing"));
    };
    let length = u32::from_le_bytes(length).into();
    walk.reader.expect(length)?;
    let end = walk.reader.at() + length;
    let mut values = Values::new(Order::Little);
    while walk.reader.at() < end {
        let Some(element) = walk.element()? else { return Err(walk.reader.wrong("it is cut off")) };
        if walk.reader.at() + u64::from(element.length) > end {
            return Err(walk.reader.wrong("an element is longer than its group"));
        }
        match [CLASS.tag, SYNTAX.tag].contains(&element.tag) {
            true => walk.keep(&element, &mut values)?,
            false => walk.reader.skip(element.length.into())?,
        }
    }
    if walk.reader.at() != end {
        return Err(walk.reader.wrong("an element is longer than its group"));
    }
    let Some(syntax_uid) = values.text(SYNTAX).filter(|uid| !uid.is_empty()) else {
        return Err(walk.reader.wrong("its transfer syntax is missing"));
    };
    let syntax = Syntax::named(&syntax_uid);
    let class = values.text(CLASS);
    let reader = match syntax.is_some_and(|syntax| syntax.is_deflated) {
        true => walk.reader.inflated(),
        false => walk.reader,
    };
    Ok((Meta { class, syntax, syntax_uid }, reader))
}

/// Walks over all elements that follow the first group. `on_item` is given the attributes of each frame and each segment that is described. Values of
/// `others`, whatever they are, are kept as well where the file itself has them and they are no longer than [`MOST_VALUE`].
///
/// # Errors
/// Returns an error if an element is longer than the file, sequences are nested deeper than 32 or do not end properly,
/// a requested value is longer than the limit, or the budget has no room for lists of frames. It also returns the
/// errors of `on_item`.
pub(crate) fn read_elements(
    reader: Reader<'_>,
    syntax: Option<&Syntax>,
    others: &[Tag],
    budget: &Budget,
    on_item: &mut OnItem<'_>,
) -> Result<Contents, DicomError> {
    let order = syntax.map_or(Order::Little, Syntax::order);
    let is_explicit = syntax.is_none_or(|syntax| syntax.is_explicit);
    let mut walk = Walk { reader, is_explicit, order, open: Vec::new() };
    let mut contents =
        Contents { root: Values::new(order), shared: Values::new(order), described: 0, pixels: None };
    let mut item = Values::new(order);
    let mut offsets = ReservedList::new(budget, "places of frames");
    loop {
        walk.close(&mut contents, &mut item, on_item)?;
        let Some(element) = walk.element()? else { break };
        let Element { tag, length, .. } = element;
        let inside = walk.open.last();
        let in_item = inside.is_none_or(|last| last.is_item);
        match tag {
            ITEM if !in_item => walk.begin(tag, length, true)?,
            ITEM_END | SEQUENCE_END if inside.is_some() => {
                let ends_it = (tag == ITEM_END) == in_item && inside.is_some_and(|last| last.end.is_none());
                if !ends_it {
                    return Err(walk.reader.wrong("it has a delimiter outside any sequence"));
                }
                walk.pop(&mut contents, &mut item, on_item)?;
            }
            _ if !in_item => return Err(walk.reader.wrong("a sequence has an element that is not an item")),
            // Some files have delimiters too many at their end.
            (ITEMS, _) if inside.is_none() && length == 0 => {}
            (ITEMS, _) => return Err(walk.reader.wrong("it has an item outside any sequence")),
            PIXELS => {
                let found = walk.pixels(&element, &mut offsets, budget)?;
                // Those of an icon are within a sequence.
                if walk.open.is_empty() {
                    if contents.pixels.is_some() {
                        return Err(walk.reader.wrong("it has pixels twice"));
                    }
                    contents.pixels = Some(found);
                }
            }
            EXTENDED_OFFSETS if walk.open.is_empty() && length != UNDEFINED => {
                walk.offsets(length.into(), 8, &mut offsets)?;
            }
            _ => walk.value(&element, others, &mut contents, &mut item)?,
        }
        if walk.open.len() > MOST_OPEN {
            return Err(walk.reader.wrong("its sequences are nested deeper than 32"));
        }
    }
    match walk.open.is_empty() {
        true => Ok(contents),
        false => Err(walk.reader.wrong("it is cut off within a sequence")),
    }
}

struct Walk<'a> {
    reader: Reader<'a>,
    is_explicit: bool,
    order: Order,
    open: Vec<Open>,
}

impl Walk<'_> {
    fn short(&self, bytes: [u8; 2]) -> u16 {
        match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The next element, up to its value; none at the end of the file.
    fn element(&mut self) -> Result<Option<Element>, DicomError> {
        let Some([g0, g1, e0, e1]) = self.reader.bytes::<4>()? else { return Ok(None) };
        let tag = (self.short([g0, g1]), self.short([e0, e1]));
        let mut kind = None;
        if self.open.last().map_or(self.is_explicit, |open| open.is_explicit) && tag.0 != ITEMS {
            let Some(found) = self.reader.bytes::<2>()? else { return Ok(None) };
            kind = Some(found);
            // Two bytes more: of the length, or of nothing.
            let Some(next) = self.reader.bytes::<2>()? else { return Ok(None) };
            if SHORT.contains(&&found) {
                return Ok(Some(Element { tag, kind, length: self.short(next).into() }));
            }
            if !LONG.contains(&&found) {
                return Err(self
                    .reader
                    .wrong(&format!("an element is of the type {}", found.escape_ascii())));
            }
        }
        let Some(length) = self.reader.bytes::<4>()? else { return Ok(None) };
        let length = match self.order {
            Order::Little => u32::from_le_bytes(length),
            Order::Big => u32::from_be_bytes(length),
        };
        Ok(Some(Element { tag, kind, length }))
    }

    /// Opens an element that is a sequence, and keeps or skips the value of another.
    fn value(
        &mut self,
        element: &Element,
        others: &[Tag],
        contents: &mut Contents,
        item: &mut Values,
    ) -> Result<(), DicomError> {
        let Element { tag, kind, length } = *element;
        let wanted = attribute(tag).filter(|_| self.is_known_place());
        // Frames were reported with the attributes before them, so that no attribute of theirs may follow.
        if wanted.is_some() && self.open.is_empty() && contents.described > 0 {
            return Err(self.reader.wrong("its elements are out of order"));
        }
        let is_sequence = wanted.is_some_and(|wanted| wanted.kind == Kind::Sequence);
        if length == UNDEFINED || is_sequence {
            if tag == MODALITY_LUT.tag && self.open.is_empty() && length > 0 {
                contents.root.keep(tag, b"");
            }
            // An element of unknown type and undefined length is of implicit VR inside (PS3.5, 6.2.2).
            return self.begin(tag, length, kind != Some(*b"UN"));
        }
        if self.open.is_empty() && others.contains(&tag) {
            // A value that is too long is left out, not cut off.
            return match length as usize <= MOST_VALUE {
                true => self.keep(element, &mut contents.root),
                false => self.reader.skip(length.into()),
            };
        }
        if wanted.is_none() {
            return self.reader.skip(length.into());
        }
        let values = match self.open.first().map(|open| open.tag) {
            Some(first) if [FRAME_GROUPS.tag, SEGMENTS.tag].contains(&first) => item,
            Some(first) if first == SHARED_GROUPS.tag => &mut contents.shared,
            _ => &mut contents.root,
        };
        self.keep(element, values)
    }

    /// Keeps the value of an element.
    fn keep(&mut self, element: &Element, values: &mut Values) -> Result<(), DicomError> {
        let mut bytes = [0; MOST_VALUE];
        let length = u64::from(element.length);
        self.reader.expect(length)?;
        let kept = usize::try_from(length).unwrap_or(usize::MAX).min(MOST_VALUE);
        if length > kept as u64
            && let Some(long) = attribute(element.tag).filter(|found| found.kind != Kind::Description)
        {
            let why = format!("{} has {length} bytes, but at most {MOST_VALUE} are supported", long.name);
            return Err(self.reader.wrong(&why));
        }
        let to = &mut bytes[..kept];
        self.reader.fill(to)?;
        values.keep(element.tag, to);
        self.reader.skip(length - kept as u64)
    }

    /// Returns `true` if attributes are read at the current place: in the file itself, or in the groups of frames and in segments, as deep as
    /// their macros are.
    fn is_known_place(&self) -> bool {
        let sequences = || self.open.iter().filter(|open| !open.is_item);
        let is_groups = |tag: Tag| [FRAME_GROUPS.tag, SHARED_GROUPS.tag, SEGMENTS.tag].contains(&tag);
        sequences().count() <= 2
            && sequences().all(|open| attribute(open.tag).is_some())
            && self.open.first().is_none_or(|first| is_groups(first.tag))
    }

    /// Opens a sequence, or an item of the one that is open.
    fn begin(&mut self, tag: Tag, length: u32, keeps_types: bool) -> Result<(), DicomError> {
        let around = self.open.last();
        let is_item = tag == ITEM;
        let tag = around.filter(|_| is_item).map_or(tag, |sequence| sequence.tag);
        let is_explicit = keeps_types && around.map_or(self.is_explicit, |around| around.is_explicit);
        let end = if length == UNDEFINED {
            None
        } else {
            self.reader.expect(length.into())?;
            Some(self.reader.at() + u64::from(length))
        };
        self.open.push(Open { tag, is_item, end, is_explicit });
        Ok(())
    }

    /// Closes all that ends where it stands.
    fn close(
        &mut self,
        contents: &mut Contents,
        item: &mut Values,
        on_item: &mut OnItem<'_>,
    ) -> Result<(), DicomError> {
        while let Some(Open { end: Some(end), .. }) = self.open.last() {
            if self.reader.at() < *end {
                break;
            }
            if self.reader.at() > *end {
                return Err(self.reader.wrong("an element is longer than its sequence"));
            }
            self.pop(contents, item, on_item)?;
        }
        Ok(())
    }

    /// Closes what was opened last. With an item of the frames' groups, a frame is complete; with one of the segments, a segment.
    fn pop(
        &mut self,
        contents: &mut Contents,
        item: &mut Values,
        on_item: &mut OnItem<'_>,
    ) -> Result<(), DicomError> {
        let Some(last) = self.open.pop() else { return Ok(()) };
        if !last.is_item || self.open.len() != 1 {
            return Ok(());
        }
        let path = self.reader.path();
        if last.tag == SEGMENTS.tag {
            on_item(Described::Segment(Attributes { path, frame: None, levels: &[&*item, &contents.root] }))?;
            item.clear();
        } else if last.tag == FRAME_GROUPS.tag {
            let levels = [&*item, &contents.shared, &contents.root];
            on_item(Described::Frame(Attributes { path, frame: Some(contents.described), levels: &levels }))?;
            item.clear();
            let counted = contents.described.checked_add(1);
            contents.described = counted.ok_or_else(|| self.reader.wrong("it has too many frames"))?;
        }
        Ok(())
    }

    /// Reads this number of bytes of numbers of 4 or 8 bytes each.
    fn offsets(&mut self, length: u64, width: u64, to: &mut ReservedList<u64>) -> Result<(), DicomError> {
        self.reader.expect(length)?;
        if !length.is_multiple_of(width) {
            return Err(self.reader.wrong("its table of offsets is damaged"));
        }
        for _ in 0..length / width {
            let offset = match width {
                4 => self.reader.bytes().map(|bytes| bytes.map(|bytes| u32::from_le_bytes(bytes).into())),
                _ => self.reader.bytes().map(|bytes| bytes.map(u64::from_le_bytes)),
            };
            to.push(offset?.ok_or_else(|| self.reader.wrong("its table of offsets is cut off"))?)?;
        }
        Ok(())
    }

    /// Walks over pixels.
    fn pixels(
        &mut self,
        element: &Element,
        extended: &mut ReservedList<u64>,
        budget: &Budget,
    ) -> Result<Pixels, DicomError> {
        if element.kind == Some(*b"SQ") {
            return Err(self.reader.wrong("its pixels are a sequence"));
        }
        if element.length != UNDEFINED {
            let at = self.reader.at();
            self.reader.skip(element.length.into())?;
            return Ok(Pixels::Plain { at, length: element.length });
        }
        let mut offsets = ReservedList::new(budget, "places of frames");
        let mut fragments = ReservedList::new(budget, "places of frames");
        match self.element()? {
            Some(Element { tag: ITEM, length, .. }) => self.offsets(length.into(), 4, &mut offsets)?,
            _ => return Err(self.reader.wrong("its pixels have no table of offsets")),
        }
        if offsets.is_empty() {
            std::mem::swap(&mut offsets, extended);
        }
        let start = self.reader.at();
        loop {
            let at = self.reader.at();
            match self.element()? {
                Some(Element { tag: ITEM, length, .. }) => {
                    self.reader.skip(length.into())?;
                    fragments.push(Fragment { at, end: self.reader.at() })?;
                }
                Some(Element { tag: SEQUENCE_END, .. }) => {
                    return Ok(Pixels::Fragments(Fragments { fragments, offsets, start }));
                }
                _ => return Err(self.reader.wrong("its pixels are cut off")),
            }
        }
    }
}
