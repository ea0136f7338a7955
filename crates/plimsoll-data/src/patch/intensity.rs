//! Intensity augmentations, as in batchgeneratorsv2 (the augmentation of nnU-Net v2). All work on normalised values, in
//! place, channel by channel.

use plimsoll_random::Draws;

use crate::patch::bias_field::BiasField;
use crate::patch::separable::{Taps, apply};

/// The lower bound of ranges and deviations, to avoid division by zero.
const LEAST: f64 = 1e-7;

/// The changes of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelChange {
    /// The standard deviation of a Gaussian that the channel is blurred with, along (depth, height, width) in voxels.
    pub blur: Option<[f64; 3]>,
    /// The brightness factor.
    pub brightness: Option<f32>,
    /// The contrast factor, of the difference from the mean; values are clipped to their original range.
    pub contrast: Option<f32>,
    /// The resolution that is simulated, as a share of the patch's along (depth, height, width).
    pub low_resolution: Option<[f64; 3]>,
    /// The gamma of the inverted image: values, scaled to 0 … 1, are raised to this power; mean and standard deviation
    /// are restored.
    pub inverted_gamma: Option<f32>,
    /// The gamma of the image itself.
    pub gamma: Option<f32>,
}

/// The changes of a patch's intensities, in the order bias field, noise, blur, brightness, contrast, low resolution, inverted gamma,
/// gamma.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntensityChange {
    /// The bias field, the same in all channels.
    pub bias_field: Option<BiasField>,
    /// The standard deviation of the noise, the same in all channels.
    pub noise: Option<f32>,
    /// The changes of each channel.
    pub channels: Vec<ChannelChange>,
}

impl IntensityChange {
    /// Returns `true` if the slab is used.
    pub(crate) fn needs_slab(&self) -> bool {
        self.channels.iter().any(|channel| channel.blur.is_some() || channel.low_resolution.is_some())
    }

    /// Changes an image `[channel][depth][height][width]` of patches of a shape. Noise is drawn from `draws`, voxel by voxel;
    /// `slab` has [`slab_length`](crate::patch::separable::slab_length) values.
    pub(crate) fn apply(
        &self,
        image: &mut [f32],
        shape: [usize; 3],
        slab: &mut [f32],
        draws: impl FnOnce() -> Draws,
    ) {
        let voxels = shape.iter().product::<usize>().max(1);
        if let Some(field) = &self.bias_field {
            image.chunks_exact_mut(voxels).for_each(|values| field.apply(values, shape));
        }
        if let Some(deviation) = self.noise {
            let mut draws = draws();
            image.iter_mut().for_each(|value| *value += deviation * draws.normal());
        }
        for (values, change) in image.chunks_exact_mut(voxels).zip(&self.channels) {
            for (axis, sigma) in change.blur.into_iter().flatten().enumerate() {
                if let Some(taps) = Taps::gaussian(shape[axis], sigma) {
                    apply(&taps, axis, values, shape, slab);
                }
            }
            if let Some(factor) = change.brightness {
                values.iter_mut().for_each(|value| *value *= factor);
            }
            if let Some(factor) = change.contrast {
                change_contrast(values, factor);
            }
            for (axis, factor) in change.low_resolution.into_iter().flatten().enumerate() {
                if let Some(taps) = Taps::low_resolution(shape[axis], factor) {
                    apply(&taps, axis, values, shape, slab);
                }
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

/// The standard deviation with n − 1, PyTorch's default; 0 for a single value.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::separable::slab_length;
    use plimsoll_random::Purpose;
    use std::path::Path;

    fn stream() -> Draws {
        Draws::new(1, Purpose::Noise, 0, 2, 3)
    }

    #[test]
    fn changes_match_batchgenerators() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data_intensities.json");
        let oracle: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let image: Vec<f32> = serde_json::from_value(oracle["image"].clone()).unwrap();
        let shape: [usize; 3] = serde_json::from_value(oracle["shape"].clone()).unwrap();
        let mut slab = vec![0.0; slab_length(shape)];
        for example in oracle["changes"].as_array().unwrap() {
            let number = |name: &str| example[name].as_f64().map(|value| value as f32);
            let three =
                |name: &str| serde_json::from_value::<Option<[f64; 3]>>(example[name].clone()).unwrap();
            let channel = ChannelChange {
                blur: three("blur"),
                brightness: number("brightness"),
                contrast: number("contrast"),
                low_resolution: three("low_resolution"),
                inverted_gamma: number("inverted_gamma"),
                gamma: number("gamma"),
            };
            // The second channel is unchanged.
            let channels = vec![channel, ChannelChange::default()];
            let mut both = [image.clone(), image.clone()].concat();
            IntensityChange { channels, ..IntensityChange::default() }
                .apply(&mut both, shape, &mut slab, stream);
            let theirs: Vec<f32> = serde_json::from_value(example["values"].clone()).unwrap();
            for (ours, theirs) in both.iter().zip(&theirs) {
                assert!((ours - theirs).abs() < 2e-6, "{channel:?}: {ours} against {theirs}");
            }
            assert_eq!(both[image.len()..], image);
        }
    }

    #[test]
    fn noise_has_the_requested_deviation_and_is_reproducible() {
        let channels = vec![ChannelChange::default(); 2];
        let change = IntensityChange { noise: Some(0.05), channels, ..IntensityChange::default() };
        let mut image = vec![2.0; 40_000];
        change.apply(&mut image, [20, 20, 50], &mut [], stream);
        let mean = mean(&image);
        assert!((mean - 2.0).abs() < 0.001, "{mean}");
        assert!((deviation(&image, mean) - 0.05).abs() < 0.001);
        assert_ne!(image[..20_000], image[20_000..]);
        let mut again = vec![2.0; 40_000];
        change.apply(&mut again, [20, 20, 50], &mut [], stream);
        assert_eq!(image, again);
    }

    #[test]
    fn a_constant_image_survives_every_change() {
        let channel = ChannelChange {
            blur: Some([0.5, 0.7, 1.0]),
            brightness: Some(1.0),
            contrast: Some(1.2),
            low_resolution: Some([0.5; 3]),
            inverted_gamma: Some(0.7),
            gamma: Some(1.5),
        };
        let mut image = vec![0.25; 27];
        let change = IntensityChange { channels: vec![channel], ..IntensityChange::default() };
        change.apply(&mut image, [3; 3], &mut [0.0; 9], stream);
        assert!(image.iter().all(|value| (value - 0.25).abs() < 1e-6), "{image:?}");
    }
}
