//! How images become what a network sees, as its model was trained to see them.

use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};

use crate::{Normalisation, TargetSpacing};

/// How a case becomes the grid that windows are cut from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
}

/// What TotalSegmentator does with an image before nnU-Net does, and with labels after: the image is brought to the canonical orientation
/// and zoomed linearly, the first and the last voxel along each axis staying where they are, and cut to whole numbers; of labels, the
/// nearest is taken on the way back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoomSteps {
    /// The spacing that it is zoomed to, in millimetres, along depth, height and width of the canonical orientation.
    pub spacing: Spacing,
    /// What is done then; its spacing is the same.
    pub then: NnUnetSteps,
}

/// What nnU-Net 2 does with an image before its network sees it, and with logits after: stored axes are transposed, the image is cut to
/// the box where any channel is not zero, normalised, and resized to a spacing; logits are resized to the box, decided, and put back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NnUnetSteps {
    /// Which of the stored axes (depth, height, width) each axis of the network is: `transpose_forward` of `plans.json`.
    pub transposed: [usize; 3],
    /// Whether images are first brought to the canonical orientation, as its reader `NibabelIOWithReorient` does; else they stay as they
    /// are stored.
    pub reorients: bool,
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
}

/// How a channel is normalised, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedNormalisation {
    /// How.
    pub normalisation: Normalisation,
    /// Whether its statistics are those of the voxels where any channel is not zero, holes filled, and all others become zero
    /// (`use_mask_for_norm`).
    pub inside_mask: bool,
}

/// How a grid becomes one of another shape over the same box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearest voxel.
    Nearest,
    /// A line.
    Linear,
    /// A cubic B-spline through the voxels, kept within the range of the image.
    Cubic,
}
