//! Plain images as volumes of one slice.
//!
//! A picture has no place in the world: its pixels are a millimetre apart, and rows run along the height. Its formats are decoded as
//! a whole, within a budget, before any region is read; the header is enough for the grid.

use std::path::{Path, PathBuf};

use plimsoll_image::{DecodeOptions, Decoded, ImageError, ImageFile, LabelImage};
use plimsoll_memory::{Budget, Bytes};

use crate::beginning::Beginning;
use crate::content::Content;
use crate::layout::Layout;
use crate::nifti::HeaderError;
use crate::source::{Opened, VoxelSource};
use crate::stack::{self, Stack};
use crate::{Affine, ByteOrder, ElementType, Geometry, Scaling, Spacing, VolumeError};

/// The endings of names of pictures, with the dot, in lower case.
pub const ENDINGS: [&str; 6] = [".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"];

/// A picture whose header was read, and its pixels once they are decoded.
struct Picture {
    path: PathBuf,
    file: File,
    decoded: Option<Decoded>,
}

enum File {
    Intensities(ImageFile),
    Labels(LabelImage),
}

/// Returns `true` if a path has the name of a picture.
pub fn is_picture(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The beginnings of pictures: PNG, JPEG, BMP, and TIFF in both byte orders, of up to 4 GiB and of more.
const BEGINNINGS: [&[u8]; 7] =
    [b"\x89PNG\r\n", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"];

/// Returns `true` if a file begins as pictures do.
fn begins(head: &[u8]) -> bool {
    // Two letters are few: a header of BMP has four zeros behind the length of the file.
    let is_bmp = |head: &[u8]| head.get(6..10) == Some(&[0; 4]);
    BEGINNINGS.iter().any(|start| head.starts_with(start) && (*start != b"BM" || is_bmp(head)))
}

/// Returns `true` if a file begins as pictures do, or a folder has slices in TIFF.
pub(crate) fn is_told_by(beginning: &Beginning) -> bool {
    if beginning.is_folder() { stack::is_of_slices(beginning.path()) } else { begins(beginning.head()) }
}

/// Opens a picture, a TIFF of several pages, or a folder of slices in TIFF.
///
/// # Errors
/// Returns an error if the picture cannot be opened, or its format is not supported.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    if path.is_dir() {
        return stack::open_folder(path, content);
    }
    if let Some(stack) = Stack::open(path, content)? {
        return Ok(stack);
    }
    Picture::open(path, content)
}

fn refused(problem: ImageError) -> VolumeError {
    VolumeError::Picture { problem: Box::new(problem) }
}

impl Picture {
    /// Reads the header.
    fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
        let options = DecodeOptions::default();
        let (file, extent, channels, bits) = match content {
            Content::Intensities => {
                let file = ImageFile::open(path, &options).map_err(refused)?;
                let header = *file.header();
                (File::Intensities(file), header.extent, header.channels, header.bits)
            }
            Content::Labels | Content::Segments { .. } => {
                let file = LabelImage::open(path, &options).map_err(refused)?;
                let (extent, bits) = (file.extent(), file.bits());
                (File::Labels(file), extent, 1, bits)
            }
        };
        let element_type = if bits > 8 { ElementType::U16 } else { ElementType::U8 };
        let shape = [1, extent.height, extent.width];
        let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.0; 3]))).map_err(|problem| {
            VolumeError::Header {
                path: path.into(),
                problem: HeaderError::Geometry { problem, source_field: "pixels" },
            }
        })?;
        // The extent was checked against the most pixels that are read, so the product is far from any limit.
        let bytes = extent.pixels() as u64 * channels as u64 * element_type.size() as u64;
        let byte_order = ByteOrder::NATIVE;
        let layout =
            Layout { geometry, channels, element_type, byte_order, scaling: Scaling::NONE, start: 0, bytes };
        let source = Box::new(Picture { path: path.into(), file, decoded: None });
        Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
    }
}

impl VoxelSource for Picture {
    fn decoding_bytes(&self) -> Bytes {
        let bytes = match &self.file {
            File::Intensities(file) => file.decoding_bytes(),
            File::Labels(file) => file.decoding_bytes(),
        };
        bytes.unwrap_or(Bytes(u64::MAX))
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.decoded.is_none() {
            let decoded = match &self.file {
                File::Intensities(file) => file.decode(budget),
                File::Labels(file) => file.decode(budget),
            };
            self.decoded = Some(decoded.map_err(refused)?);
        }
        Ok(())
    }

    fn is_random_access(&self) -> bool {
        self.decoded.is_some()
    }

    fn is_picture(&self) -> bool {
        true
    }

    /// Pixels are stored with their channels together.
    fn read(&mut self, channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        fn copy<T: bytemuck::Pod>(image: &[T], channels: usize, from: (usize, usize), bytes: &mut [u8]) {
            let (channel, first) = from;
            let samples = image.iter().skip(first * channels + channel).step_by(channels.max(1));
            for (to, sample) in bytes.chunks_exact_mut(size_of::<T>()).zip(samples) {
                to.copy_from_slice(bytemuck::bytes_of(sample));
            }
        }
        let from = (channel, first);
        match &self.decoded {
            Some(Decoded::Eight(image)) => copy(image, image.channels(), from, bytes),
            Some(Decoded::Sixteen(image)) => copy(image, image.channels(), from, bytes),
            None => return Err(VolumeError::NotDecoded { path: self.path.clone() }),
        }
        Ok(())
    }
}
