//! The form that all pages of a volume have in common.

use std::io::BufReader;

use plimsoll_disk::File;
use tiff::decoder::Decoder;
use tiff::tags::{PhotometricInterpretation, Tag};
use tiff::{ColorType, TiffResult};

use crate::ElementType;

/// The most pixels of a page.
const MOST_PIXELS: u64 = 1 << 28;

/// The most bytes that one byte of a file decompresses to: a code of LZW, of 9 bits or more, denotes 4,096 at most.
const MOST_EXPANDED: u64 = 4096;

/// Bits of the kind of a page: a smaller copy of another one, or its mask.
const COPY_OR_MASK: u32 = 0b101;

/// The size and type of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Form {
    pub(super) height: u32,
    pub(super) width: u32,
    pub(super) element_type: ElementType,
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} samples of {}", self.height, self.width, self.element_type)
    }
}

impl Form {
    /// The form of the page of the present directory, or why it is not read; `None` if it is only a copy or a mask of another.
    pub(super) fn read(decoder: &mut Decoder<BufReader<File>>) -> TiffResult<Option<Result<Form, String>>> {
        let kind: Option<u32> = decoder.find_tag_unsigned(Tag::NewSubfileType)?;
        if kind.is_some_and(|kind| kind & COPY_OR_MASK != 0) {
            return Ok(None);
        }
        let bits = match decoder.colortype()? {
            ColorType::Gray(bits) => bits,
            other => {
                return Ok(Some(Err(format!("its pages have {other:?} samples, but planes must be grey"))));
            }
        };
        let light: Option<u16> = decoder.find_tag_unsigned(Tag::PhotometricInterpretation)?;
        if light == Some(PhotometricInterpretation::WhiteIsZero.to_u16()) {
            return Ok(Some(Err("in its pages 0 is white, so other programs read other numbers".into())));
        }
        // Whole numbers where nothing is said.
        let format: u16 = decoder.find_tag_unsigned(Tag::SampleFormat)?.unwrap_or(1);
        let element_type = match (format, bits) {
            (1, 8) => ElementType::U8,
            (1, 16) => ElementType::U16,
            (1, 32) => ElementType::U32,
            (2, 8) => ElementType::I8,
            (2, 16) => ElementType::I16,
            (2, 32) => ElementType::I32,
            (3, 32) => ElementType::F32,
            (3, 64) => ElementType::F64,
            _ => return Ok(Some(Err(format!("its pages have samples of {bits} bits of format {format}")))),
        };
        let (width, height) = decoder.dimensions()?;
        Ok(Some(Ok(Form { height, width, element_type })))
    }

    /// The bytes of a page, or the reason why files of this total length cannot have this number of pages.
    pub(super) fn page_bytes(&self, pages: usize, file_bytes: u64) -> Result<usize, String> {
        let pixels = u64::from(self.height) * u64::from(self.width);
        if pixels == 0 || pixels > MOST_PIXELS {
            return Err(format!(
                "its pages have {} × {} pixels, but must have 1 to {MOST_PIXELS} along an axis",
                self.height, self.width
            ));
        }
        // At most 2²⁸ pixels of eight bytes.
        let page = pixels * self.element_type.size() as u64;
        let all = page.saturating_mul(pages as u64);
        if all > file_bytes.saturating_mul(MOST_EXPANDED) {
            return Err(format!(
                "its pages have {all} bytes, which a file of {file_bytes} bytes cannot contain"
            ));
        }
        usize::try_from(page).map_err(|_| format!("a page has {page} bytes, more than can be addressed"))
    }
}
