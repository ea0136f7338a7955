//! TIFF as volumes: files of several pages, which are planes, and [folders](folder) of slices that are files of their own.
//!
//! Pages have no place in the world. Their distances are in a file of JSON beside the TIFF, as nnU-Net's `Tiff3DIO` has it; else in what
//! [ImageJ and OME](lengths) write into the first page; else voxels are a millimetre long. A page is decoded as a whole when a voxel of it
//! is asked for, and stays until another is.

mod description;
mod directory;
mod folder;
mod form;
mod lengths;
mod order;
mod write;

use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};
use plimsoll_parallel::{Panicked, catch_panic};
use tiff::decoder::ifd::Value;
use tiff::decoder::{Decoder, Limits};
use tiff::{TiffError, TiffResult};

use crate::content::Content;
use crate::layout::Layout;
use crate::nifti::HeaderError;
use crate::source::{Opened, VoxelSource};
use crate::{Affine, ByteOrder, Geometry, Scaling, VolumeError};

use description::Description;
pub(crate) use folder::{is_of_slices, open as open_folder};
use form::Form;
use lengths::Lengths;
pub(crate) use write::StackWriter;

/// Returns `true` if a path has the name of a TIFF file.
pub(crate) fn is_tiff(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["tif", "tiff"].iter().any(|tiff| ending.eq_ignore_ascii_case(tiff)))
}

/// Values of an entry of a directory that are read: as many strips a page may have.
const MOST_VALUES: usize = 16 << 10;

/// Bytes of these values in the file.
const ENTRY: usize = MOST_VALUES * size_of::<u32>();

/// The memory of the decoder without a page and its stored bytes: the offset and length of each strip, of which the values of one entry
/// are boxed meanwhile; and tables of the decompressor.
const FIXED: Bytes = Bytes(4 << 20);

/// The most pages.
const MOST_PAGES: usize = 1 << 16;

/// The memory of the name of a slice without its letters.
const NAME: u64 = 48;

/// The pages of a stack.
#[derive(Clone, Copy)]
struct Pages {
    count: usize,
    form: Form,
    /// The bytes of each.
    bytes: usize,
}

/// Planes whose directories were read, and one of them once it is decoded.
pub(crate) struct Stack {
    path: PathBuf,
    planes: Planes,
    page_bytes: usize,
    element_size: usize,
    lengths: Lengths,
    decoded: Option<Page>,
}

/// The place of the planes.
enum Planes {
    /// In one file: the directories that are pages.
    Pages { decoder: Box<Decoder<BufReader<File>>>, directories: Vec<usize> },
    /// Each in a file of a folder.
    Slices { folder: PathBuf, names: Vec<Box<str>>, form: Form },
}

/// Room for a page.
struct Page {
    samples: Mapped<u8>,
    /// The number of the page.
    number: Option<usize>,
    /// The reservation for the decoder.
    _room: Reservation,
}

