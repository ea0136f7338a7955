//! How images become what a network sees, as its model was trained to see them.

use plimsoll_volume::Spacing;
use serde::Deserialize;

use crate::{Normalisation, TargetSpacing};

/// How a case becomes the grid that windows are cut from.
#[derive(Clone, Debug, PartialEq)]
pub enum Preparation {
    /// The canonical orientation, at a spacing, interpolated linearly; of z-scores, statistics are those of the box of voxels that
    /// are not zero.
    Canonical {
        /// The spacing.
        spacing: TargetSpacing,
    },
    /// nnU-Net's steps, one after the other.
    NnUnet(NnUnetSteps),
    /// TotalSegmentator's steps.
    Zoomed(ZoomSteps),
    /// Transforms of MONAI.
    Monai(MonaiSteps),
}

/// What `Orientationd("RAS")`, `Spacingd` and a transform of intensities of MONAI do, one after the other. The network's axes are MONAI's:
/// from left to right, from back to front, from bottom to top.
#[derive(Clone, Debug, PartialEq)]
pub struct MonaiSteps {
    /// `pixdim`: the spacing along these axes, in millimetres; none where images keep their own.
    pub spacing: Option<[f64; 3]>,
    /// What is done with intensities then.
    pub intensity: MonaiIntensity,
}

/// A transform of intensities of MONAI, under its names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum MonaiIntensity {
    /// None.
    #[serde(rename = "none")]
    None {},
    /// From one range to another: (x − a_min) / (a_max − a_min) · (b_max − b_min) + b_min.
    ScaleIntensityRange {
        /// What becomes `b_min`.
        a_min: f64,
        /// What becomes `b_max`.
        a_max: f64,
        /// See there; without it, and `b_max`, from 0 to 1.
        #[serde(default)]
        b_min: Option<f64>,
        /// See there.
        #[serde(default)]
        b_max: Option<f64>,
        /// Whether what is beyond `b_min` and `b_max` becomes these.
        #[serde(default)]
        clip: bool,
    },
    /// The mean is subtracted, and what remains divided by the standard deviation, unless that is 0.
    NormalizeIntensity {
        /// Whether only voxels that are not 0 count, and change.
        #[serde(default)]
        nonzero: bool,
        /// Whether each channel has statistics of its own.
        #[serde(default)]
        channel_wise: bool,
        /// What is subtracted instead of the mean.
        #[serde(default)]
        subtrahend: Option<f64>,
        /// What is divided by instead of the deviation.
        #[serde(default)]
        divisor: Option<f64>,
    },
}

impl MonaiIntensity {
    /// What is wrong with its numbers, if anything: the entry, and what it must be.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let is_far = |value: f64| !value.is_finite() || value.abs() > f64::from(f32::MAX);
        match *self {
            MonaiIntensity::None {} => None,
            MonaiIntensity::ScaleIntensityRange { a_min, a_max, b_min, b_max, clip } => {
                let ends = [Some(a_min), Some(a_max), b_min, b_max];
                if ends.into_iter().flatten().any(is_far) {
                    return Some(("ScaleIntensityRange", "its ends must be numbers of single precision"));
                }
                // As they are computed with, in single precision, in which two ends may be one, or infinitely far apart.
                let is_range = |width: f32| width.is_finite() && width >= f32::MIN_POSITIVE;
                let to = b_min.zip(b_max).map(|(low, high)| high as f32 - low as f32);
                if !is_range((a_max - a_min) as f32) || to.is_some_and(|width| !is_range(width)) {
                    return Some(("ScaleIntensityRange", "a range must end above where it begins"));
                }
                match (b_min.is_some(), b_max.is_some()) {
                    (false, false) if clip => Some(("clip", "it needs b_min and b_max")),
                    (true, true) | (false, false) => None,
                    _ => Some(("b_min and b_max", "one needs the other")),
                }
            }
            MonaiIntensity::NormalizeIntensity { subtrahend, divisor, .. } => {
                let given = [subtrahend, divisor].into_iter().flatten().any(is_far);
                given.then_some(("NormalizeIntensity", "its numbers must be those of single precision"))
            }
        }
    }
}

/// What TotalSegmentator does with an image before nnU-Net does, and with labels after: the image is brought to the canonical orientation
/// and zoomed linearly, the first and the last voxel along each axis staying where they are, and cut to whole numbers; of labels, the
/// nearest is taken on the way back.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoomSteps {
    /// The spacing that it is zoomed to, in millimetres, along depth, height and width of the canonical orientation.
    pub spacing: Spacing,
    /// What is done then; its spacing is the same.
    pub then: NnUnetSteps,
}

/// What nnU-Net 2 does with an image before its network sees it, and with logits after: stored axes are transposed, the image is cut to
/// the box where any channel is not zero, normalised, and resized to a spacing; logits are resized to the box, decided, and put back.
#[derive(Clone, Debug, PartialEq)]
pub struct NnUnetSteps {
    /// Which of the stored axes (depth, height, width) each axis of the network is: `transpose_forward` of `plans.json`.
    pub transposed: [usize; 3],
    /// Whether images are first brought to the canonical orientation, as its reader `NibabelIOWithReorient` does; else they stay as they
    /// are stored.
    pub reorients: bool,
    /// How many planes its reader expects of an image.
    pub planes: Planes,
    /// The spacing of the network's axes, in millimetres: of all three, or of the last two.
    pub spacing: TargetSpacing,
    /// How each channel is normalised.
    pub channels: Vec<MaskedNormalisation>,
    /// How images are resized.
    pub images: Resizing,
    /// How logits are resized.
    pub logits: Resizing,
    /// How the labels of an earlier network, which are channels of a cascade's image, are resized.
    pub labels: Resizing,
    /// Which of these labels a voxel gets between several.
    pub ties: LabelTies,
}

/// How many planes an image has along its first stored axis, as nnU-Net's readers of formats that are not medical expect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// Any number.
    Any,
    /// One: `NaturalImage2DIO`.
    One,
    /// More than one: `Tiff3DIO`.
    Several,
}

/// Which label a voxel gets of those that are resized, each as an image of 0 and 1 of which the largest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelTies {
    /// Where several are as large, that of the nearest voxel if it is one of them, and else the lowest: `resize_segmentation` of
    /// batchgenerators 0.25.5.
    Nearest,
    /// Where several are as large once they are rounded to half precision in thousandths, the lowest: `resample_torch_simple` of nnU-Net
    /// 2.8.1.
    Lowest,
}

/// How a channel is normalised, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedNormalisation {
    /// How.
    pub normalisation: Normalisation,
    /// Whether its statistics are those of the voxels where any channel is not zero, holes filled, and all others become zero
    /// (`use_mask_for_norm`).
    pub inside_mask: bool,
}

/// How a grid becomes one of another shape over the same box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// Between voxels of one slice, or of the volume.
    pub order: Interpolation,
    /// Along the coarsest axis where slices are resized for themselves.
    pub order_across: Interpolation,
    /// Whether slices across the coarsest axis are resized for themselves; where nothing is said, if it is more than three times as
    /// coarse as the finest.
    pub slices: Option<bool>,
}

/// What stands between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest voxel.
    Nearest,
    /// A line.
    Linear,
    /// A cubic B-spline through the voxels, kept within the range of the image.
    Cubic,
}
