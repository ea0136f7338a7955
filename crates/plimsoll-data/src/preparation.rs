//! The preparation of images for a network, as its model was trained.

use plimsoll_volume::Spacing;
use serde::Deserialize;

use crate::{Normalisation, TargetSpacing};

/// The preparation that turns a case into the grid that windows are cut from.
#[derive(Clone, Debug, PartialEq)]
pub enum Preparation {
    /// The canonical orientation, at a spacing, interpolated linearly; for z-scores, statistics are taken over the box of voxels that
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
    /// Two looks: at all of an image, and at the box of what the first network found.
    Located(LocatedSteps),
}

/// Two networks at fixed extents, the first of which finds the box that the second sees, as deepbet has them. Images are brought to the canonical orientation;
/// the axes of the networks go from left to right, from back to front, from bottom to top. Each extent takes the nearest
/// voxels of an image or of a box, whatever its shape.
///
/// Intensities are mapped from between two quantiles of the first look to 0 to 1 and clipped, and then to a mean and a deviation.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedSteps {
    /// The extent of the first look.
    pub coarse: [usize; 3],
    /// The extent of the second.
    pub fine: [usize; 3],
    /// The share by which the box grows to each side.
    pub margin: f64,
    /// The share of a plane that must be marked for the plane to be in the box.
    pub least_share: f64,
    /// The two quantiles, interpolated between the nearest voxels.
    pub quantiles: [f64; 2],
    /// The mean of what a network sees.
    pub mean: f64,
    /// The deviation.
    pub deviation: f64,
}

/// `Orientationd("RAS")`, `Spacingd` and a transform of intensities of MONAI, one after the other. The
/// network's axes are MONAI's: from left to right, from back to front, from bottom to top.
#[derive(Clone, Debug, PartialEq)]
pub struct MonaiSteps {
    /// `pixdim`: the spacing along these axes, in millimetres; none where images keep their own.
    pub spacing: Option<[f64; 3]>,
    /// The transform of intensities that follows.
    pub intensity: MonaiIntensity,
}

/// A transform of intensities of MONAI, under its names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum MonaiIntensity {
    /// None.
    #[serde(rename = "none")]
    None {},
    /// From the range of the image to another: (x − least) / (largest − least) · (maxv − minv) + minv. An image of one value is multiplied by
    /// `minv`.
    ScaleIntensity {
        /// The least value of the result.
        #[serde(default)]
        minv: f64,
        /// The largest.
        #[serde(default = "unit")]
        maxv: f64,
        /// Gives each channel a range of its own.
        #[serde(default)]
        channel_wise: bool,
    },
    /// From one range to another: (x − a_min) / (a_max − a_min) · (b_max − b_min) + b_min.
    ScaleIntensityRange {
        /// The value mapped to `b_min`.
        a_min: f64,
        /// The value mapped to `b_max`.
        a_max: f64,
        /// See there; without it, and `b_max`, from 0 to 1.
        #[serde(default)]
        b_min: Option<f64>,
        /// See there.
        #[serde(default)]
        b_max: Option<f64>,
        /// Clips results to the range from `b_min` to `b_max`.
        #[serde(default)]
        clip: bool,
    },
    /// The mean is subtracted, and what remains divided by the standard deviation, unless that is 0.
    NormalizeIntensity {
        /// Uses and changes only voxels that are not 0.
        #[serde(default)]
        nonzero: bool,
        /// Gives each channel statistics of its own.
        #[serde(default)]
        channel_wise: bool,
        /// The number that is subtracted instead of the mean.
        #[serde(default)]
        subtrahend: Option<f64>,
        /// The divisor instead of the deviation.
        #[serde(default)]
        divisor: Option<f64>,
    },
}

/// The default of `maxv`.
fn unit() -> f64 {
    1.0
}

