//! Images in memory.

use std::ops::Deref;

use bytemuck::Pod;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use serde::{Deserialize, Serialize};

/// Rows and columns of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Extent {
    /// A square.
    pub const fn square(side: usize) -> Extent {
        Extent { height: side, width: side }
    }

    /// Height × width.
    pub const fn pixels(self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// The longer of the two.
    pub fn longest(self) -> usize {
        self.height.max(self.width)
    }

    /// With rows and columns exchanged.
    pub const fn transposed(self) -> Extent {
        Extent { height: self.width, width: self.height }
    }
}

/// An image with 8 bits a sample.
pub type Image8 = Image<u8>;

/// An image with 16 bits a sample.
pub type Image16 = Image<u16>;

/// An image, `[row][column][channel]`, reserved from a budget for as long as it lives.
#[derive(Debug)]
pub struct Image<T> {
    extent: Extent,
    channels: usize,
    samples: Mapped<T>,
}

impl<T: Pod> Image<T> {
    /// An image of zeroes.
    ///
    /// # Errors
    /// If the memory is not available.
    pub fn zeroed(extent: Extent, channels: usize, budget: &Budget) -> Result<Image<T>, MapError> {
        let samples = Mapped::zeroed(budget, "image", extent.pixels().saturating_mul(channels))?;
        Ok(Image { extent, channels, samples })
    }

    /// Bytes that an image reserves.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn reserves(extent: Extent, channels: usize) -> Result<Bytes, MapError> {
        Mapped::<T>::bytes(extent.pixels().saturating_mul(channels))
    }

    /// Rows and columns.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha).
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Bytes reserved for it.
    pub fn reserved(&self) -> Bytes {
        self.samples.reserved()
    }

    pub(crate) fn samples_mut(&mut self) -> &mut [T] {
        &mut self.samples
    }
}

impl<T: Pod> Deref for Image<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.samples
    }
}

/// A borrowed image with 8 bits a sample, `[row][column][channel]`. Functions that take one panic if it has fewer samples than its
/// extent and channels demand, or if what they write into has.
#[derive(Clone, Copy, Debug)]
pub struct Raster<'a> {
    /// Rows and columns.
    pub extent: Extent,
    /// Samples of a pixel.
    pub channels: usize,
    /// `[row][column][channel]`
    pub samples: &'a [u8],
}

impl<'a> Raster<'a> {
    /// The samples of a row, which is below the height.
    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
        let length = self.extent.width * self.channels;
        &self.samples[row * length..(row + 1) * length]
    }
}

/// The grey of a colour as PIL's `convert("L")` has it: ITU-R 601-2 with weights of 16 bits.
pub(crate) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 0x8000) >> 16) as u8
}

/// Mirrors an index at the first and the last of `count` items without repeating these (OpenCV's reflect 101).
pub(crate) fn reflect(index: isize, count: usize) -> usize {
    let last = count.saturating_sub(1) as isize;
    if last == 0 {
        return 0;
    }
    let folded = index.rem_euclid(2 * last);
    (if folded > last { 2 * last - folded } else { folded }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_does_not_repeat_the_border() {
        let seen: Vec<usize> = (-5..8).map(|index| reflect(index, 4)).collect();
        assert_eq!(seen, [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(reflect(-3, 1), 0);
    }
}
