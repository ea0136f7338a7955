//! Tensors as the program sees them: logical shapes, never addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tensor of a program: its place in [`Program::tensors`](crate::Program::tensors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorId(pub u32);

impl TensorId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The type of a stored element. Sums and statistics are always accumulated in f32 or wider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// The upper half of an f32.
    Bf16,
    /// IEEE 754 half precision: 11 bits of mantissa, and nothing beyond 65504, so that gradients are scaled while training.
    F16,
    /// IEEE 754 double precision: counts of voxels, which f32 holds exactly only up to 2²⁴.
    F64,
    /// Class numbers.
    U8,
}

impl DType {
    /// Returns `true` if volumes may be stored so.
    pub fn stores_volumes(self) -> bool {
        match self {
            DType::F32 | DType::Bf16 | DType::F16 => true,
            DType::F64 | DType::U8 => false,
        }
    }

    /// Returns `true` if gradients may exceed its range, so that the loss is scaled while training.
    pub fn needs_loss_scale(self) -> bool {
        self == DType::F16
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F64 => 8,
            DType::F32 => 4,
            DType::Bf16 | DType::F16 => 2,
            DType::U8 => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::F64 => "f64",
            DType::U8 => "u8",
        })
    }
}

/// The role of a tensor in its program, which decides its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Written from outside before each run; may be overwritten after its last use.
    Input,
    /// Part of the model, named, and shared by all programs of a set; keeps its place and value between runs. Most are learned by
    /// their gradient, running statistics follow the batches.
    Parameter,
    /// A persistent tensor that is not part of the model: optimizer moments, accumulated gradients.
    State,
    /// Made and used within a run.
    Intermediate,
    /// Made within a run and read from outside after it.
    Output,
}

impl Role {
    /// Returns `true` if the tensor keeps its place and value between runs.
    pub fn is_persistent(self) -> bool {
        matches!(self, Role::Parameter | Role::State)
    }
}

/// The kind of values of a tensor. The order in memory is a backend's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A volume of numbers `[N, C, D, H, W]`: images, feature maps, logits, probabilities.
    Volume,
    /// Class numbers `[N, 1, D, H, W]`.
    Labels,
    /// Convolution weights `[out, in / groups, kd, kh, kw]`. A convolution over several sources has the channels of each, in
    /// order, along `in`.
    Weights,
    /// One number per channel, `[C]`.
    Channels,
    /// Mean and reciprocal standard deviation of each channel of each sample, `[N, C, 2]`.
    Statistics,
    /// Any small array.
    Table,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Volume => "a volume",
            Kind::Labels => "labels",
            Kind::Weights => "weights",
            Kind::Channels => "one number per channel",
            Kind::Statistics => "statistics",
            Kind::Table => "a table",
        })
    }
}

/// A logical shape, slowest axis first. Volumes are `[N, C, D, H, W]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// The shape of a volume.
    pub fn volume(batch: usize, channels: usize, spatial: [usize; 3]) -> Shape {
        let [d, h, w] = spatial;
        Shape(vec![batch, channels, d, h, w])
    }

    /// The largest extent of an axis that a program may have: far beyond any image, and small enough that no sum of a few
    /// extents overflows.
    pub const MOST_EXTENT: usize = 1 << 20;
    /// The most elements that a tensor of a program may have.
    pub const MOST_ELEMENTS: usize = 1 << 40;

    /// The number of elements; `usize::MAX` where there are more.
    pub fn count(&self) -> usize {
        self.0.iter().fold(1, |count: usize, extent| count.saturating_mul(*extent))
    }

    /// Why no tensor can have this shape, if none can.
    pub(crate) fn fault(&self) -> Option<String> {
        if let Some(extent) = self.0.iter().find(|extent| !(1..=Shape::MOST_EXTENT).contains(extent)) {
            return Some(format!("an extent is {extent}; 1 to {} are possible", Shape::MOST_EXTENT));
        }
        let count = self.count();
        (count > Shape::MOST_ELEMENTS)
            .then(|| format!("it has {count} elements; {} are the most", Shape::MOST_ELEMENTS))
    }

    /// The extent along an axis; 1 beyond the last.
    pub fn dim(&self, axis: usize) -> usize {
        self.0.get(axis).copied().unwrap_or(1)
    }

    /// Samples of a volume.
    pub fn batch(&self) -> usize {
        self.dim(0)
    }

    /// Channels of a volume.
    pub fn channels(&self) -> usize {
        self.dim(1)
    }

    /// Depth, height and width of a volume (or of a kernel).
    pub fn spatial(&self) -> [usize; 3] {
        [self.dim(2), self.dim(3), self.dim(4)]
    }

    /// Voxels of one channel of one sample.
    pub fn voxels(&self) -> usize {
        self.spatial().iter().product()
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", dims.join("×"))
    }
}

/// All that a program knows of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Parameters and states are found by it across programs; inputs and outputs from outside; others are for reports.
    pub name: String,
    /// Logical shape.
    pub shape: Shape,
    /// Type of a stored element.
    pub dtype: DType,
    /// Its role in the program.
    pub role: Role,
    /// The kind of its values.
    pub kind: Kind,
}

impl TensorInfo {
    /// Kind, dtype and shape, as errors say them.
    pub fn describe(&self) -> String {
        format!("{} of {} {}", self.kind, self.dtype, self.shape)
    }
}