impl Stack {
    /// Reads all directories; none if there is but one page, or the file is no TIFF, which the reader of pictures
    /// reports better.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, pages differ, have several samples or unsupported ones, there are
    /// more than planes of one channel, or their spacing is not described as required.
    pub(crate) fn open(path: &Path, content: Content) -> Result<Option<Opened>, VolumeError> {
        let refused = |why: String| VolumeError::Stack { path: path.into(), why };
        let Some(Begun { mut decoder, is_followed, file_bytes }) = Begun::new(path)? else { return Ok(None) };
        if !is_followed {
            // ImageJ writes volumes of more than 4 GiB behind a single directory.
            let said = guarded(path, || Ok((Form::read(&mut decoder)?, Description::read(&mut decoder)?)));
            let of_several = said.ok().and_then(|(form, description)| match form {
                Some(Ok(_)) => description.several_channels(1),
                // Colours are samples of a picture, whose description may count them.
                _ => None,
            });
            return of_several.map_or(Ok(None), |why| Err(refused(why)));
        }
        let mut directories = Vec::new();
        let mut forms = Vec::new();
        for directory in 0..MOST_PAGES {
            if let Some(form) = guarded(path, || Form::read(&mut decoder))? {
                directories.push(directory);
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
        let pages = directories.len();
        if pages < 2 {
            return Ok(None);
        }
        let forms: Vec<Form> = forms.into_iter().collect::<Result<_, String>>().map_err(refused)?;
        let Some(form) = forms.first().copied() else { return Ok(None) };
        if let Some((place, other)) = forms.iter().enumerate().find(|(_, other)| **other != form) {
            return Err(refused(format!("page 1 has {form}, but page {} has {other}", place + 1)));
        }
        let description = guarded(path, || {
            decoder.seek_to_image(0)?;
            Description::read(&mut decoder)
        })?;
        if let Some(why) = description.several_channels(pages) {
            return Err(refused(why));
        }
        let page_bytes = form.page_bytes(pages, file_bytes).map_err(refused)?;
        let decoder = Box::new(decoder.with_limits(limits(page_bytes)));
        let planes = Planes::Pages { decoder, directories };
        Stack::opened(path, content, planes, Pages { count: pages, form, bytes: page_bytes }, &description)
            .map(Some)
    }

    /// Opens planes of one form as a volume.
    fn opened(
        path: &Path,
        content: Content,
        planes: Planes,
        pages: Pages,
        description: &Description,
    ) -> Result<Opened, VolumeError> {
        let Pages { count, form, bytes: page_bytes } = pages;
        let lengths = match crate::spacing::read(path, content)? {
            Some(spacing) => Lengths { spacing, ..Lengths::NONE },
            None => {
                let said = description.lengths();
                said.map_err(|why| VolumeError::StackLengths { path: path.into(), why })?
            }
        };
        let shape = [count, form.height as usize, form.width as usize];
        let geometry = Geometry::new(shape, Affine::from_spacing(lengths.spacing)).map_err(|problem| {
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
            bytes: count as u64 * page_bytes as u64,
        };
        let element_size = form.element_type.size();
        let source =
            Box::new(Stack { path: path.into(), planes, page_bytes, element_size, lengths, decoded: None });
        Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
    }

    /// The memory of the decoder: the stored bytes of a page, its tables, and the names of slices.
    fn decoder_bytes(&self) -> Bytes {
        let names = match &self.planes {
            Planes::Pages { .. } => 0,
            Planes::Slices { names, .. } => names.iter().map(|name| name.len() as u64 + NAME).sum(),
        };
        Bytes::from_len(self.page_bytes) + FIXED + Bytes(names)
    }
}

/// The limits of a decoder. By the size of its buffer it limits the values of an entry, each of them boxed; pages are read into a buffer of
/// ours. A small page may be longer compressed than plain, by less than an entry of a directory may take.
fn limits(page_bytes: usize) -> Limits {
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MOST_VALUES * size_of::<Value>();
    limits.intermediate_buffer_size = page_bytes.saturating_add(ENTRY);
    limits
}

/// A TIFF file at its first directory.
struct Begun {
    decoder: Decoder<BufReader<File>>,
    /// By another directory.
    is_followed: bool,
    file_bytes: u64,
}

impl Begun {
    /// None if it is no TIFF, or damaged before its first page.
    fn new(path: &Path) -> Result<Option<Begun>, VolumeError> {
        let failed = |source| VolumeError::Io { path: path.into(), action: "open", source };
        let file = File::open(path).map_err(failed)?;
        let file_bytes = file.len().map_err(failed)?;
        let mut file = BufReader::new(file);
        let Ok(Some(first)) = directory::first(&mut file) else { return Ok(None) };
        if first.values > MOST_VALUES as u64 {
            let why = format!(
                "an entry of its first page has {} values, such as positions of strips, more than {MOST_VALUES}",
                first.values
            );
            // Whoever reads pictures has limits of its own.
            return if first.is_followed {
                Err(VolumeError::Stack { path: path.into(), why })
            } else {
                Ok(None)
            };
        }
        file.rewind().map_err(failed)?;
        let Ok(decoder) = guarded(path, || Decoder::new(file)) else { return Ok(None) };
        let decoder = decoder.with_limits(limits(0));
        Ok(Some(Begun { decoder, is_followed: first.is_followed, file_bytes }))
    }
}

/// The decoder of a slice, which has one page, and its form.
fn single_page(path: &Path) -> Result<(Decoder<BufReader<File>>, Form), VolumeError> {
    let refused = |why: &str| VolumeError::Stack { path: path.into(), why: why.into() };
    let begun = Begun::new(path)?.ok_or_else(|| refused("it is not a TIFF file, or it is damaged"))?;
    if begun.is_followed {
        return Err(refused("it has several pages, but each slice of a folder must have one"));
    }
    let mut decoder = begun.decoder;
    match guarded(path, || Form::read(&mut decoder))? {
        Some(Ok(form)) => Ok((decoder, form)),
        Some(Err(why)) => Err(refused(&why)),
        None => Err(refused("its only page is a copy or a mask of another one")),
    }
}

impl Planes {
    /// Decodes a plane, which was checked to be there.
    fn decode(&mut self, path: &Path, number: usize, samples: &mut [u8]) -> Result<(), VolumeError> {
        match self {
            Planes::Pages { decoder, directories } => guarded(path, || {
                let directory = directories.get(number).copied().ok_or(TiffError::LimitsExceeded)?;
                decoder.seek_to_image(directory)?;
                decoder.read_image_bytes(samples).map(drop)
            }),
            Planes::Slices { folder, names, form } => {
                let path = folder.join(&*names[number]);
                let (decoder, found) = single_page(&path)?;
                if found != *form {
                    let why = format!("it has {found}, but had {form} when the folder was opened");
                    return Err(VolumeError::Stack { path, why });
                }
                let mut decoder = decoder.with_limits(limits(samples.len()));
                guarded(&path, || decoder.read_image_bytes(samples).map(drop))
            }
        }
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
        let memory = |problem: MapError| VolumeError::memory(&self.path, problem);
        let room = budget.reserve("decoder of images", self.decoder_bytes());
        let room = room.map_err(|error| memory(error.into()))?;
        let samples = Mapped::zeroed(budget, "a page of an image", self.page_bytes).map_err(memory)?;
        self.decoded = Some(Page { samples, number: None, _room: room });
        Ok(())
    }

    fn is_random_access(&self) -> bool {
        self.decoded.is_some()
    }

    fn millimetres_per_unit(&self) -> f64 {
        self.lengths.unit
    }

    fn warnings(&self) -> Vec<String> {
        self.lengths.warning.iter().cloned().collect()
    }

    // The only channel it is, as was checked.
    fn read(&mut self, _channel: usize, first: usize, mut bytes: &mut [u8]) -> Result<(), VolumeError> {
        let mut first = first * self.element_size;
        let Stack { path, planes, page_bytes, decoded, .. } = self;
        let Some(page) = decoded else { return Err(VolumeError::NotDecoded { path: path.clone() }) };
        while !bytes.is_empty() {
            let (number, at) = (first / *page_bytes, first % *page_bytes);
            let count = (*page_bytes - at).min(bytes.len());
            if page.number != Some(number) {
                page.number = None;
                planes.decode(path, number, &mut page.samples)?;
                page.number = Some(number);
            }
            let (to, rest) = std::mem::take(&mut bytes).split_at_mut(count);
            to.copy_from_slice(&page.samples[at..at + count]);
            (bytes, first) = (rest, first + count);
        }
        Ok(())
    }
}

/// Runs the decoder. Should it panic, which no file should make it do, that is an error, too.
fn guarded<T>(path: &Path, decode: impl FnOnce() -> TiffResult<T>) -> Result<T, VolumeError> {
    let why = match catch_panic(decode) {
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
