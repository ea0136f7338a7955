//! Changes of a patch's intensities after it was pulled, as batchgeneratorsv2 (the augmentation of nnU-Net v2) makes
//! them. All work on normalised values, in place, channel by channel.

use crate::random::Draws;

/// Ranges and deviations below this count as this.
const LEAST: f64 = 1e-7;

/// What is done to one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelChange {
    /// Multiply by this.
    pub brightness: Option<f32>,
    /// Multiply the distance from the mean by this; values stay within the range they had.
    pub contrast: Option<f32>,
    /// Of the negative: raise values, scaled to 0 … 1, to this power; mean and deviation stay what they were.
    pub inverted_gamma: Option<f32>,
    /// The same of the image itself.
    pub gamma: Option<f32>,
}

/// What is done to the intensities of a patch, in the order noise, brightness, contrast, inverted gamma, gamma.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntensityChange {
    /// The deviation of the noise that is added, the same in all channels.
    pub noise: Option<f32>,
    /// By channel.
    pub channels: Vec<ChannelChange>,
}

impl IntensityChange {
    /// Changes an image `[channel][voxel]`. Noise is taken from `draws`, voxel after voxel.
    pub(crate) fn apply(&self, image: &mut [f32], voxels: usize, draws: impl FnOnce() -> Draws) {
        if let Some(deviation) = self.noise {
            let mut draws = draws();
            image.iter_mut().for_each(|value| *value += deviation * draws.normal());
        }
        for (values, change) in image.chunks_exact_mut(voxels.max(1)).zip(&self.channels) {
            if let Some(factor) = change.brightness {
                values.iter_mut().for_each(|value| *value *= factor);
            }
            if let Some(factor) = change.contrast {
                change_contrast(values, factor);
            }
            if let Some(power) = change.inverted_gamma {
                negate(values);
                change_gamma(values, power);
                negate(values);
            }
            if let Some(power) = change.gamma {
                change_gamma(values, power);
            }
        }
    }
}

fn negate(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = -*value);
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64
}

/// The deviation with n − 1, as PyTorch's default is; 0 of a single value.
fn deviation(values: &[f32], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

fn range(values: &[f32]) -> (f32, f32) {
    values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

fn change_contrast(values: &mut [f32], factor: f32) {
    let (mean, (low, high)) = (mean(values) as f32, range(values));
    values.iter_mut().for_each(|value| *value = ((*value - mean) * factor + mean).max(low).min(high));
}

fn change_gamma(values: &mut [f32], power: f32) {
    let mean_before = mean(values);
    let deviation_before = deviation(values, mean_before);
    let (low, high) = range(values);
    let width = f64::from(high - low).max(LEAST) as f32;
    values.iter_mut().for_each(|value| *value = ((*value - low) / width).powf(power) * (high - low) + low);
    let mean_after = mean(values);
    let factor = (deviation_before / deviation(values, mean_after).max(LEAST)) as f32;
    let (mean_before, mean_after) = (mean_before as f32, mean_after as f32);
    values.iter_mut().for_each(|value| *value = (*value - mean_after) * factor + mean_before);
}
