//! From 8 bits to normalised numbers, `[channel][row][column]`, and changes of these.

use plimsoll_random::{Draws, Purpose};

use crate::raster::{Extent, Raster};

/// Mean and deviation of a channel, of samples from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelScale {
    /// Is subtracted.
    pub mean: f32,
    /// Divides.
    pub deviation: f32,
}

/// Red, green and blue of ImageNet, which pretrained networks expect.
pub const IMAGENET: [ChannelScale; 3] = [
    ChannelScale { mean: 0.485, deviation: 0.229 },
    ChannelScale { mean: 0.456, deviation: 0.224 },
    ChannelScale { mean: 0.406, deviation: 0.225 },
];

/// (sample / 255 − mean) / deviation in single precision, in this order, as torchvision's `ToTensor` and `Normalize`.
pub fn normalise(from: Raster<'_>, scales: &[ChannelScale], out: &mut [f32]) {
    let planes = out.chunks_exact_mut(from.extent.pixels().max(1));
    for (channel, (plane, scale)) in planes.zip(scales).enumerate() {
        let samples = from.samples.iter().skip(channel).step_by(from.channels);
        for (to, sample) in plane.iter_mut().zip(samples) {
            *to = (f32::from(*sample) / 255.0 - scale.mean) / scale.deviation;
        }
    }
}

/// The filling of an erased rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filling {
    /// One value, after normalisation: 0 is the mean.
    Value(f32),
    /// Normally distributed noise with deviation 1, of this stream.
    Noise {
        /// The seed of the run.
        seed: u64,
        /// The step.
        step: u64,
        /// The sample of the step.
        sample: u64,
    },
}

/// A rectangle to erase (Zhong et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erasure {
    /// The first row and column.
    pub start: [usize; 2],
    /// Rows and columns.
    pub extent: Extent,
    /// The filling.
    pub filling: Filling,
}

/// Erases a rectangle of `[channel][row][column]`.
pub fn erase(erasure: &Erasure, extent: Extent, tensor: &mut [f32]) {
    let mut draws = match erasure.filling {
        Filling::Noise { seed, step, sample } => Some(Draws::new(seed, Purpose::Erasing, 0, step, sample)),
        Filling::Value(_) => None,
    };
    for plane in tensor.chunks_exact_mut(extent.pixels().max(1)) {
        let rows = plane.chunks_exact_mut(extent.width.max(1));
        for row in rows.skip(erasure.start[0]).take(erasure.extent.height) {
            for value in row.iter_mut().skip(erasure.start[1]).take(erasure.extent.width) {
                *value = match (&mut draws, erasure.filling) {
                    (Some(draws), _) => draws.normal(),
                    (None, Filling::Value(value)) => value,
                    (None, Filling::Noise { .. }) => 0.0,
                };
            }
        }
    }
}

/// The mixing of a sample with another of its batch (Zhang et al. 2018).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// The other sample, by its place in the batch.
    pub partner: usize,
    /// The share of the sample itself, λ.
    pub share: f32,
}

/// λ · own + (1 − λ) · partner, of images or of one-hot labels. The partner must not have been mixed itself.
pub fn mix(own: &mut [f32], partner: &[f32], share: f32) {
    for (own, partner) in own.iter_mut().zip(partner) {
        *own = share * *own + (1.0 - share) * partner;
    }
}
