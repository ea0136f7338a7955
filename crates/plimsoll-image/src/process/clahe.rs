//! Contrast limited adaptive histogram equalisation (Zuiderveld 1994) as OpenCV's `createCLAHE` computes it on 8 bits, bit for
//! bit.

use crate::raster::{Extent, reflect};

/// The parameters, with OpenCV's meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clahe {
    /// The most that a level may have, as a multiple of a uniform histogram; 0 or less is no limit.
    pub clip: f64,
    /// Tiles along height and width.
    pub tiles: [usize; 2],
}

impl Clahe {
    /// The length of the tables: one of 256 levels for each tile.
    pub fn table_length(&self) -> usize {
        self.tiles[0].saturating_mul(self.tiles[1]).saturating_mul(256)
    }

    /// Height and width of a tile. If the tiles do not divide the image evenly, both axes are extended, one that divides evenly
    /// by a whole pixel for each tile.
    fn tile(&self, extent: Extent) -> [usize; 2] {
        let sides = [extent.height, extent.width];
        let even = sides.iter().zip(self.tiles).all(|(side, tiles)| side % tiles == 0);
        let extended = |side: usize, tiles: usize| if even { side } else { side + tiles - side % tiles };
        [
            extended(extent.height, self.tiles[0]) / self.tiles[0],
            extended(extent.width, self.tiles[1]) / self.tiles[1],
        ]
    }

    /// Equalises the first of `channels` samples of each pixel, in place. `tables` is scratch of
    /// [`table_length`](Self::table_length) bytes.
    pub fn apply(&self, extent: Extent, channels: usize, samples: &mut [u8], tables: &mut [u8]) {
        let tile = self.tile(extent);
        let area = tile[0] * tile[1];
        let limit =
            if self.clip > 0.0 { ((self.clip * area as f64 / 256.0) as u32).max(1) } else { u32::MAX };
        for (number, table) in tables.as_chunks_mut::<256>().0.iter_mut().enumerate() {
            let corner = [number / self.tiles[1] * tile[0], number % self.tiles[1] * tile[1]];
            let mut histogram = [0u32; 256];
            for y in corner[0]..corner[0] + tile[0] {
                let row = reflect(y as isize, extent.height) * extent.width;
                for x in corner[1]..corner[1] + tile[1] {
                    let at = (row + reflect(x as isize, extent.width)) * channels;
                    histogram[usize::from(samples[at])] += 1;
                }
            }
            clip(&mut histogram, limit);
            let scale = 255.0 / area as f32;
            let mut sum = 0;
            for (to, count) in table.iter_mut().zip(histogram) {
                sum += count;
                *to = (sum as f32 * scale).round_ties_even() as u8;
            }
        }
        self.interpolate(extent, channels, samples, tables, tile);
    }

    /// Maps each pixel by the tables of the four tiles around it.
    fn interpolate(
        &self,
        extent: Extent,
        channels: usize,
        samples: &mut [u8],
        tables: &[u8],
        tile: [usize; 2],
    ) {
        let inverse = tile.map(|side| 1.0 / side as f32);
        // The tiles before and behind a place, and the share of the latter.
        let between = |at: usize, axis: usize| {
            let place = at as f32 * inverse[axis] - 0.5;
            let before = place.floor();
            let last = self.tiles[axis] as isize - 1;
            let tile = |number: isize| number.clamp(0, last) as usize;
            (tile(before as isize), tile(before as isize + 1), place - before)
        };
        let rows = samples.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height);
        for (y, row) in rows.enumerate() {
            let (above, below, down) = between(y, 0);
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let (left, right, over) = between(x, 1);
                let sample = &mut pixel[0];
                let level = usize::from(*sample);
                let table = |row: usize, column: usize| {
                    f32::from(tables[(row * self.tiles[1] + column) * 256 + level])
                };
                let upper = table(above, left) * (1.0 - over) + table(above, right) * over;
                let lower = table(below, left) * (1.0 - over) + table(below, right) * over;
                *sample = (upper * (1.0 - down) + lower * down).round_ties_even() as u8;
            }
        }
    }
}

/// Cuts levels off at `limit`, and spreads what was cut off evenly; the remainder goes to every n-th level.
fn clip(histogram: &mut [u32; 256], limit: u32) {
    let mut excess = 0;
    for count in histogram.iter_mut() {
        excess += count.saturating_sub(limit);
        *count = (*count).min(limit);
    }
    let (each, rest) = (excess / 256, (excess % 256) as usize);
    histogram.iter_mut().for_each(|count| *count += each);
    let every = 256usize.checked_div(rest).unwrap_or(1).max(1);
    histogram.iter_mut().step_by(every).take(rest).for_each(|count| *count += 1);
}
