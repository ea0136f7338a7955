//! From the samples of a file to those of the pipeline: grey or RGB with 8 bits.

use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};

use super::ImageFile;
use crate::raster::{Extent, Image8, Image16, luma};

/// How grey images of 16 bits become 8 bits. Colour images of 16 bits always keep their high bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grey16 {
    /// Values above 255 become 255, as in PIL's `convert`. Right for files that use only 8 of their bits.
    #[default]
    Clip,
    /// The high byte, as PIL does for colour.
    HighByte,
}

/// A decoded image, as it is stored.
#[derive(Debug)]
pub enum Decoded {
    /// With 8 bits a sample.
    Eight(Image8),
    /// With 16 bits a sample.
    Sixteen(Image16),
}

impl Decoded {
    /// Rows and columns, as stored.
    pub fn extent(&self) -> Extent {
        match self {
            Decoded::Eight(image) => image.extent(),
            Decoded::Sixteen(image) => image.extent(),
        }
    }

    /// 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha).
    pub fn channels(&self) -> usize {
        match self {
            Decoded::Eight(image) => image.channels(),
            Decoded::Sixteen(image) => image.channels(),
        }
    }

    /// The digest of size and samples: equal for files with the same pixels, however they are compressed.
    pub fn digest(&self) -> Digest {
        let mut digest = Digester::default();
        let Extent { height, width } = self.extent();
        for number in [height, width, self.channels()] {
            digest.update(&(number as u64).to_le_bytes());
        }
        match self {
            Decoded::Eight(image) => digest.update(image),
            Decoded::Sixteen(image) => digest.update(bytemuck::cast_slice(image)),
        }
        digest.finish()
    }

    /// Whether all pixels are the same.
    pub fn is_constant(&self) -> bool {
        fn constant<T: PartialEq>(samples: &[T], channels: usize) -> bool {
            let mut pixels = samples.chunks_exact(channels.max(1));
            pixels.next().is_none_or(|first| pixels.all(|pixel| pixel == first))
        }
        match self {
            Decoded::Eight(image) => constant(image, image.channels()),
            Decoded::Sixteen(image) => constant(image, image.channels()),
        }
    }

    /// The sample with 8 bits.
    fn sample(&self, at: usize, grey16: Grey16) -> u8 {
        match self {
            Decoded::Eight(image) => image[at],
            Decoded::Sixteen(image) => {
                let sample = image[at];
                if grey16 == Grey16::Clip && image.channels() < 3 {
                    sample.min(255) as u8
                } else {
                    (sample >> 8) as u8
                }
            }
        }
    }

    /// Writes `[row][column][channel]` with 1 or 3 channels into `to`, oriented as `file` says. As PIL's `convert("RGB")`
    /// and `convert("L")`: alpha is dropped, not blended with a background; grey is repeated; colours are weighted by
    /// ITU-R 601-2.
    pub fn write(&self, file: &ImageFile, channels: usize, to: &mut [u8]) {
        let (stored, stored_channels) = (self.extent(), self.channels());
        let (turn, extent, grey16) = (file.orientation(), file.extent(), file.options().grey16);
        for (row, to) in to.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height).enumerate()
        {
            for (column, to) in to.chunks_exact_mut(channels).enumerate() {
                let (from_row, from_column) = turn.source(row, column, stored);
                let at = (from_row * stored.width + from_column) * stored_channels;
                let sample = |channel: usize| self.sample(at + channel, grey16);
                match (stored_channels < 3, to) {
                    (true, to) => to.fill(sample(0)),
                    (false, [red, green, blue]) => {
                        (*red, *green, *blue) = (sample(0), sample(1), sample(2));
                    }
                    (false, to) => to.fill(luma(sample(0), sample(1), sample(2))),
                }
            }
        }
    }
}
