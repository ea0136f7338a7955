//! TIFF files of several pages, which are the planes of a volume.
//!
//! Pages have no place in the world, and no distance from each other: that is in a file of JSON beside the TIFF, as nnU-Net's `Tiff3DIO`
//! has it, or else voxels are a millimetre long. A page is decoded as a whole when a voxel of it is asked for, and stays until another is.

mod description;
mod directory;
mod write;

use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_image::{Panicked, run_decoder};
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};
use tiff::decoder::ifd::Value;
use tiff::decoder::{Decoder, Limits};
use tiff::tags::{PhotometricInterpretation, Tag};
use tiff::{ColorType, TiffError, TiffResult};

use crate::format::{Opened, VoxelSource};
use crate::nifti::{HeaderError, Layout};
use crate::picture::Content;
use crate::{Affine, ByteOrder, ElementType, Geometry, Scaling, Spacing, VolumeError};

pub(crate) use write::StackWriter;

/// Values of an entry of a directory that are read: as many strips a page may have.
const MOST_VALUES: usize = 16 << 10;

/// Bytes of these values in the file.
const ENTRY: usize = MOST_VALUES * size_of::<u32>();

/// What the decoder takes beside a page and the bytes that it is made of: where each strip is, and how long, of which the values of one entry
/// are boxed meanwhile; and tables of the decompressor.
const FIXED: Bytes = Bytes(4 << 20);

/// The most pages, and the most pixels of one.
const MOST_PAGES: usize = 1 << 16;
const MOST_PIXELS: u64 = 1 << 28;

/// The most bytes that one byte of a file becomes: a code of LZW, of 9 bits or more, stands for 4,096 at most.
const MOST_EXPANDED: u64 = 4096;

/// Bits of the kind of a page: a smaller copy of another one, or its mask.
const COPY_OR_MASK: u32 = 0b101;

/// A TIFF file whose directories were read, and a page of it once it is decoded.
pub(crate) struct Stack {
    path: PathBuf,
    decoder: Decoder<BufReader<File>>,
    /// The directories that are pages.
    pages: Vec<usize>,
    page_bytes: usize,
    element_size: usize,
    decoded: Option<Page>,
}

/// Room for a page.
struct Page {
    samples: Mapped<u8>,
    /// Which it is.
    number: Option<usize>,
    /// Of the decoder.
    _room: Reservation,
}

/// What all pages have in common.
#[derive(Clone, Copy, PartialEq)]
struct Form {
    height: u32,
    width: u32,
    element_type: ElementType,
}

impl Stack {
    /// Reads all directories; none if there is but one page, or the file is no TIFF, which whoever reads pictures can tell better.
    ///
    /// # Errors
    /// If the file cannot be opened, pages differ, have several samples or ones that are not read, there are more than planes of one channel,
    /// or their spacing is not said as it must be.
    pub(crate) fn open(path: &Path, content: Content) -> Result<Option<Opened>, VolumeError> {
        let failed = |source| VolumeError::Io { path: path.into(), action: "open", source };
        let file = File::open(path).map_err(failed)?;
        let file_bytes = file.len().map_err(failed)?;
        let refused = |why: String| VolumeError::Stack { path: path.into(), why };
        let mut file = BufReader::new(file);
        let Ok(Some(first)) = directory::first(&mut file) else { return Ok(None) };
        if !first.is_followed {
            return Ok(None);
        }
        if first.values > MOST_VALUES as u64 {
            return Err(refused(format!(
                "an entry of its first page has {} values, such as places of strips, and is read with up to {MOST_VALUES}",
                first.values
            )));
        }
        file.rewind().map_err(failed)?;
        let Ok(mut decoder) = guarded(path, || Decoder::new(file)) else { return Ok(None) };
        // By this the decoder limits the values of an entry, each of them boxed. Pages are read into room of ours.
        let mut limits = Limits::default();
        limits.decoding_buffer_size = MOST_VALUES * size_of::<Value>();
        decoder = decoder.with_limits(limits.clone());
        let mut pages = Vec::new();
        let mut forms = Vec::new();
        for directory in 0..MOST_PAGES {
            if let Some(form) = guarded(path, || form(&mut decoder))? {
                pages.push(directory);
                forms.push(form);
            }
            if !decoder.more_images() {
                break;
            }
            if directory + 1 == MOST_PAGES {
                return Err(refused(format!("it has more than {MOST_PAGES} pages")));
            }
            guarded(path, || decoder.next_image())?;
        }
        if pages.len() < 2 {
            return Ok(None);
        }
        let forms: Vec<Form> = forms.into_iter().collect::<Result<_, String>>().map_err(refused)?;
        let Some(form) = forms.first().copied() else { return Ok(None) };
        if let Some((place, other)) = forms.iter().enumerate().find(|(_, other)| **other != form) {
            return Err(refused(format!(
                "page 1 has {} × {} samples of {}, but page {} has {} × {} of {}",
                form.height,
                form.width,
                form.element_type,
                place + 1,
                other.height,
                other.width,
                other.element_type
            )));
        }
        if let Some(why) = guarded(path, || description::several_channels(&mut decoder, pages.len()))? {
            return Err(refused(why));
        }
        let page_bytes = check_size(&form, pages.len(), file_bytes).map_err(refused)?;
        let spacing = crate::spacing::read(path, content)?.unwrap_or(Spacing([1.0; 3]));
        let shape = [pages.len(), form.height as usize, form.width as usize];
        let geometry = Geometry::new(shape, Affine::from_spacing(spacing)).map_err(|problem| {
            let problem = HeaderError::Geometry { problem, source_field: "pages" };
            VolumeError::Header { path: path.into(), problem }
        })?;
        let layout = Layout {
            geometry,
            channels: 1,
            element_type: form.element_type,
            byte_order: ByteOrder::NATIVE,
            scaling: Scaling::NONE,
            start: 0,
            bytes: pages.len() as u64 * page_bytes as u64,
        };
        // A small page may be longer compressed than plain, by less than what a directory's entry may take.
        limits.intermediate_buffer_size = page_bytes.saturating_add(ENTRY);
        let decoder = decoder.with_limits(limits);
        let element_size = form.element_type.size();
        let source =
            Box::new(Stack { path: path.into(), decoder, pages, page_bytes, element_size, decoded: None });
        Ok(Some(Opened { path: path.into(), layout, header: None, source }))
    }

