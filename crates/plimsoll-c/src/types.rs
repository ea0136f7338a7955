//! The constants and structures of the C interface.

use std::ffi::c_void;

use plimsoll_infer::{ArrayPlan, CaseEstimate};
use plimsoll_metrics::{Metric, Scores};

/// Voxels or labels of 8 bits, without sign.
pub const PLIMSOLL_U8: u32 = 1;
/// Voxels or labels of 16 bits, without sign.
pub const PLIMSOLL_U16: u32 = 2;
/// Voxels of 16 bits, with sign.
pub const PLIMSOLL_I16: u32 = 3;
/// Voxels of 32 bits, as floating-point numbers.
pub const PLIMSOLL_F32: u32 = 4;

/// Windows are looked at as they are.
pub const PLIMSOLL_MIRROR_OFF: u32 = 0;
/// Windows are looked at mirrored as well.
pub const PLIMSOLL_MIRROR_ON: u32 = 1;
/// Mirrors windows of nnU-Net's models and not windows of runs, as on the command line.
pub const PLIMSOLL_MIRROR_USUAL: u32 = 2;

/// The options of a model. `plimsoll_usual_options` fills them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollOptions {
    /// The most memory in bytes that predictions take, the image's copy included; 0 for what the machine leaves.
    pub ram_bytes: u64,
    /// Threads that compute, from 1 to 256.
    pub threads: u64,
    /// The share of a window from one to the next at most, above 0 and at most 1.
    pub step: f64,
    /// Mirrors each window along the axes that the model allows: PLIMSOLL_MIRROR_OFF, PLIMSOLL_MIRROR_ON, or PLIMSOLL_MIRROR_USUAL.
    pub mirror: u32,
}

/// The description of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlimsollDescription {
    /// Channels of its images.
    pub channels: u64,
    /// The largest label that it writes: from 256 on, labels need 16 bits.
    pub largest_label: u32,
    /// Networks whose logits are averaged.
    pub folds: u64,
    /// Voxels of a window along depth, height, width.
    pub window: [u64; 3],
    /// The memory limit in bytes.
    pub ram_bytes: u64,
}

/// The memory of a prediction in bytes, and its number of windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlimsollPlan {
    /// The number of windows over all folds.
    pub windows: u64,
    /// Code, heap and stacks.
    pub overhead_bytes: u64,
    /// Parameters, features and kernels' scratch.
    pub arena_bytes: u64,
    /// Windows on their way in and out.
    pub window_bytes: u64,
    /// Logits being summed, and a plane of labels.
    pub logits_bytes: u64,
    /// The memory of the preparation before the first window.
    pub preparation_bytes: u64,
    /// The memory for decoding the image.
    pub decoding_bytes: u64,
    /// The copy of the image.
    pub image_bytes: u64,
    /// The rest of the limit, which decoded voxels may use.
    pub cache_bytes: u64,
    /// Planes of labels that wait for being handed over, if the limit has room for them.
    pub queue_bytes: u64,
    /// All of these, and `spool_bytes`.
    pub total_bytes: u64,
    /// The least limit that would do.
    pub minimum_bytes: u64,
    /// Labels of all the image, where they are not decided in the order of its planes.
    pub spool_bytes: u64,
}

/// An estimate of predicting an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlimsollEstimate {
    /// The least `ram_bytes` that suffices for the image.
    pub least_bytes: u64,
    /// Memory in bytes that the prediction takes below the limit of the handle.
    pub total_bytes: u64,
    /// The number of windows over all folds.
    pub windows: u64,
    /// Predicted seconds of all forward passes, at nominal rates of processors: no kernel is measured.
    pub predicted_seconds: f64,
}

/// Surfaces are not compared.
pub const PLIMSOLL_SURFACE_NONE: u32 = 0;
/// Surfaces run between voxels and are weighted by their area, as in DeepMind's surface-distance.
pub const PLIMSOLL_SURFACE_ELEMENTS: u32 = 1;
/// Surfaces are foreground voxels beside the background, as in MONAI.
pub const PLIMSOLL_SURFACE_VOXELS: u32 = 2;

/// A mask of lines through an object.
pub const PLIMSOLL_SCRIBBLE: u32 = 0;
/// A mask of a filled contour of an object.
pub const PLIMSOLL_LASSO: u32 = 1;

/// A box of voxels, in the order depth, height, width.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlimsollBox {
    /// The first voxel.
    pub start: [i64; 3],
    /// The voxel past the last along each axis.
    pub end: [i64; 3],
}

/// A mask of the caller, a part of an image: a byte for each voxel, which is marked if it is not 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollMask {
    /// The address of its first voxel.
    pub voxels: *const u8,
    /// The bytes of the mask: its voxels.
    pub voxel_bytes: u64,
    /// The voxel of the image at which it begins: depth, height, width.
    pub start: [u64; 3],
    /// Voxels along depth, height, width.
    pub shape: [u64; 3],
}

