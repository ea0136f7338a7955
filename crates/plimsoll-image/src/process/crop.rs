//! Cropping photographs of the retina to the disc that is exposed.

use crate::raster::{Extent, Raster};

/// Rows and columns of a part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CropBox {
    /// The first row and column.
    pub start: [usize; 2],
    /// Rows and columns.
    pub extent: Extent,
}

/// OpenCV's grey (`COLOR_RGB2GRAY`), with weights of 15 bits.
fn grey(pixel: &[u8]) -> u8 {
    match pixel {
        [red, green, blue] => {
            let sum = u32::from(*red) * 9798 + u32::from(*green) * 19235 + u32::from(*blue) * 3735;
            ((sum + (1 << 14)) >> 15) as u8
        }
        [grey, ..] => *grey,
        [] => 0,
    }
}

/// The smallest box of all pixels whose grey is above `tolerance`; the whole image if there are none.
pub fn exposed(from: Raster<'_>, tolerance: u8) -> CropBox {
    let (mut top, mut bottom, mut left, mut right) = (usize::MAX, 0, usize::MAX, 0);
    for row in 0..from.extent.height {
        let mut columns = from.row(row).chunks_exact(from.channels);
        let is_exposed = |pixel: &[u8]| grey(pixel) > tolerance;
        let Some(first) = columns.position(is_exposed) else { continue };
        let last = from.row(row).chunks_exact(from.channels).rposition(is_exposed).unwrap_or(first);
        (top, bottom) = (top.min(row), row + 1);
        (left, right) = (left.min(first), right.max(last + 1));
    }
    if bottom == 0 {
        return CropBox { start: [0; 2], extent: from.extent };
    }
    CropBox { start: [top, left], extent: Extent { height: bottom - top, width: right - left } }
}

/// Copies a part of `from`.
pub fn crop(from: Raster<'_>, part: CropBox, out: &mut [u8]) {
    let length = part.extent.width * from.channels;
    for (row, line) in out.chunks_exact_mut(length.max(1)).take(part.extent.height).enumerate() {
        let start = part.start[1] * from.channels;
        line.copy_from_slice(&from.row(part.start[0] + row)[start..start + length]);
    }
}

/// Sets pixels to `fill` whose centre is further from the centre of the image than `share` of half its shorter side.
pub fn mask_disc(extent: Extent, channels: usize, share: f64, fill: u8, samples: &mut [u8]) {
    let radius = share * extent.height.min(extent.width) as f64 / 2.0;
    let from_centre = |at: usize, side: usize| at as f64 + 0.5 - side as f64 / 2.0;
    let rows = samples.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height);
    for (row, line) in rows.enumerate() {
        let dy = from_centre(row, extent.height);
        for (column, pixel) in line.chunks_exact_mut(channels).enumerate() {
            let dx = from_centre(column, extent.width);
            if dy * dy + dx * dx > radius * radius {
                pixel.fill(fill);
            }
        }
    }
}
