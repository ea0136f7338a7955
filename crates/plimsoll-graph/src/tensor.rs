//! Tensors as the program sees them: logical shapes, never addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tensor of a program: its place in [`Program::tensors`](crate::Program::tensors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorId(pub u32);

impl TensorId {
    /// As an index.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// The upper half of an f32.
    Bf16,
    /// Class numbers.
    U8,
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::Bf16 => 2,
            DType::U8 => 1,
        }
    }
}

/// What a tensor is to its program, which says how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Written from outside before each run; may be overwritten after its last use.
    Input,
    /// Learned, named, and shared by all programs of a set; lives for ever.
    Parameter,
    /// As a parameter, but not part of the model: optimizer moments, accumulated gradients.
    State,
    /// Made and used within a run.
    Intermediate,
    /// Made within a run and read from outside after it.
    Output,
}

impl Role {
    /// Whether the tensor keeps its place and value between runs.
    pub fn is_persistent(self) -> bool {
        matches!(self, Role::Parameter | Role::State)
    }
}

/// On which side of the network's interior a volume lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Inside: many channels, the innermost axis of a backend's layout.
    Features,
    /// At the rim: images and logits with few channels, one plane per channel.
    Image,
}

/// What a tensor holds, from which a backend decides how to lay it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A volume `[N, C, D, H, W]` inside the network.
    Features,
    /// A volume `[N, C, D, H, W]` at its rim.
    Image,
    /// Class numbers `[N, 1, D, H, W]`.
    Labels,
    /// Convolution weights `[out, in / groups, kd, kh, kw]`. A convolution over several sources has the channels of each, in
    /// order, along `in`.
    Weights {
        /// Channels of each source.
        sources: Vec<usize>,
        /// Where the sources lie.
        from: Side,
        /// Where the result lies.
        to: Side,
    },
    /// One number per channel, `[C]`.
    Channels,
    /// Mean and reciprocal standard deviation of each channel of each sample, `[N, C, 2]`.
    Statistics,
    /// Anything small, row-major.
    Table,
}

impl Kind {
    /// The side of a volume; none for what is not a volume of channels.
    pub fn side(&self) -> Option<Side> {
        match self {
            Kind::Features => Some(Side::Features),
            Kind::Image => Some(Side::Image),
            _ => None,
        }
    }
}

impl From<Side> for Kind {
    fn from(side: Side) -> Kind {
        match side {
            Side::Features => Kind::Features,
            Side::Image => Kind::Image,
        }
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

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.0.iter().product()
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
    /// Parameters and states are found by it across programs; inputs and outputs from outside; others are for people.
    pub name: String,
    /// Logical shape.
    pub shape: Shape,
    /// Type of a stored element.
    pub dtype: DType,
    /// What it is to the program.
    pub role: Role,
    /// What it holds.
    pub kind: Kind,
}
