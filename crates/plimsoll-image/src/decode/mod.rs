//! From files to images, within limits that are checked before anything is decoded.
//!
//! [`ImageFile::open`] reads the header, checks the size that it claims, and says how many bytes decoding takes;
//! [`ImageFile::decode`] reserves them first. The format is told by the first bytes of a file, not by its name.

mod format;
mod header;
mod jpeg;
mod labels;
mod open;
mod orientation;
mod png;
mod samples;
mod tiff;

use std::io::{BufRead, BufReader, Cursor, Seek};
use std::path::{Path, PathBuf};

use image::{ColorType, ImageDecoder, ImageReader, Limits};
use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_parallel::{Panicked, catch_panic};
use serde::{Deserialize, Serialize};

pub use header::Header;
pub use labels::LabelImage;
pub use orientation::Orientation;
pub use samples::{Decoded, Levels, SampleRange};

use crate::ImageError;
use crate::raster::{Extent, Image};
use format::Format;

/// Memory that a decoder takes beside what grows with the image: tables, windows, chunks of metadata.
const FIXED: Bytes = Bytes(512 << 10);

/// The most bytes of metadata. A decoder refuses images with more, so that a compressed profile cannot grow
/// without bounds.
const METADATA: u64 = 256 << 10;

/// Options for reading images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodeOptions {
    /// The handling of the orientation that cameras write.
    pub orientation: Orientation,
    /// The range of samples of 16 bits that becomes 0 to 255; none where no image of the data set has 16 bits, so that such an image is
    /// refused.
    pub range_16_bit: Option<SampleRange>,
    /// The most pixels that an image may have, height × width.
    pub most_pixels: u64,
    /// The longest file that is read.
    pub most_bytes: Bytes,
}

impl Default for DecodeOptions {
    /// PIL's reading of images of 8 bits, up to 2²⁸ pixels and 1 GiB.
    fn default() -> DecodeOptions {
        DecodeOptions {
            orientation: Orientation::default(),
            range_16_bit: None,
            most_pixels: 1 << 28,
            most_bytes: Bytes::gib(1),
        }
    }
}

/// An image file whose header was read and checked.
#[derive(Clone, Debug)]
pub struct ImageFile {
    path: PathBuf,
    header: Header,
    options: DecodeOptions,
}

impl ImageFile {
    /// Reads the header of a PNG, JPEG, TIFF or BMP file.
    ///
    /// # Errors
    /// If the file is not there, empty, foreign, damaged, longer than the limit, or claims more pixels than the limit.
    pub fn open(path: impl AsRef<Path>, options: &DecodeOptions) -> Result<ImageFile, ImageError> {
        let path = path.as_ref();
        let header = open::read_header(path, options)?;
        Ok(ImageFile { path: path.into(), header, options: *options })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Rows and columns of the decoded image, orientation applied if it is.
    pub fn extent(&self) -> Extent {
        if self.orientation().swaps_axes() { self.header.extent.transposed() } else { self.header.extent }
    }

    /// Bytes that [`decode`](Self::decode) reserves while it runs: for the image and for the decoder.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn decoding_bytes(&self) -> Result<Bytes, MapError> {
        Ok(self.image_bytes()? + self.header.decoder_bytes())
    }

    /// Bytes that the decoded image reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn image_bytes(&self) -> Result<Bytes, MapError> {
        let Header { extent, channels, bits, .. } = self.header;
        if bits > 8 {
            Image::<u16>::reserves(extent, channels)
        } else {
            Image::<u8>::reserves(extent, channels)
        }
    }

    /// Decodes the image as it is stored: no axis is turned, no channel dropped yet.
    ///
    /// # Errors
    /// If the budget has no room, or the file is damaged or ends early.
    pub fn decode(&self, budget: &Budget) -> Result<Decoded, ImageError> {
        let Header { extent, channels, bits, format, file_bytes, .. } = self.header;
        let memory = |source: MapError| ImageError::Memory {
            path: self.path.clone(),
            height: extent.height,
            width: extent.width,
            source,
        };
        let _decoder = budget
            .reserve("decoder of images", self.header.decoder_bytes())
            .map_err(|error| memory(error.into()))?;
        let limits = self.limits();
        if bits > 8 {
            let mut image = Image::<u16>::zeroed(extent, channels, budget).map_err(memory)?;
            self.read(bytemuck::cast_slice_mut(image.samples_mut()), limits)?;
            return Ok(Decoded::Sixteen(image));
        }
        let mut image = Image::<u8>::zeroed(extent, channels, budget).map_err(memory)?;
        if format == Format::Jpeg {
            let bytes = plimsoll_disk::read(&self.path, file_bytes.0)
                .map_err(|source| ImageError::io(&self.path, source))?;
            if !jpeg::has_end(&bytes) {
                return Err(ImageError::CutOff { path: self.path.clone(), length: file_bytes });
            }
            self.read_from(Cursor::new(bytes), image.samples_mut(), limits)?;
        } else {
            self.read(image.samples_mut(), limits)?;
        }
        Ok(Decoded::Eight(image))
    }

    /// The orientation to apply.
    pub(crate) fn orientation(&self) -> orientation::Turn {
        self.options.orientation.turn(self.header.format, self.header.turn)
    }

    /// The options that the image was opened with.
    pub(crate) fn options(&self) -> &DecodeOptions {
        &self.options
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(self.header.decoder_limit());
        limits
    }

    fn read(&self, to: &mut [u8], limits: Limits) -> Result<(), ImageError> {
        let file = File::open(&self.path).map_err(|source| ImageError::io(&self.path, source))?;
        self.read_from(BufReader::new(file), to, limits)
    }

    fn read_from(&self, from: impl BufRead + Seek, to: &mut [u8], limits: Limits) -> Result<(), ImageError> {
        let format = self.header.format;
        guarded(&self.path, format, || {
            let mut reader = ImageReader::with_format(from, format.image());
            reader.limits(limits);
            let decoder = reader.into_decoder()?;
            // The file may have changed since its header was read.
            if decoder.total_bytes() != to.len() as u64 {
                return Err(changed());
            }
            decoder.read_image(to)
        })
    }
}

fn changed() -> image::ImageError {
    image::ImageError::Parameter(image::error::ParameterError::from_kind(
        image::error::ParameterErrorKind::DimensionMismatch,
    ))
}

/// Runs a decoder. Its errors name the file; should it panic, which no file should make it do, that is an error, too.
fn guarded<T>(
    path: &Path,
    format: Format,
    decode: impl FnOnce() -> image::ImageResult<T>,
) -> Result<T, ImageError> {
    let damaged = |problem: String| ImageError::Damaged { path: path.into(), format: format.name(), problem };
    match catch_panic(decode) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(image::ImageError::Unsupported(problem))) => Err(ImageError::Unsupported {
            path: path.into(),
            format: format.name(),
            feature: problem.to_string(),
        }),
        Ok(Err(problem)) => Err(damaged(problem.to_string())),
        Err(Panicked) => Err(damaged("the decoder failed on it".into())),
    }
}

/// Channels and bits of a colour type that is read.
fn layout(color: ColorType) -> Option<(usize, u8)> {
    match color {
        ColorType::L8 => Some((1, 8)),
        ColorType::La8 => Some((2, 8)),
        ColorType::Rgb8 => Some((3, 8)),
        ColorType::Rgba8 => Some((4, 8)),
        ColorType::L16 => Some((1, 16)),
        ColorType::La16 => Some((2, 16)),
        ColorType::Rgb16 => Some((3, 16)),
        ColorType::Rgba16 => Some((4, 16)),
        _ => None,
    }
}
