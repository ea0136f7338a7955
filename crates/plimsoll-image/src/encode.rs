//! Writing label images.

use std::io::{self, Write};

use crate::raster::Extent;

/// Writes classes as a grey PNG with 8 bits, `[row][column]`.
///
/// # Errors
/// If the disk refuses, or there are not as many classes as pixels.
pub fn write_label_png(to: &mut dyn Write, extent: Extent, classes: &[u8]) -> io::Result<()> {
    let side =
        |pixels: usize| u32::try_from(pixels).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let mut encoder = png::Encoder::new(to, side(extent.width)?, side(extent.height)?);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(classes)?;
    Ok(writer.finish()?)
}
