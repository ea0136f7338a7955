//! Resizing as PIL's `Image.resize`: separable filters that widen when an image shrinks (antialiased), rows first, with weights
//! of 22 bits and 8 bits in between. Bit for bit the same.

use serde::{Deserialize, Serialize};

use crate::raster::{Extent, Raster};

/// Bits of the weights behind the point.
const PRECISION: u32 = 22;

/// The filter that pixels are weighted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// A triangle, from −1 to 1.
    #[default]
    Bilinear,
    /// A cubic spline with a = −½ (Keys 1981), from −2 to 2.
    Bicubic,
    /// Lanczos' windowed sinc, from −3 to 3.
    Lanczos,
}

impl Filter {
    /// The filter is zero further away than this.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, at: f64) -> f64 {
        let x = at.abs();
        match self {
            Filter::Bilinear if x < 1.0 => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Filter::Lanczos if (-3.0..3.0).contains(&at) => sinc(at) * sinc(at / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) }
}

/// The weights of the pixels along one axis, in borrowed memory.
#[derive(Debug)]
pub struct Weights<'a> {
    /// Weights of an output pixel, [`taps`] each.
    weights: &'a mut [i32],
    /// The first input pixel of each output pixel, and the number of its weights.
    spans: &'a mut [[u32; 2]],
}

/// The most input pixels in the sum of an output pixel.
pub fn taps(from: usize, to: usize, filter: Filter) -> usize {
    let scale = (from as f64 / to.max(1) as f64).max(1.0);
    (filter.support() * scale).ceil() as usize * 2 + 1
}

/// The lengths of weights and spans that resizing an axis takes.
pub fn lengths(from: usize, to: usize, filter: Filter) -> (usize, usize) {
    (taps(from, to, filter).saturating_mul(to), to)
}

impl<'a> Weights<'a> {
    /// Memory for weights, at least as long as [`lengths`] says.
    pub fn within(weights: &'a mut [i32], spans: &'a mut [[u32; 2]]) -> Weights<'a> {
        Weights { weights, spans }
    }

    fn set(&mut self, from: usize, to: usize, filter: Filter) {
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let taps = taps(from, to, filter);
        for (at, (weights, span)) in
            self.weights.chunks_exact_mut(taps).zip(self.spans.iter_mut()).take(to).enumerate()
        {
            let centre = (at as f64 + 0.5) * scale;
            // Conversions to whole numbers saturate at zero.
            let first = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(from);
            let count = end.saturating_sub(first).min(taps);
            let weight = |tap: usize| filter.weight(((tap + first) as f64 - centre + 0.5) * (1.0 / stretch));
            let sum: f64 = (0..count).map(weight).sum();
            for (tap, to) in weights.iter_mut().take(count).enumerate() {
                let share = if sum == 0.0 { weight(tap) } else { weight(tap) / sum };
                let scaled = share * f64::from(1u32 << PRECISION);
                *to = (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i32;
            }
            *span = [first as u32, count as u32];
        }
    }

    /// The first input pixel of an output pixel, and its weights.
    fn at(&self, at: usize, taps: usize) -> (usize, &[i32]) {
        let [first, count] = self.spans[at];
        (first as usize, &self.weights[at * taps..][..count as usize])
    }
}

/// Resizes rows to `width` columns: the first half of a resize. `out` takes height × `width` pixels. If the width stays,
/// nothing is filtered.
pub fn columns<'a>(
    from: Raster<'_>,
    width: usize,
    filter: Filter,
    weights: &mut Weights<'_>,
    out: &'a mut [u8],
) -> Raster<'a> {
    let channels = from.channels;
    let extent = Extent { height: from.extent.height, width };
    if from.extent.width == width {
        copy(from.samples, out);
        return Raster { extent, channels, samples: out };
    }
    weights.set(from.extent.width, width, filter);
    let taps = taps(from.extent.width, width, filter);
    for (row, line) in out.chunks_exact_mut((width * channels).max(1)).take(extent.height).enumerate() {
        let source = from.row(row);
        for (column, pixel) in line.chunks_exact_mut(channels).enumerate() {
            let (first, weights) = weights.at(column, taps);
            let source = &source[first * channels..];
            for (channel, sample) in pixel.iter_mut().enumerate() {
                *sample = weighted(source.iter().skip(channel).step_by(channels), weights);
            }
        }
    }
    Raster { extent, channels, samples: out }
}

/// Resizes columns to `height` rows: the second half of a resize.
pub fn rows(from: Raster<'_>, height: usize, filter: Filter, weights: &mut Weights<'_>, out: &mut [u8]) {
    if from.extent.height == height {
        copy(from.samples, out);
        return;
    }
    weights.set(from.extent.height, height, filter);
    let taps = taps(from.extent.height, height, filter);
    let length = (from.extent.width * from.channels).max(1);
    for (row, line) in out.chunks_exact_mut(length).take(height).enumerate() {
        let (first, weights) = weights.at(row, taps);
        for (at, sample) in line.iter_mut().enumerate() {
            *sample = weighted(from.samples.iter().skip(first * length + at).step_by(length), weights);
        }
    }
}

fn weighted<'a>(samples: impl Iterator<Item = &'a u8>, weights: &[i32]) -> u8 {
    let half = 1 << (PRECISION - 1);
    let sum = samples.zip(weights).fold(half, |sum: i32, (sample, weight)| sum + i32::from(*sample) * weight);
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn copy(from: &[u8], to: &mut [u8]) {
    to[..from.len()].copy_from_slice(from);
}

/// Resizes labels: each pixel takes the value of the nearest, as PIL does.
pub fn resize_nearest(from: Raster<'_>, to: Extent, out: &mut [u8]) {
    let channels = from.channels;
    let scale = [from.extent.height as f64 / to.height as f64, from.extent.width as f64 / to.width as f64];
    let nearest = |at: usize, scale: f64, count: usize| (((at as f64 + 0.5) * scale) as usize).min(count - 1);
    for (row, line) in out.chunks_exact_mut((to.width * channels).max(1)).take(to.height).enumerate() {
        let source = from.row(nearest(row, scale[0], from.extent.height));
        for (column, pixel) in line.chunks_exact_mut(channels).enumerate() {
            let at = nearest(column, scale[1], from.extent.width) * channels;
            pixel.copy_from_slice(&source[at..at + channels]);
        }
    }
}
