//! Normalisation of intensities to the inputs of a network.

use serde::{Deserialize, Serialize};

use crate::statistics::{ChannelStatistics, IntensityProperties};

/// The lower bound of deviations and ranges, so that a constant image becomes zeros instead of noise.
const LEAST_DEVIATION: f64 = 1e-8;

/// The normalisation of a channel's intensities, as in nnU-Net v2. Serialised under nnU-Net's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Normalisation {
    /// Clip to the 0.5th and 99.5th percentile of the data set's foreground, subtract its mean, divide by its standard
    /// deviation. For intensities with physical units that are comparable between images, as in CT.
    #[serde(rename = "CTNormalization")]
    Ct,
    /// Subtract the image's own mean, divide by its standard deviation, both over the bounding box of its non-zero
    /// voxels.
    #[serde(rename = "ZScoreNormalization")]
    ZScore,
    /// The same inside of the mask of non-zero voxels, holes among them and labels; other voxels stay zero. nnU-Net's z-score with
    /// `use_mask_for_norm`.
    #[serde(rename = "ZScoreNormalizationInMask")]
    ZScoreInMask,
    /// No normalisation.
    #[serde(rename = "NoNormalization")]
    None,
    /// From the image's own range to 0 … 1.
    #[serde(rename = "RescaleTo01Normalization")]
    RescaleTo01,
    /// From 0 … 255 to 0 … 1.
    #[serde(rename = "RGBTo01Normalization")]
    RgbTo01,
}

impl Normalisation {
    /// nnU-Net's normalisation of a channel of this name: `CT`, `noNorm`, `zscore`, `rescale_to_0_1` and `rgb_to_0_1`
    /// (in any case) are names of methods; any other name means z-score.
    pub fn for_channel(name: &str) -> Normalisation {
        match name.to_lowercase().as_str() {
            "ct" => Normalisation::Ct,
            "nonorm" => Normalisation::None,
            "rescale_to_0_1" => Normalisation::RescaleTo01,
            "rgb_to_0_1" => Normalisation::RgbTo01,
            _ => Normalisation::ZScore,
        }
    }

    /// Returns `true` if it depends on the case's own statistics.
    pub fn is_of_case(self) -> bool {
        matches!(self, Normalisation::ZScore | Normalisation::ZScoreInMask | Normalisation::RescaleTo01)
    }

    /// The normalisation of a channel of a case, from the case's own statistics (inside of the mask, where that is normalised) and from
    /// the statistics of the data set's foreground. `None` if the method needs the latter and there are none.
    pub fn intensity(
        self,
        case: &ChannelStatistics,
        foreground: Option<&IntensityProperties>,
    ) -> Option<Intensity> {
        let line = |shift: f64, width: f64| Intensity {
            clip: None,
            shift: shift as f32,
            scale: (1.0 / width.max(LEAST_DEVIATION)) as f32,
        };
        Some(match self {
            Normalisation::Ct => {
                let foreground = foreground?;
                let clip = (foreground.percentile_00_5 as f32, foreground.percentile_99_5 as f32);
                Intensity { clip: Some(clip), ..line(foreground.mean, foreground.std) }
            }
            Normalisation::ZScore | Normalisation::ZScoreInMask => line(case.mean, case.std),
            Normalisation::None => Intensity::UNCHANGED,
            Normalisation::RescaleTo01 => line(case.min, case.max - case.min),
            Normalisation::RgbTo01 => line(0.0, 255.0),
        })
    }
}

/// The normalisation of one channel of one case: (clip(value) − shift) × scale, in f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intensity {
    /// The range that values are clipped to.
    pub clip: Option<(f32, f32)>,
    /// The value that is subtracted.
    pub shift: f32,
    /// The factor of the difference.
    pub scale: f32,
}

impl Intensity {
    /// The identity.
    pub const UNCHANGED: Intensity = Intensity { clip: None, shift: 0.0, scale: 1.0 };

    /// Normalises values in place.
    pub fn apply(&self, values: &mut [f32]) {
        if *self == Intensity::UNCHANGED {
            return;
        }
        let line = |value: f32| (value - self.shift) * self.scale;
        match self.clip {
            // Comparisons in this order keep NaN, as NumPy's clip does.
            Some((low, high)) => values.iter_mut().for_each(|value| {
                let raised = if *value < low { low } else { *value };
                *value = line(if raised > high { high } else { raised });
            }),
            None => values.iter_mut().for_each(|value| *value = line(*value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_normalised_by_its_name_as_in_nnu_net() {
        let expected = [
            ("CT", Normalisation::Ct),
            ("ct", Normalisation::Ct),
            ("noNorm", Normalisation::None),
            ("rescale_to_0_1", Normalisation::RescaleTo01),
            ("RGB_to_0_1", Normalisation::RgbTo01),
            ("zscore", Normalisation::ZScore),
            ("T2", Normalisation::ZScore),
            ("CTA", Normalisation::ZScore),
        ];
        for (name, normalisation) in expected {
            assert_eq!(Normalisation::for_channel(name), normalisation, "{name}");
        }
        assert_eq!(serde_json::to_string(&Normalisation::Ct).unwrap(), "\"CTNormalization\"");
    }

    #[test]
    fn ct_without_any_foreground_cannot_be_normalised() {
        let case = ChannelStatistics { mean: 0.0, std: 1.0, min: 0.0, max: 1.0 };
        assert_eq!(Normalisation::Ct.intensity(&case, None), None);
        assert!(Normalisation::ZScore.intensity(&case, None).is_some());
    }

    #[test]
    fn a_constant_image_becomes_zeros() {
        let case = ChannelStatistics { mean: 3.0, std: 0.0, min: 3.0, max: 3.0 };
        for normalisation in [Normalisation::ZScore, Normalisation::RescaleTo01] {
            let mut values = [3.0; 4];
            normalisation.intensity(&case, None).unwrap().apply(&mut values);
            assert_eq!(values, [0.0; 4]);
        }
    }
}
