//! A file of DICOM that is written from its beginning to its end: objects, sequences of any number of items, pixels.

use std::io::{BufWriter, Write};
use std::path::Path;

use dicom_dictionary_std::tags;
use dicom_object::{FileMetaTableBuilder, InMemDicomObject, Tag};
use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_memory::{Budget, Bytes, Reservation};

use super::elements::{IMPLICIT, encode, encode_implicit};
use crate::DicomError;
use crate::error::chain;
use crate::start::MAGIC;

const ITEM: Tag = Tag(0xFFFE, 0xE000);
const ITEM_END: Tag = Tag(0xFFFE, 0xE00D);
const SEQUENCE_END: Tag = Tag(0xFFFE, 0xE0DD);

/// The length of what ends at a delimiter.
const UNDEFINED: u32 = u32::MAX;

/// The memory of one item of a sequence, as an object and encoded.
const OF_ITEM: u64 = 64 << 10;

/// A file that appears under its name when it is complete. Elements are little-endian, in explicit VR unless its syntax is the implicit one.
pub(super) struct Output<'a> {
    path: &'a Path,
    file: BufWriter<AtomicFile>,
    is_implicit: bool,
    _buffers: Reservation,
}

impl<'a> Output<'a> {
    /// # Errors
    /// Returns an error if the file cannot be created, or the budget has no room for its buffers.
    pub(super) fn create(path: &'a Path, budget: &Budget) -> Result<Output<'a>, DicomError> {
        let buffers = budget.reserve("a file being written", Bytes(BUFFER as u64 + OF_ITEM))?;
        let file = AtomicFile::create(path).map_err(|source| DicomError::Io { path: path.into(), source })?;
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Output { path, file, is_implicit: false, _buffers: buffers })
    }

    /// Writes what stands before all elements: what kind of object it is, which one, and how it is encoded.
    pub(super) fn start(&mut self, class: &str, instance: &str, syntax: &str) -> Result<(), DicomError> {
        let built = FileMetaTableBuilder::new()
            .media_storage_sop_class_uid(class)
            .media_storage_sop_instance_uid(instance)
            .transfer_syntax(syntax)
            .build();
        let mut bytes = vec![0; MAGIC.0];
        bytes.extend(MAGIC.1);
        let unencodable = |why: String| DicomError::Unencodable { why };
        let meta = built.map_err(|error| unencodable(chain(&error)))?;
        meta.write(&mut bytes).map_err(|error| unencodable(chain(&error)))?;
        self.is_implicit = syntax == IMPLICIT;
        self.bytes(&bytes)
    }

    /// Writes all elements of an object.
    pub(super) fn object(&mut self, object: &InMemDicomObject) -> Result<(), DicomError> {
        let bytes = if self.is_implicit { encode_implicit(object)? } else { encode(object)? };
        self.bytes(&bytes)
    }

    /// Writes a sequence of items, one of which is held at a time.
    ///
    /// # Errors
    /// Returns an error if the disk fails. It also returns the errors of the items.
    pub(super) fn sequence(
        &mut self,
        tag: Tag,
        items: impl IntoIterator<Item = Result<InMemDicomObject, DicomError>>,
    ) -> Result<(), DicomError> {
        self.begin_sequence(tag)?;
        for item in items {
            self.begin_item()?;
            self.object(&item?)?;
            self.end_of_item()?;
        }
        self.end_of_sequence()
    }

    /// Begins a sequence.
    pub(super) fn begin_sequence(&mut self, tag: Tag) -> Result<(), DicomError> {
        self.element(tag, *b"SQ", UNDEFINED)
    }

    /// Begins an item of a sequence.
    pub(super) fn begin_item(&mut self) -> Result<(), DicomError> {
        self.mark(ITEM, UNDEFINED)
    }

    /// Ends an item of a sequence.
    pub(super) fn end_of_item(&mut self) -> Result<(), DicomError> {
        self.mark(ITEM_END, 0)
    }

    /// Begins pixels that are compressed, of which each frame is a fragment. The table of where they are is left out, as it may be.
    pub(super) fn fragments(&mut self) -> Result<(), DicomError> {
        self.element(tags::PIXEL_DATA, *b"OB", UNDEFINED)?;
        self.mark(ITEM, 0)
    }

    /// Writes the next frame, which has an even number of bytes.
    pub(super) fn fragment(&mut self, bytes: &[u8]) -> Result<(), DicomError> {
        // A frame has at most 2³² pixels of two bytes, each row of which grows by less than a hundredth; frames of 4 GiB are refused.
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length != UNDEFINED);
        let why = || format!("a frame has {} bytes", bytes.len());
        self.mark(ITEM, length.ok_or_else(|| DicomError::Unencodable { why: why() })?)?;
        self.bytes(bytes)
    }

    /// Ends a sequence, or pixels that are compressed.
    pub(super) fn end_of_sequence(&mut self) -> Result<(), DicomError> {
        self.mark(SEQUENCE_END, 0)
    }

    /// Begins pixels that are not compressed, of this length in bytes.
    pub(super) fn pixels(&mut self, length: u32) -> Result<(), DicomError> {
        self.element(tags::PIXEL_DATA, *b"OB", length)
    }

    /// Writes bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), DicomError> {
        self.file.write_all(bytes).map_err(|source| DicomError::Io { path: self.path.into(), source })
    }

    /// Gives the file its name.
    pub(super) fn commit(self) -> Result<(), DicomError> {
        let io = |source| DicomError::Io { path: self.path.into(), source };
        self.file.into_inner().map_err(|error| io(error.into_error()))?.commit().map_err(io)
    }

    /// Writes the tag, type and length of a sequence or of pixels, whose lengths have 32 bits.
    fn element(&mut self, tag: Tag, kind: [u8; 2], length: u32) -> Result<(), DicomError> {
        self.tag(tag)?;
        if !self.is_implicit {
            self.bytes(&kind)?;
            self.bytes(&[0; 2])?;
        }
        self.bytes(&length.to_le_bytes())
    }

    /// Writes the mark that begins an item, or ends an item or a sequence.
    fn mark(&mut self, tag: Tag, length: u32) -> Result<(), DicomError> {
        self.tag(tag)?;
        self.bytes(&length.to_le_bytes())
    }

    fn tag(&mut self, tag: Tag) -> Result<(), DicomError> {
        self.bytes(&tag.group().to_le_bytes())?;
        self.bytes(&tag.element().to_le_bytes())
    }
}
