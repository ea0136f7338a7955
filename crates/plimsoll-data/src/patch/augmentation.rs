//! Augmentation of patches: what can be set.
//!
//! Names, probabilities and ranges follow nnU-Net v2's default trainer (`get_training_transforms`), and so is the order.
//! Spatial changes are composed into the map that the patch is resampled through; intensities are changed afterwards. Shear,
//! elastic deformation, bias fields and cubic interpolation are not nnU-Net's, and are off.

use serde::{Deserialize, Serialize};

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
    /// if it is more than three times as long along another axis as along the axis of the coarsest spacing, or one slice. `None`
    /// selects nnU-Net's rule: ±15° for slices of which one edge is more than 1.5 times the other, else ±180°.
    pub rotation_in_plane: Option<Range>,
    /// The probability of scaling.
    pub p_scaling: f64,
    /// The factor of the extent that a patch covers; above 1 objects look smaller. The same for all axes, or for both
    /// axes of the plane of an anisotropic patch.
    pub scaling: Range,
    /// The probability of shearing.
    pub p_shear: f64,
    /// By how many millimetres along one axis a millimetre along another is displaced, drawn for each pair of axes, or for the
    /// two of the plane of an anisotropic patch.
    pub shear: Range,
    /// The probability of an elastic deformation.
    pub p_elastic: f64,
    /// The distance between its control points, as a share of the patch's edge.
    pub elastic_spacing: Range,
    /// Its longest displacement along each axis, in voxels of the patch.
    pub elastic_magnitude: Range,
    /// The interpolation of images.
    pub interpolation: ImageInterpolation,
    /// The probability of mirroring along each of the axes below.
    pub p_mirror: f64,
    /// The axes (depth, height, width) along which a patch may be mirrored.
    pub mirror_axes: [bool; 3],
    /// The probability of noise.
    pub p_gaussian_noise: f64,
    /// Its standard deviation, in units of the normalised image. nnU-Net calls this number a variance, but uses it as
    /// the deviation.
    pub gaussian_noise: Range,
    /// The probability of a blur.
    pub p_gaussian_blur: f64,
    /// The probability that it blurs a channel.
    pub p_gaussian_blur_per_channel: f64,
    /// The standard deviation of its Gaussian in voxels, drawn by channel and axis.
    pub gaussian_blur: Range,
    /// The probability of a brightness change.
    pub p_brightness: f64,
    /// The factor of intensities, drawn by channel.
    pub brightness: Range,
    /// The probability of a contrast change.
    pub p_contrast: f64,
    /// The factor of each value's difference from the mean, drawn by channel; values are clipped to their original
    /// range.
    pub contrast: Range,
    /// The probability of a lower resolution.
    pub p_low_resolution: f64,
    /// The probability that a channel has it.
    pub p_low_resolution_per_channel: f64,
    /// The resolution as a share of the patch's, drawn by channel and the same for all axes but the one perpendicular to
    /// the plane of an anisotropic patch, which keeps its own.
    pub low_resolution: Range,
    /// The probability that values, scaled to 0 … 1, are raised to a power; mean and standard deviation are restored.
    pub p_gamma: f64,
    /// The probability of the same on the inverted image.
    pub p_inverted_gamma: f64,
    /// The exponent, drawn by channel.
    pub gamma: Range,
    /// The probability of a bias field.
    pub p_bias_field: f64,
    /// Its coefficients.
    pub bias_field: Range,
}

/// The interpolation of the intensities of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageInterpolation {
    /// Linearly between the eight voxels around.
    #[default]
    Linear,
    /// By Keys' cubic convolution of the 64 voxels around.
    Cubic,
}

