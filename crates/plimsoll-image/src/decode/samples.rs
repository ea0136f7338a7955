//! The conversion of a file's samples to the pipeline's: grey or RGB with 8 bits.

use std::fmt;

use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};

use super::ImageFile;
use crate::ImageError;
use crate::raster::{Extent, Image8, Image16, luma};

/// The range of samples of 16 bits that becomes 0 to 255, written as `[low, high]`. Samples outside of it are clipped. Files of 16 bits
/// rarely use all of them: scanners store 10 to 14 bits, so the range has to follow from the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u16; 2]", into = "[u16; 2]")]
pub struct SampleRange {
    low: u16,
    high: u16,
}

impl SampleRange {
    /// All values of 16 bits.
    pub const FULL: SampleRange = SampleRange { low: 0, high: u16::MAX };

    /// The range from `low` to `high`; `None` unless `low` is below `high`.
    pub const fn new(low: u16, high: u16) -> Option<SampleRange> {
        if low < high { Some(SampleRange { low, high }) } else { None }
    }

    /// The smallest range that holds both values, which may be equal.
    pub fn spanning(a: u16, b: u16) -> SampleRange {
        let (low, high) = (a.min(b), a.max(b));
        match (low == high, high.checked_add(1)) {
            (false, _) => SampleRange { low, high },
            (true, Some(above)) => SampleRange { low, high: above },
            (true, None) => SampleRange { low: low - 1, high },
        }
    }

    /// The lowest value, which becomes 0.
    pub fn low(self) -> u16 {
        self.low
    }

    /// The highest value, which becomes 255.
    pub fn high(self) -> u16 {
        self.high
    }

    /// A sample with 8 bits: round(255 (sample − low) / (high − low)), halves up, clipped to 0 … 255.
    pub fn to_eight(self, sample: u16) -> u8 {
        let span = u32::from(self.high - self.low);
        let above = u32::from(sample.clamp(self.low, self.high) - self.low);
        ((above * 255 + span / 2) / span) as u8
    }
}

impl TryFrom<[u16; 2]> for SampleRange {
    type Error = String;
    fn try_from([low, high]: [u16; 2]) -> Result<SampleRange, String> {
        SampleRange::new(low, high).ok_or_else(|| {
            format!("the range [{low}, {high}] of 16-bit samples is empty; the first must be lower")
        })
    }
}

impl From<SampleRange> for [u16; 2] {
    fn from(range: SampleRange) -> [u16; 2] {
        [range.low, range.high]
    }
}

impl fmt::Display for SampleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

/// An image as the network sees it, before it is cropped and resized: grey or RGB with 8 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// `true` if all pixels are the same.
    pub is_constant: bool,
    /// The least and the greatest level of any channel.
    pub range: [u8; 2],
    /// The share of pixels all of whose channels are 0.
    pub black: f64,
    /// The share of pixels all of whose channels are 255.
    pub white: f64,
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

    /// The least and the greatest sample of 16 bits, without alpha; `None` of an image with 8 bits.
    pub fn range_16_bit(&self) -> Option<(u16, u16)> {
        let Decoded::Sixteen(image) = self else { return None };
        let channels = image.channels();
        let colours = if channels < 3 { 1 } else { 3 };
        let samples = image.chunks_exact(channels.max(1)).flat_map(|pixel| pixel.iter().take(colours));
        samples.fold(None, |found: Option<(u16, u16)>, sample| {
            let (low, high) = found.unwrap_or((*sample, *sample));
            Some((low.min(*sample), high.max(*sample)))
        })
    }

    /// The levels that the network sees of the image, with 1 or 3 channels. Samples of 16 bits have the levels of `range`.
    pub fn levels(&self, channels: usize, range: SampleRange) -> Levels {
        let stored = self.channels().max(1);
        let pixels = self.extent().pixels();
        let (mut first, mut is_constant) = (None, true);
        let ([mut low, mut high], mut black, mut white) = ([u8::MAX, 0], 0u64, 0u64);
        for pixel in 0..pixels {
            let seen = self.pixel(pixel * stored, channels, range);
            is_constant &= *first.get_or_insert(seen) == seen;
            let [darkest, .., brightest] = sorted(seen);
            (low, high) = (low.min(darkest), high.max(brightest));
            black += u64::from(brightest == 0);
            white += u64::from(darkest == u8::MAX);
        }
        let share = |count: u64| count as f64 / (pixels as f64).max(1.0);
        Levels { is_constant, range: [low, high], black: share(black), white: share(white) }
    }

    /// The colour of the pixel whose samples begin at `at`; grey, or seen as grey, three times the same.
    fn pixel(&self, at: usize, channels: usize, range: SampleRange) -> [u8; 3] {
        let sample = |channel: usize| match self {
            Decoded::Eight(image) => image[at + channel],
            Decoded::Sixteen(image) => range.to_eight(image[at + channel]),
        };
        if self.channels() < 3 {
            return [sample(0); 3];
        }
        let [red, green, blue] = [sample(0), sample(1), sample(2)];
        if channels < 3 { [luma(red, green, blue); 3] } else { [red, green, blue] }
    }

    /// Writes `[row][column][channel]` with 1 or 3 channels into `to`, oriented as `file` says. As PIL's `convert("RGB")`
    /// and `convert("L")`: alpha is dropped, not blended with a background; grey is repeated; colours are weighted by
    /// ITU-R 601-2.
    ///
    /// # Errors
    /// If samples have 16 bits and the options of `file` have no range for them.
    pub fn write(&self, file: &ImageFile, channels: usize, to: &mut [u8]) -> Result<(), ImageError> {
        let range = match (self, file.options().range_16_bit) {
            (_, Some(range)) => range,
            (Decoded::Eight(_), None) => SampleRange::FULL,
            (Decoded::Sixteen(_), None) => return Err(ImageError::NoRange { path: file.path().into() }),
        };
        let (stored, stored_channels) = (self.extent(), self.channels());
        let (turn, extent) = (file.orientation(), file.extent());
        for (row, to) in to.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height).enumerate()
        {
            for (column, to) in to.chunks_exact_mut(channels).enumerate() {
                let (from_row, from_column) = turn.source(row, column, stored);
                let at = (from_row * stored.width + from_column) * stored_channels;
                let seen = self.pixel(at, channels, range);
                to.iter_mut().zip(seen).for_each(|(to, seen)| *to = seen);
            }
        }
        Ok(())
    }
}

fn sorted(mut of: [u8; 3]) -> [u8; 3] {
    of.sort_unstable();
    of
}
