//! The header of an image, and the memory that decoding it needs.

use plimsoll_memory::Bytes;

use super::format::Format;
use super::orientation::Turn;
use super::{FIXED, METADATA};
use crate::raster::Extent;

/// The header of an image.
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

    /// The allocation limit given to the decoder.
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