    /// What the decoder reads a page from, and has beside it.
    fn decoder_bytes(&self) -> Bytes {
        Bytes::of(self.page_bytes) + FIXED
    }
}

impl VoxelSource for Stack {
    fn decoding_bytes(&self) -> Bytes {
        Mapped::<u8>::bytes(self.page_bytes).map_or(Bytes(u64::MAX), |page| page + self.decoder_bytes())
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.decoded.is_some() {
            return Ok(());
        }
        let memory = |problem: MapError| VolumeError::of_memory(&self.path, problem);
        let room = budget.reserve("decoder of images", self.decoder_bytes());
        let room = room.map_err(|error| memory(error.into()))?;
        let samples = Mapped::zeroed(budget, "a page of an image", self.page_bytes).map_err(memory)?;
        self.decoded = Some(Page { samples, number: None, _room: room });
        Ok(())
    }

    fn is_random_access(&self) -> bool {
        self.decoded.is_some()
    }

    // The only channel it is, as was checked.
    fn read(&mut self, _channel: usize, first: usize, mut bytes: &mut [u8]) -> Result<(), VolumeError> {
        let mut first = first * self.element_size;
        let Stack { path, decoder, pages, page_bytes, decoded, .. } = self;
        let Some(page) = decoded else { return Err(VolumeError::NotDecoded { path: path.clone() }) };
        while !bytes.is_empty() {
            let (number, at) = (first / *page_bytes, first % *page_bytes);
            let count = (*page_bytes - at).min(bytes.len());
            if page.number != Some(number) {
                page.number = None;
                let directory = pages.get(number).copied();
                guarded(path, || {
                    // The region was checked to be within the volume.
                    let directory = directory.ok_or(TiffError::LimitsExceeded)?;
                    decoder.seek_to_image(directory)?;
                    decoder.read_image_bytes(&mut page.samples)
                })?;
                page.number = Some(number);
            }
            let (to, rest) = std::mem::take(&mut bytes).split_at_mut(count);
            to.copy_from_slice(&page.samples[at..at + count]);
            (bytes, first) = (rest, first + count);
        }
        Ok(())
    }
}

/// What the present directory says of its page, or why it is not read; none if it is only a copy or a mask of another.
fn form(decoder: &mut Decoder<BufReader<File>>) -> TiffResult<Option<Result<Form, String>>> {
    let kind: Option<u32> = decoder.find_tag_unsigned(Tag::NewSubfileType)?;
    if kind.is_some_and(|kind| kind & COPY_OR_MASK != 0) {
        return Ok(None);
    }
    let bits = match decoder.colortype()? {
        ColorType::Gray(bits) => bits,
        other => {
            return Ok(Some(Err(format!("its pages have {other:?} samples, and only grey ones are planes"))));
        }
    };
    let light: Option<u16> = decoder.find_tag_unsigned(Tag::PhotometricInterpretation)?;
    if light == Some(PhotometricInterpretation::WhiteIsZero.to_u16()) {
        return Ok(Some(Err("in its pages 0 is white, so that other programs read other numbers".into())));
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

/// The bytes of a page; why not if a file of so many bytes cannot hold as many pages.
fn check_size(form: &Form, pages: usize, file_bytes: u64) -> Result<usize, String> {
    let pixels = u64::from(form.height) * u64::from(form.width);
    if pixels == 0 || pixels > MOST_PIXELS {
        return Err(format!(
            "its pages have {} × {} pixels, and are read with 1 to {MOST_PIXELS}",
            form.height, form.width
        ));
    }
    // At most 2²⁸ pixels of eight bytes.
    let page = pixels * form.element_type.size() as u64;
    let all = page.saturating_mul(pages as u64);
    if all > file_bytes.saturating_mul(MOST_EXPANDED) {
        return Err(format!("its pages have {all} bytes, which no file of {file_bytes} bytes can hold"));
    }
    usize::try_from(page).map_err(|_| format!("a page has {page} bytes, more than can be addressed"))
}

/// Runs the decoder. Should it panic, which no file should make it do, that is an error, too.
fn guarded<T>(path: &Path, decode: impl FnOnce() -> TiffResult<T>) -> Result<T, VolumeError> {
    let why = match run_decoder(decode) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(TiffError::IoError(source))) if source.raw_os_error().is_some() => {
            return Err(VolumeError::Io { path: path.into(), action: "read", source });
        }
        Ok(Err(problem)) => problem.to_string(),
        Err(Panicked) => "the decoder failed on it".into(),
    };
    Err(VolumeError::Stack { path: path.into(), why: format!("it is damaged: {why}") })
}

#[cfg(test)]
mod tests;
