//! The options of prediction.

use std::fmt;

use plimsoll_graph::DType;
use serde::Serialize;

/// The options of prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictOptions {
    /// The share of a window from one to the next at most, above 0 and at most 1.
    pub step: f64,
    /// The weights of voxels of windows, for models that do not define their own, as MONAI's do.
    pub window_weights: WindowWeights,
    /// Windows that the network takes at once, 1 at least; mirrored ones are counted. They are summed one by one, in the order of one at a time,
    /// so that only kernels that compute a batch otherwise than a single window can change a number: the processor has none.
    pub window_batch: usize,
    /// `true` if each window is also looked at mirrored, along all axes that its model may be mirrored along, alone and together.
    pub mirror: bool,
    /// Threads that kernels run on: each has a stack.
    pub threads: usize,
    /// The quantity that is summed where windows overlap; `None` for the features before the head of a model with many classes, and else
    /// logits. It follows from the model alone, as sums of features are rounded otherwise.
    pub summed: Option<Summed>,
    /// The type in which sums are stored; `None` for single precision if the memory limit has room for it.
    pub ring: Option<RingStorage>,
    /// The type in which features are stored, and, with 16 bits, logits of a window too; `None` for the model's type. Types for which the backend has no
    /// kernels are refused.
    pub precision: Option<DType>,
}

impl PredictOptions {
    /// With one window at a time, weighted by a Gaussian, sums as the model suggests and the limit has room for them, and features as the model says.
    pub fn new(step: f64, mirror: bool, threads: usize) -> PredictOptions {
        PredictOptions {
            step,
            window_weights: WindowWeights::Gaussian,
            window_batch: 1,
            mirror,
            threads,
            summed: None,
            ring: None,
            precision: None,
        }
    }
}

/// The weights of voxels where windows overlap, for models that do not define their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowWeights {
    /// A Gaussian around the middle: what a network says at the border of a window, where it sees little around, counts least.
    Gaussian,
    /// All alike, as nnU-Net's `use_gaussian=False` and MONAI's `mode="constant"`.
    Constant,
}

/// The quantity that is summed for each voxel while windows are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Summed {
    /// The logits of windows.
    Logits,
    /// The input of the head. The head is applied to the means.
    Features,
}

impl fmt::Display for Summed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Summed::Logits => "logits",
            Summed::Features => "features",
        })
    }
}

/// The type in which sums are stored while windows are added to them. They are added in single precision, and rounded once for each
/// window, whatever the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingStorage {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision, with 11 bits: a voxel may get another label only where the means of two classes differ by less than
    /// about a thousandth of their size. (bfloat16 has 8 bits, and no use for its range: means are no larger than logits.)
    F16,
}

impl RingStorage {
    /// Both, the more exact one first.
    pub const ALL: [RingStorage; 2] = [RingStorage::F32, RingStorage::F16];
}

impl fmt::Display for RingStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingStorage::F32 => "f32",
            RingStorage::F16 => "f16",
        })
    }
}