impl MonaiIntensity {
    /// The fault of its numbers, if any: the entry, and the requirement.
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
            MonaiIntensity::ScaleIntensity { minv, maxv, .. } => {
                let given = [minv, maxv].into_iter().any(is_far);
                given.then_some(("ScaleIntensity", "its ends must be numbers of single precision"))
            }
            MonaiIntensity::NormalizeIntensity { subtrahend, divisor, .. } => {
                let given = [subtrahend, divisor].into_iter().flatten().any(is_far);
                given.then_some(("NormalizeIntensity", "its numbers must fit single precision"))
            }
        }
    }
}

/// TotalSegmentator's steps around nnU-Net's: the image is brought to the canonical orientation, zoomed
/// linearly with the first and the last voxel along each axis fixed, and truncated to whole numbers; labels are
/// brought back by the nearest voxel.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoomSteps {
    /// The spacing that it is zoomed to, in millimetres, along depth, height and width of the canonical orientation.
    pub spacing: Spacing,
    /// The steps that follow; their spacing is the same.
    pub then: NnUnetSteps,
}

/// nnU-Net 2's steps before and after its network: stored axes are transposed, the image is cropped to the box
/// where any channel is not zero, normalised, and resized to a spacing; logits are resized to the box, decided,
/// and put back.
#[derive(Clone, Debug, PartialEq)]
pub struct NnUnetSteps {
    /// The program whose order of steps is followed.
    pub order: StepOrder,
    /// The stored axis (depth, height, width) of each axis of the network: `transpose_forward` of `plans.json`.
    pub transposed: [usize; 3],
    /// Brings images to the canonical orientation first, as its reader `NibabelIOWithReorient` does; otherwise
    /// they keep the stored one.
    pub reorients: bool,
    /// The number of planes that its reader expects of an image.
    pub planes: Planes,
    /// The spacing of the network's axes, in millimetres: of all three, or of the last two.
    pub spacing: TargetSpacing,
    /// The normalisation of each channel.
    pub channels: Vec<MaskedNormalisation>,
    /// The resizing of images.
    pub images: Resizing,
    /// The resizing of logits.
    pub logits: Resizing,
    /// The resizing of the labels of an earlier network, which are channels of a cascade's image.
    pub labels: Resizing,
    /// The choice between several of these labels at a voxel.
    pub ties: LabelTies,
}

/// The order of steps of programs that resize images by splines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOrder {
    /// nnU-Net's: images are cut to the box that is not zero, normalised and resized; what is computed is resized to that box.
    NnUnet,
    /// HD-BET's: all of an image is resized and then normalised, by statistics of the result. Labels are resized from the network's grid to the
    /// extent that the two spacings lead to, which may be a voxel more or less than the image's, and the image is the middle of that.
    HdBet,
}

/// The number of planes along the first stored axis that nnU-Net's readers of non-medical formats expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// Any number.
    Any,
    /// One: `NaturalImage2DIO`.
    One,
    /// More than one: `Tiff3DIO`.
    Several,
}

/// The choice between labels that are resized, each as an image of 0 and 1 of which the largest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelTies {
    /// Among equal values, the label of the nearest voxel if it is one of them, and else the lowest:
    /// `resize_segmentation` of batchgenerators 0.25.5.
    Nearest,
    /// Among values that are equal once they are rounded to half precision in thousandths, the lowest label:
    /// `resample_torch_simple` of nnU-Net 2.8.1.
    Lowest,
}

/// The normalisation of a channel, and the voxels that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedNormalisation {
    /// How.
    pub normalisation: Normalisation,
    /// Uses the statistics of the voxels where any channel is not zero, holes filled, and sets all others to
    /// zero (`use_mask_for_norm`).
    pub inside_mask: bool,
}

/// The resizing of a grid to another shape over the same box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// Between voxels of one slice, or of the volume.
    pub order: Interpolation,
    /// Along the coarsest axis where slices are resized for themselves.
    pub order_across: Interpolation,
    /// Resizes slices across the coarsest axis separately; with `None`, if that axis is more than three times
    /// as coarse as the finest.
    pub slices: Option<bool>,
}

/// The interpolation between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest voxel.
    Nearest,
    /// A line.
    Linear,
    /// A cubic B-spline through the voxels, kept within the range of the image.
    Cubic,
}
