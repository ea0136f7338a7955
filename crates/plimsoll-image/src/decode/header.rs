//! What the header of an image says, and what decoding it takes.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use image::{ExtendedColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::orientation::Turn;
use super::{DecodeOptions, FIXED, METADATA, guarded, jpeg, layout, png, tiff};
use crate::ImageError;
use crate::raster::Extent;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Png,
    Jpeg,
    Tiff,
    Bmp,
}

impl Format {
    /// The format of a file that starts with these bytes.
    fn of(start: &[u8]) -> Option<Format> {
        match start {
            [0x89, b'P', b'N', b'G', ..] => Some(Format::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some(Format::Tiff),
            [b'B', b'M', ..] => Some(Format::Bmp),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Png => "PNG",
            Format::Jpeg => "JPEG",
            Format::Tiff => "TIFF",
            Format::Bmp => "BMP",
        }
    }

    pub(crate) fn image(self) -> ImageFormat {
        match self {
            Format::Png => ImageFormat::Png,
            Format::Jpeg => ImageFormat::Jpeg,
            Format::Tiff => ImageFormat::Tiff,
            Format::Bmp => ImageFormat::Bmp,
        }
    }
}

/// What the header of an image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub(crate) format: Format,
    pub(crate) turn: Turn,
    /// Rows and columns as stored, before any orientation.
    pub extent: Extent,
    /// 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha). Palettes are RGB.
    pub channels: usize,
    /// 8 or 16 bits a sample. Fewer than 8 are expanded to 8.
    pub bits: u8,
    /// The length of the file.
    pub file_bytes: Bytes,
}

impl Header {
    /// PNG, JPEG, TIFF or BMP.
    pub fn format_name(&self) -> &'static str {
        self.format.name()
    }

    fn image_bytes(&self) -> u64 {
        let samples = self.extent.pixels().saturating_mul(self.channels) as u64;
        samples.saturating_mul(if self.bits > 8 { 2 } else { 1 })
    }

    fn row_bytes(&self) -> u64 {
        self.image_bytes() / (self.extent.height as u64).max(1)
    }

    /// What the decoder is told that it may allocate.
    pub(crate) fn decoder_limit(&self) -> u64 {
        match self.format {
            // All strips or tiles together, then the largest of them once more.
            Format::Tiff => self.image_bytes().saturating_mul(2).saturating_add(METADATA),
            _ => METADATA.saturating_add(self.row_bytes().saturating_mul(8)),
        }
    }

    /// Bytes that the decoder takes beside the image.
    pub(crate) fn decoder_bytes(&self) -> Bytes {
        let scaled = match self.format {
            // The file twice, here and in the decoder; 16 bits for each coefficient of blocks that are grouped by up to
            // 4 × 4 (progressive files, and those with one component after the other); rows of blocks, upsampled.
            Format::Jpeg => {
                let grouped = |side: usize| (side as u64).next_multiple_of(32);
                let coefficients = grouped(self.extent.height)
                    .saturating_mul(grouped(self.extent.width))
                    .saturating_mul(2 * self.channels as u64);
                let rows = grouped(self.extent.width).saturating_mul(256 * self.channels as u64);
                self.file_bytes.0.saturating_mul(2).saturating_add(coefficients).saturating_add(rows)
            }
            _ => self.decoder_limit(),
        };
        Bytes(scaled) + FIXED
    }
}

/// Reads the header of a file.
pub(super) fn read(path: &Path, options: &DecodeOptions) -> Result<Header, ImageError> {
    let failed = |source| ImageError::io(path, source);
    let mut file = File::open(path).map_err(failed)?;
    let file_bytes = Bytes(file.len().map_err(failed)?);
    if file_bytes == Bytes::ZERO {
        return Err(ImageError::Empty { path: path.into() });
    }
    if file_bytes > options.most_bytes {
        return Err(ImageError::TooLong { path: path.into(), found: file_bytes, most: options.most_bytes });
    }
    let mut start = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    file.by_ref().take(8).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let Some(format) = Format::of(&start) else {
        let start = start.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        return Err(ImageError::Foreign { path: path.into(), start });
    };
    let mut file = BufReader::new(file);
    let header = match format {
        Format::Jpeg => jpeg::header(path, file, file_bytes)?,
        Format::Png => png::header(path, file, file_bytes)?,
        Format::Tiff => {
            tiff::check(path, &mut file, file_bytes)?;
            with_decoder(path, file, format, file_bytes)?
        }
        Format::Bmp => with_decoder(path, file, format, file_bytes)?,
    };
    let (height, width) = (header.extent.height as u64, header.extent.width as u64);
    let pixels = height.checked_mul(width);
    if pixels.is_none_or(|pixels| pixels == 0 || pixels > options.most_pixels) {
        return Err(ImageError::Pixels { path: path.into(), height, width, most: options.most_pixels });
    }
    Ok(header)
}

/// The header of a format whose decoder takes little to read it.
fn with_decoder(
    path: &Path,
    file: BufReader<File>,
    format: Format,
    file_bytes: Bytes,
) -> Result<Header, ImageError> {
    let mut limits = Limits::no_limits();
    let unsupported =
        |feature: String| ImageError::Unsupported { path: path.into(), format: format.name(), feature };
    let (size, color, original, turn) = guarded(path, format, || {
        let mut reader = ImageReader::with_format(file, format.image());
        reader.no_limits();
        let mut decoder = reader.into_decoder()?;
        // The size counts, too, although the image is not decoded here.
        limits.max_alloc = Some(METADATA.saturating_add(decoder.total_bytes()));
        decoder.set_limits(limits)?;
        let turn = Turn::from(decoder.orientation()?);
        Ok((decoder.dimensions(), decoder.color_type(), decoder.original_color_type(), turn))
    })?;
    if matches!(original, ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16) {
        return Err(unsupported("CMYK colours".into()));
    }
    let (channels, bits) = layout(color).ok_or_else(|| unsupported(format!("{color:?} samples")))?;
    let extent = Extent { height: size.1 as usize, width: size.0 as usize };
    Ok(Header { format, turn, extent, channels, bits, file_bytes })
}