impl Default for Augmentation {
    fn default() -> Augmentation {
        Augmentation {
            p_rotation: 0.2,
            rotation: [-30.0, 30.0],
            rotation_in_plane: None,
            p_scaling: 0.2,
            scaling: [0.7, 1.4],
            p_shear: 0.0,
            shear: [-0.1, 0.1],
            p_elastic: 0.0,
            elastic_spacing: [0.2, 0.5],
            elastic_magnitude: [0.0, 4.0],
            interpolation: ImageInterpolation::Linear,
            p_mirror: 0.5,
            mirror_axes: [true; 3],
            p_gaussian_noise: 0.1,
            gaussian_noise: [0.0, 0.1],
            p_gaussian_blur: 0.2,
            p_gaussian_blur_per_channel: 0.5,
            gaussian_blur: [0.5, 1.0],
            p_brightness: 0.15,
            brightness: [0.75, 1.25],
            p_contrast: 0.15,
            contrast: [0.75, 1.25],
            p_low_resolution: 0.25,
            p_low_resolution_per_channel: 0.5,
            low_resolution: [0.5, 1.0],
            p_gamma: 0.3,
            p_inverted_gamma: 0.1,
            gamma: [0.7, 1.5],
            p_bias_field: 0.0,
            bias_field: [0.0, 0.1],
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
    pub fn remedy(&self) -> Option<String> {
        Some("leave the setting out for its default".into())
    }
}

impl Augmentation {
    /// No augmentation.
    pub fn none() -> Augmentation {
        Augmentation {
            p_rotation: 0.0,
            p_scaling: 0.0,
            p_shear: 0.0,
            p_elastic: 0.0,
            p_mirror: 0.0,
            p_gaussian_noise: 0.0,
            p_gaussian_blur: 0.0,
            p_brightness: 0.0,
            p_contrast: 0.0,
            p_low_resolution: 0.0,
            p_gamma: 0.0,
            p_inverted_gamma: 0.0,
            p_bias_field: 0.0,
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
            ("p_shear", self.p_shear),
            ("p_elastic", self.p_elastic),
            ("p_mirror", self.p_mirror),
            ("p_gaussian_noise", self.p_gaussian_noise),
            ("p_gaussian_blur", self.p_gaussian_blur),
            ("p_gaussian_blur_per_channel", self.p_gaussian_blur_per_channel),
            ("p_brightness", self.p_brightness),
            ("p_contrast", self.p_contrast),
            ("p_low_resolution", self.p_low_resolution),
            ("p_low_resolution_per_channel", self.p_low_resolution_per_channel),
            ("p_gamma", self.p_gamma),
            ("p_inverted_gamma", self.p_inverted_gamma),
            ("p_bias_field", self.p_bias_field),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                let expected = "a probability from 0 to 1";
                return Err(AugmentationError { setting, found: probability.to_string(), expected });
            }
        }
        const ANGLE: &str = "two angles in degrees from -360 to 360, the smaller first";
        const FACTOR: &str = "two factors from 0.01 to 100, the smaller first";
        let in_plane =
            self.rotation_in_plane.map(|angles| ("rotation_in_plane", angles, [-360.0, 360.0], ANGLE));
        let ranges = [
            ("rotation", self.rotation, [-360.0, 360.0], ANGLE),
            ("scaling", self.scaling, [0.01, 100.0], FACTOR),
            ("gaussian_noise", self.gaussian_noise, [0.0, 1e6], "two deviations from 0, the smaller first"),
            ("shear", self.shear, [-1.0, 1.0], "two shares from -1 to 1, the smaller first"),
            (
                "elastic_spacing",
                self.elastic_spacing,
                [0.03, 1.0],
                "two shares from 0.03 to 1, the smaller first",
            ),
            (
                "elastic_magnitude",
                self.elastic_magnitude,
                [0.0, 100.0],
                "two lengths from 0 to 100 voxels, the smaller first",
            ),
            (
                "gaussian_blur",
                self.gaussian_blur,
                [0.01, 20.0],
                "two deviations from 0.01 to 20 voxels, the smaller first",
            ),
            (
                "low_resolution",
                self.low_resolution,
                [0.01, 1.0],
                "two shares from 0.01 to 1, the smaller first",
            ),
            ("bias_field", self.bias_field, [-1.0, 1.0], "two coefficients from -1 to 1, the smaller first"),
            ("brightness", self.brightness, [0.01, 100.0], FACTOR),
            ("contrast", self.contrast, [0.01, 100.0], FACTOR),
            ("gamma", self.gamma, [0.01, 100.0], FACTOR),
        ];
        for (setting, [low, high], [least, most], expected) in ranges.into_iter().chain(in_plane) {
            let sound = least <= low && low <= high && high <= most;
            if !sound {
                return Err(AugmentationError { setting, found: format!("[{low}, {high}]"), expected });
            }
        }
        Ok(())
    }

    /// The axes (depth, height, width) along which patches are mirrored at all.
    pub fn mirrored_axes(&self) -> [bool; 3] {
        self.mirror_axes.map(|axis| axis && self.p_mirror > 0.0)
    }
}
