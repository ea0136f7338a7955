//! The settings of data sets of images, and the preparation of images as inputs.

use plimsoll_data::Sampling;
use plimsoll_data::pictures::{Augmentation, PipelineSettings, Step, TableSettings};
use plimsoll_image::process::resize::Filter;
use plimsoll_image::{DecodeOptions, SampleRange};
use serde::{Deserialize, Serialize};

use crate::ImageTarget;

/// Rows and columns where nothing else is set: what torchvision's networks expect.
const SIZE: [usize; 2] = [224, 224];

/// RGB where nothing else is set.
const CHANNELS: usize = 3;

/// The weights of classes in the cross-entropy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassWeights {
    /// n / (K nₖ) for nₖ of n images to train on and K classes, as scikit-learn's `class_weight="balanced"`: each class weighs alike.
    Balanced,
}

impl ClassWeights {
    /// The weight of each class, from its number of images.
    ///
    /// # Errors
    /// Returns an error if a class has no image; the error is its index.
    pub(crate) fn weights(self, counts: &[usize]) -> Result<Vec<f32>, usize> {
        let ClassWeights::Balanced = self;
        let (all, classes) = (counts.iter().sum::<usize>() as f64, counts.len() as f64);
        let weight = |(class, count): (usize, &usize)| match count {
            0 => Err(class),
            count => Ok((all / (classes * *count as f64)) as f32),
        };
        counts.iter().enumerate().map(weight).collect()
    }
}

/// The settings of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSettings {
    /// Height and width that images are resized to, in pixels [default: 224 × 224].
    pub size: Option<[usize; 2]>,
    /// 1, grey, or 3, RGB [default: 3].
    pub channels: Option<usize>,
    /// The range of 16-bit samples that becomes 0 to 255 [default: the range over all images of the data set except `test`].
    pub range_16_bit: Option<SampleRange>,
    /// The filter of resizing [default: bilinear].
    pub filter: Option<Filter>,
    /// The grey up to which the border of a photograph of the retina is dark, and cropped [default: nothing is cropped].
    pub circle_crop: Option<u8>,
    /// Equalises lightness locally before resizing: the most that a level may have, as a multiple of a uniform histogram [default: not
    /// equalised].
    pub clahe: Option<f64>,
    /// Ben Graham's filter after resizing: the deviation of its blur, in pixels [default: not filtered].
    pub ben_graham: Option<f64>,
    /// The sampling of the images of a step [default: shuffled].
    pub sampling: Option<Sampling>,
    /// The classes to learn [default: all].
    pub classes: Option<Vec<String>>,
    /// The target of the training [default: several labels if the data set has several, or else one class].
    pub target: Option<ImageTarget>,
    /// The weights of classes in the cross-entropy [default: each image alike].
    pub class_weights: Option<ClassWeights>,
    /// The random augmentation of images [default: rotated up to 10°, mirrored, brightness and contrast within 10 %].
    pub augmentation: Option<Augmentation>,
    /// Columns, where images are listed in a table [default: `image` and `label`].
    pub table: Option<TableSettings>,
}

impl ImageSettings {
    /// These settings, completed by the settings of `other`.
    pub fn or(self, other: ImageSettings) -> ImageSettings {
        ImageSettings {
            size: self.size.or(other.size),
            channels: self.channels.or(other.channels),
            range_16_bit: self.range_16_bit.or(other.range_16_bit),
            filter: self.filter.or(other.filter),
            circle_crop: self.circle_crop.or(other.circle_crop),
            clahe: self.clahe.or(other.clahe),
            ben_graham: self.ben_graham.or(other.ben_graham),
            sampling: self.sampling.or(other.sampling),
            classes: self.classes.or(other.classes),
            target: self.target.or(other.target),
            class_weights: self.class_weights.or(other.class_weights),
            augmentation: self.augmentation.or(other.augmentation),
            table: self.table.or(other.table),
        }
    }

    /// The channels of the network's input: 1, grey, or 3, RGB.
    pub fn channels(&self) -> usize {
        self.channels.unwrap_or(CHANNELS)
    }

    /// The decoding and preparation of images whose 16-bit samples have this range.
    pub fn pipeline(&self, range_16_bit: Option<SampleRange>) -> PipelineSettings {
        let [height, width] = self.size.unwrap_or(SIZE);
        let crop = self.circle_crop.map(|tolerance| Step::CircleCrop { tolerance });
        let clahe = self.clahe.map(|clip| Step::Clahe { clip, tiles: [8, 8] });
        let resize = Step::Resize { height, width, filter: self.filter.unwrap_or_default() };
        let graham = self.ben_graham.map(|sigma| Step::BenGraham { sigma });
        let range_16_bit = self.range_16_bit.or(range_16_bit);
        PipelineSettings {
            decode: DecodeOptions { range_16_bit, ..DecodeOptions::default() },
            channels: self.channels(),
            steps: [crop, clahe, Some(resize), graham].into_iter().flatten().collect(),
            ..PipelineSettings::default()
        }
    }

    /// The random augmentation of images.
    pub fn augmentation(&self) -> Augmentation {
        self.augmentation.clone().unwrap_or(Augmentation {
            degrees: 10.0,
            flip_horizontal: 0.5,
            brightness: 0.1,
            contrast: 0.1,
            ..Augmentation::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        // compute_class_weight("balanced", classes=[0, 1, 2], y=[0] * 6 + [1] * 3 + [2]): [0.5555…, 1.1111…, 3.3333…]
        let found = ClassWeights::Balanced.weights(&[6, 3, 1]).unwrap();
        for (found, expected) in found.iter().zip([5.0 / 9.0, 10.0 / 9.0, 10.0 / 3.0]) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{found}");
        }
        assert_eq!(ClassWeights::Balanced.weights(&[6, 0, 1]), Err(1));
    }
}
