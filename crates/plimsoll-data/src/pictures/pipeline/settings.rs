//! Settings of a pipeline.

use serde::{Deserialize, Serialize};

use crate::pictures::SettingError;
use crate::pictures::error::check;
use plimsoll_image::DecodeOptions;
use plimsoll_image::Extent;
use plimsoll_image::process::affine::Interpolation;
use plimsoll_image::process::resize::Filter;
use plimsoll_image::process::tensor::{ChannelScale, IMAGENET};

/// The longest side of an output, and the most tiles along an axis.
const LONGEST: usize = 1 << 14;
/// The largest deviation of a blur, in pixels.
const WIDEST: f64 = 1000.0;

/// One step that each image goes through in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Crops to the smallest box of all pixels whose grey is above `tolerance`: the exposed disc of a photograph of the retina.
    CircleCrop {
        /// 0 to 254; 7 is usual.
        tolerance: u8,
    },
    /// Fills the pixels outside of a disc about the centre.
    MaskDisc {
        /// The radius, as a share of half the shorter side.
        share: f64,
        /// The sample of each channel outside.
        fill: u8,
    },
    /// Equalises the histogram of lightness locally, with limited contrast; of L in Lab for colours.
    Clahe {
        /// The most that a level may have, as a multiple of a uniform histogram.
        clip: f64,
        /// Tiles along height and width.
        tiles: [usize; 2],
    },
    /// Resizes to this size, with the sides by themselves: the aspect is not kept.
    Resize {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// The filter.
        #[serde(default)]
        filter: Filter,
    },
    /// Ben Graham's filter: 4 · image − 4 · blurred + 128.
    BenGraham {
        /// The deviation of the blur, in pixels. A thirtieth of the disc's radius is usual.
        sigma: f64,
    },
}

/// The normalisation of a channel's numbers, which are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Is subtracted.
    pub mean: f32,
    /// Divides.
    pub deviation: f32,
}

/// Settings of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PipelineSettings {
    /// Options for reading files.
    pub decode: DecodeOptions,
    /// 1 (grey) or 3 (RGB). Images are converted.
    pub channels: usize,
    /// The steps, in order. One of them resizes; none crops after that.
    pub steps: Vec<Step>,
    /// For each channel. Empty for the numbers of ImageNet, for grey images their means over colours.
    pub normalisation: Vec<Scale>,
    /// The interpolation of images that are rotated, scaled or sheared.
    pub interpolation: Interpolation,
    /// The value of each channel of a rotated image where the original has no pixels.
    pub fill: [u8; 3],
    /// Weights of the augmentation's blur, along each axis: odd.
    pub blur_size: usize,
}

impl Default for PipelineSettings {
    /// RGB at 224 × 224, as torchvision's networks expect.
    fn default() -> PipelineSettings {
        PipelineSettings {
            decode: DecodeOptions::default(),
            channels: 3,
            steps: vec![Step::Resize { height: 224, width: 224, filter: Filter::Bilinear }],
            normalisation: Vec::new(),
            interpolation: Interpolation::default(),
            fill: [0; 3],
            blur_size: 5,
        }
    }
}

impl PipelineSettings {
    /// Checks all settings. Returns the size in which the steps end.
    pub(crate) fn check(&self) -> Result<Extent, SettingError> {
        let PipelineSettings { channels, normalisation, blur_size, .. } = self;
        check("channels", channels, matches!(channels, 1 | 3), "1 or 3")?;
        let scales = normalisation.len();
        check("normalisation", scales, scales == 0 || scales == *channels, "one for each channel, or empty")?;
        for Scale { mean, deviation } in normalisation {
            check("mean", mean, mean.is_finite(), "finite")?;
            check("deviation", deviation, deviation.is_finite() && *deviation > 0.0, "positive")?;
        }
        check("blur_size", blur_size, blur_size % 2 == 1 && *blur_size < 256, "odd and below 256")?;
        let mut extent = None;
        for step in &self.steps {
            match *step {
                Step::CircleCrop { tolerance } => {
                    check("tolerance", tolerance, tolerance < 255, "0 to 254")?;
                    if extent.is_some() {
                        return Err(self.wrong_steps("`circle_crop` comes after `resize`"));
                    }
                }
                Step::MaskDisc { share, .. } => {
                    check("share", share, share > 0.0 && share <= 1.0, "above 0, up to 1")?
                }
                Step::Clahe { clip, tiles } => {
                    check("clip", clip, (0.0..=1e4).contains(&clip), "0 to 10000")?;
                    for count in tiles {
                        check("tiles", count, (1..=64).contains(&count), "1 to 64")?;
                    }
                }
                Step::Resize { height, width, .. } => {
                    for side in [height, width] {
                        check("side", side, (1..=LONGEST).contains(&side), "1 to 16384")?;
                    }
                    if extent.is_some() {
                        return Err(self.wrong_steps("`resize` comes twice"));
                    }
                    extent = Some(Extent { height, width });
                }
                Step::BenGraham { sigma } => {
                    check("sigma", sigma, sigma > 0.0 && sigma <= WIDEST, "above 0, up to 1000")?
                }
            }
        }
        extent.ok_or_else(|| self.wrong_steps("there is no `resize`"))
    }

    fn wrong_steps(&self, problem: &'static str) -> SettingError {
        let names = self.steps.iter().map(|step| match step {
            Step::CircleCrop { .. } => "circle_crop",
            Step::MaskDisc { .. } => "mask_disc",
            Step::Clahe { .. } => "clahe",
            Step::Resize { .. } => "resize",
            Step::BenGraham { .. } => "ben_graham",
        });
        SettingError::Steps { steps: format!("{:?}", names.collect::<Vec<_>>()), problem }
    }

    pub(crate) fn scales(&self) -> Vec<ChannelScale> {
        if !self.normalisation.is_empty() {
            let scale = |scale: &Scale| ChannelScale { mean: scale.mean, deviation: scale.deviation };
            return self.normalisation.iter().map(scale).collect();
        }
        if self.channels == 3 {
            return IMAGENET.to_vec();
        }
        let mean = |of: fn(&ChannelScale) -> f32| IMAGENET.iter().map(of).sum::<f32>() / 3.0;
        vec![ChannelScale { mean: mean(|scale| scale.mean), deviation: mean(|scale| scale.deviation) }]
    }
}
