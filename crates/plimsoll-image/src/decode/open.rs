//! Reads the header of a file of any format.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use image::{ExtendedColorType, ImageDecoder, ImageReader, Limits};
use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::format::Format;
use super::header::Header;
use super::orientation::Turn;
use super::{DecodeOptions, METADATA, guarded, jpeg, layout, png, tiff};
use crate::ImageError;
use crate::raster::Extent;

/// Reads the header of a file.
pub(super) fn read_header(path: &Path, options: &DecodeOptions) -> Result<Header, ImageError> {
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
    let Some(format) = Format::detect(&start) else {
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
