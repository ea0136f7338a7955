//! Augmentation of patches: settings, and the changes drawn from them.
//!
//! Names, probabilities and ranges are those of nnU-Net v2's default trainer, without its blur, its simulated low
//! resolution and its elastic deformation (which is off by default). Spatial changes are composed into the map that the
//! patch is resampled through; intensities are changed afterwards, in nnU-Net's order.

use serde::{Deserialize, Serialize};

use crate::PatchGrid;
use crate::patch::intensity::{ChannelChange, IntensityChange};
use plimsoll_random::Draws;

/// A range: two numbers, the smaller first.
pub type Range = [f64; 2];

/// The augmentation of training patches: probabilities and ranges. The default is nnU-Net's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augmentation {
    /// The probability of a rotation.
    pub p_rotation: f64,
    /// The rotation about each axis in degrees; rigid for any spacing.
    pub rotation: Range,
    /// The rotation of an anisotropic patch in degrees, which is only rotated within its plane. A patch is anisotropic
    /// if it is more than three times as long along another axis as along that of the coarsest spacing, or one slice.
    pub rotation_in_plane: Range,
    /// The probability of scaling.
    pub p_scaling: f64,
    /// The factor of the extent that a patch covers; above 1 objects look smaller. The same for all axes, or for both
    /// axes of the plane of an anisotropic patch.
    pub scaling: Range,
    /// The probability of mirroring along each of the axes below.
    pub p_mirror: f64,
    /// The axes (depth, height, width) along which a patch may be mirrored.
    pub mirror_axes: [bool; 3],
    /// The probability of noise.
    pub p_gaussian_noise: f64,
    /// Its standard deviation, in units of the normalised image. nnU-Net calls this number a variance, but uses it as
    /// the deviation.
    pub gaussian_noise: Range,
    /// The probability of a brightness change.
    pub p_brightness: f64,
    /// The factor of intensities, drawn by channel.
    pub brightness: Range,
    /// The probability of a contrast change.
    pub p_contrast: f64,
    /// The factor of each value's difference from the mean, drawn by channel; values are clipped to their original
    /// range.
    pub contrast: Range,
    /// The probability that values, scaled to 0 … 1, are raised to a power; mean and standard deviation are restored.
    pub p_gamma: f64,
    /// The probability of the same on the inverted image.
    pub p_inverted_gamma: f64,
    /// The exponent, drawn by channel.
    pub gamma: Range,
}

impl Default for Augmentation {
    fn default() -> Augmentation {
        Augmentation {
            p_rotation: 0.2,
            rotation: [-30.0, 30.0],
            rotation_in_plane: [-180.0, 180.0],
            p_scaling: 0.2,
            scaling: [0.7, 1.4],
            p_mirror: 0.5,
            mirror_axes: [true; 3],
            p_gaussian_noise: 0.1,
            gaussian_noise: [0.0, 0.1],
            p_brightness: 0.15,
            brightness: [0.75, 1.25],
            p_contrast: 0.15,
            contrast: [0.75, 1.25],
            p_gamma: 0.3,
            p_inverted_gamma: 0.1,
            gamma: [0.7, 1.5],
        }
    }
}

/// A setting of the augmentation is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{setting}` of the augmentation is {found}, but must be {expected}")]
pub struct AugmentationError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub found: String,
    /// The valid range.
    pub expected: &'static str,
}

impl AugmentationError {
    /// A remedy to suggest to the user.
    pub fn hint(&self) -> Option<String> {
        Some("leave the setting out for nnU-Net's default".into())
    }
}