/// Two label maps of the caller on the same grid, a byte for each voxel, in the order depth, height, width.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollLabelMaps {
    /// The predicted labels.
    pub prediction: *const u8,
    /// The reference labels.
    pub reference: *const u8,
    /// The bytes of each map: its voxels.
    pub map_bytes: u64,
    /// Voxels along depth, height, width.
    pub shape: [u64; 3],
    /// Millimetres between voxels along the same axes.
    pub spacing: [f64; 3],
}

/// The way in which label maps are compared. `plimsoll_usual_comparison` fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollComparison {
    /// The most memory in bytes that is taken beside the maps; 0 for what the machine leaves.
    pub ram_bytes: u64,
    /// Threads that compute, from 1 to 256.
    pub threads: u64,
    /// PLIMSOLL_SURFACE_NONE, PLIMSOLL_SURFACE_ELEMENTS or PLIMSOLL_SURFACE_VOXELS.
    pub surface: u32,
    /// Millimetres that surfaces may be apart for the surface Dice, from 0.
    pub tolerance: f64,
}

/// The scores of one label. An undefined score is NaN: all but counts if neither map has the label, distances if one map lacks it, and
/// surface scores with PLIMSOLL_SURFACE_NONE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollScores {
    /// The label.
    pub label: u32,
    /// Voxels that have the label in both maps.
    pub true_positives: u64,
    /// Voxels that have it in the prediction alone.
    pub false_positives: u64,
    /// Voxels that have it in the reference alone.
    pub false_negatives: u64,
    /// Dice coefficient.
    pub dice: f64,
    /// Intersection over union.
    pub iou: f64,
    /// Sensitivity, or recall.
    pub sensitivity: f64,
    /// Precision.
    pub precision: f64,
    /// Volume similarity.
    pub volume_similarity: f64,
    /// Hausdorff distance in millimetres.
    pub hausdorff: f64,
    /// 95th percentile of the Hausdorff distance in millimetres.
    pub hausdorff_95: f64,
    /// Average symmetric surface distance in millimetres.
    pub average_distance: f64,
    /// Share of both surfaces that is within the tolerance of the other (surface Dice, NSD).
    pub surface_dice: f64,
}

/// An image of the caller. Arrays are in the order depth, height, width: a row of voxels, along the width, lies together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollImage {
    /// For each channel, the address of its first voxel.
    pub channels: *const *const c_void,
    /// The number of channels.
    pub channel_count: u64,
    /// The bytes of each channel: voxels times the bytes of one.
    pub channel_bytes: u64,
    /// PLIMSOLL_U8, PLIMSOLL_U16, PLIMSOLL_I16 or PLIMSOLL_F32.
    pub element: u32,
    /// Voxels along depth, height, width.
    pub shape: [u64; 3],
    /// Rows x, y and z (millimetres towards right, anterior, superior) of four numbers each: what one voxel along depth, height and
    /// width adds, and where the first voxel is. `plimsoll_affine` makes it of spacing and direction.
    pub affine: [f64; 12],
}

impl PlimsollEstimate {
    pub(crate) fn new(estimate: &CaseEstimate) -> PlimsollEstimate {
        let CaseEstimate { plan, least_ram_bytes } = estimate;
        PlimsollEstimate {
            least_bytes: least_ram_bytes.0,
            total_bytes: plan.total_bytes.0,
            windows: plan.windows as u64,
            predicted_seconds: plan.predicted_seconds,
        }
    }
}

impl PlimsollScores {
    /// The scores of a label; `None` if its voxels were not counted.
    pub(crate) fn new(label: u8, scores: &Scores) -> Option<PlimsollScores> {
        let score = |metric| scores.get(metric).unwrap_or(f64::NAN);
        // Counts of voxels are whole numbers below 2^53, which f64 has exactly.
        let count = |metric| scores.get(metric).map(|count| count as u64);
        Some(PlimsollScores {
            label: label.into(),
            true_positives: count(Metric::TP)?,
            false_positives: count(Metric::FP)?,
            false_negatives: count(Metric::FN)?,
            dice: score(Metric::Dice),
            iou: score(Metric::IoU),
            sensitivity: score(Metric::Sensitivity),
            precision: score(Metric::Precision),
            volume_similarity: score(Metric::VolumeSimilarity),
            hausdorff: score(Metric::HD),
            hausdorff_95: score(Metric::HD95),
            average_distance: score(Metric::ASSD),
            surface_dice: score(Metric::NSD),
        })
    }
}

impl PlimsollPlan {
    pub(crate) fn new(held: &ArrayPlan) -> PlimsollPlan {
        let ArrayPlan { plan, image } = held;
        PlimsollPlan {
            windows: plan.windows as u64,
            overhead_bytes: plan.overhead_bytes.0,
            arena_bytes: plan.arena_bytes.0,
            window_bytes: (plan.window_bytes - *image).0,
            logits_bytes: plan.logits_bytes.0,
            preparation_bytes: plan.preparation_bytes.0,
            decoding_bytes: plan.decoding_bytes.0,
            image_bytes: image.0,
            cache_bytes: plan.cache_bytes.0,
            queue_bytes: plan.queue_bytes.0,
            total_bytes: plan.total_bytes.0,
            minimum_bytes: plan.minimum_ram_bytes.0,
            spool_bytes: plan.spool_bytes.0,
        }
    }
}