impl Augmentation {
    /// No augmentation.
    pub fn none() -> Augmentation {
        Augmentation {
            p_rotation: 0.0,
            p_scaling: 0.0,
            p_mirror: 0.0,
            p_gaussian_noise: 0.0,
            p_brightness: 0.0,
            p_contrast: 0.0,
            p_gamma: 0.0,
            p_inverted_gamma: 0.0,
            ..Augmentation::default()
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// If a setting is out of range: the error names the first one.
    pub fn check(&self) -> Result<(), AugmentationError> {
        for (setting, probability) in [
            ("p_rotation", self.p_rotation),
            ("p_scaling", self.p_scaling),
            ("p_mirror", self.p_mirror),
            ("p_gaussian_noise", self.p_gaussian_noise),
            ("p_brightness", self.p_brightness),
            ("p_contrast", self.p_contrast),
            ("p_gamma", self.p_gamma),
            ("p_inverted_gamma", self.p_inverted_gamma),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                let expected = "a probability from 0 to 1";
                return Err(AugmentationError { setting, found: probability.to_string(), expected });
            }
        }
        const ANGLE: &str = "two angles in degrees from -360 to 360, the smaller first";
        const FACTOR: &str = "two factors from 0.01 to 100, the smaller first";
        for (setting, [low, high], [least, most], expected) in [
            ("rotation", self.rotation, [-360.0, 360.0], ANGLE),
            ("rotation_in_plane", self.rotation_in_plane, [-360.0, 360.0], ANGLE),
            ("scaling", self.scaling, [0.01, 100.0], FACTOR),
            ("gaussian_noise", self.gaussian_noise, [0.0, 1e6], "two deviations from 0, the smaller first"),
            ("brightness", self.brightness, [0.01, 100.0], FACTOR),
            ("contrast", self.contrast, [0.01, 100.0], FACTOR),
            ("gamma", self.gamma, [0.01, 100.0], FACTOR),
        ] {
            let sound = least <= low && low <= high && high <= most;
            if !sound {
                return Err(AugmentationError { setting, found: format!("[{low}, {high}]"), expected });
            }
        }
        Ok(())
    }

    /// Draws the rotation, scale and mirroring of a patch.
    pub(crate) fn draw_space(&self, grid: &PatchGrid, draws: &mut Draws) -> SpatialChange {
        let mut change = SpatialChange::NONE;
        let plane_axis = grid.plane_axis();
        let (turned, scaled) = (draws.chance(self.p_rotation), draws.chance(self.p_scaling));
        if turned {
            for axis in 0..3 {
                change.radians[axis] = match plane_axis {
                    None => draws.between(self.rotation.into()).to_radians(),
                    Some(only) if only == axis => draws.between(self.rotation_in_plane.into()).to_radians(),
                    Some(_) => 0.0,
                };
            }
        }
        if scaled {
            let factor = draws.between(self.scaling.into());
            for axis in (0..3).filter(|axis| plane_axis != Some(*axis)) {
                change.factors[axis] = factor;
            }
        }
        for axis in 0..3 {
            // A patch of one slice has nothing to mirror across slices.
            change.mirrored[axis] =
                draws.chance(self.p_mirror) && self.mirror_axes[axis] && grid.patch[axis] > 1;
        }
        change
    }

    /// Draws the changes of a patch's intensities.
    pub(crate) fn draw_intensity(&self, channels: usize, draws: &mut Draws) -> IntensityChange {
        let noise =
            draws.chance(self.p_gaussian_noise).then(|| draws.between(self.gaussian_noise.into()) as f32);
        let mut of_each = vec![ChannelChange::default(); channels];
        if draws.chance(self.p_brightness) {
            of_each.iter_mut().for_each(|channel| channel.brightness = Some(factor(self.brightness, draws)));
        }
        if draws.chance(self.p_contrast) {
            of_each.iter_mut().for_each(|channel| channel.contrast = Some(factor(self.contrast, draws)));
        }
        if draws.chance(self.p_inverted_gamma) {
            of_each.iter_mut().for_each(|channel| channel.inverted_gamma = Some(factor(self.gamma, draws)));
        }
        if draws.chance(self.p_gamma) {
            of_each.iter_mut().for_each(|channel| channel.gamma = Some(factor(self.gamma, draws)));
        }
        IntensityChange { noise, channels: of_each }
    }
}

/// A factor, equally likely below 1 and above, whatever the range (`BGContrast` of batchgenerators).
fn factor([low, high]: Range, draws: &mut Draws) -> f32 {
    let below = draws.chance(0.5) && low < 1.0;
    draws.between(if below { (low, high.min(1.0)) } else { (low.max(1.0).min(high), high) }) as f32
}

/// The rotation, scale and mirroring of a patch about its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpatialChange {
    /// The angles about (depth, height, width) in radians, as for
    /// [`VoxelMap::rotation`](plimsoll_volume::VoxelMap::rotation).
    pub radians: [f64; 3],
    /// The factor of the extent that the patch covers along each axis.
    pub factors: [f64; 3],
    /// The axes along which it is mirrored.
    pub mirrored: [bool; 3],
}

impl SpatialChange {
    /// No change.
    pub const NONE: SpatialChange =
        SpatialChange { radians: [0.0; 3], factors: [1.0; 3], mirrored: [false; 3] };
}
