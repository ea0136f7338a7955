//! Statistics for normalisations: instance, group and batch.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume};
use crate::{Array, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// The values that share a mean and a variance, and so are normalised together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// Those of a channel of a sample: instance normalisation (Ulyanov, Vedaldi and Lempitsky 2016).
    Instance,
    /// The values of neighbouring channels of a sample, in this number of groups of equal size: group normalisation (Wu
    /// and He 2018).
    Group(usize),
    /// Those of a channel of all samples: batch normalisation (Ioffe and Szegedy 2015). The result for a sample then depends on
    /// the others of its batch.
    Batch,
}

/// Planes, which are the voxels of a channel of a sample, that share their statistics: all these channels of all these samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlanes {
    /// Samples.
    pub samples: Range<usize>,
    /// Channels.
    pub channels: Range<usize>,
}

impl SharedPlanes {
    /// The places of its planes in `[N, C]`, in ascending order.
    pub fn planes(&self, channels: usize) -> impl Iterator<Item = usize> + use<> {
        let own = self.channels.clone();
        self.samples
            .clone()
            .flat_map(move |sample| own.clone().map(move |channel| sample * channels + channel))
    }
}

impl Over {
    /// Returns `true` if the result for a sample depends on the others of its batch.
    pub fn couples_samples(self) -> bool {
        self == Over::Batch
    }

    /// The number of sets of planes in this number of samples and channels, which a [`NormStats`] accepts.
    pub fn sets(self, batch: usize, channels: usize) -> usize {
        match self {
            Over::Instance => batch * channels,
            Over::Group(groups) => batch * groups,
            Over::Batch => channels,
        }
    }

    /// One of the sets, counted over samples, then channels.
    pub fn set(self, set: usize, batch: usize, channels: usize) -> SharedPlanes {
        let one = |at: usize| at..at + 1;
        match self {
            Over::Instance => SharedPlanes { samples: one(set / channels), channels: one(set % channels) },
            Over::Group(groups) => {
                let (size, group) = (channels / groups, set % groups);
                SharedPlanes { samples: one(set / groups), channels: group * size..(group + 1) * size }
            }
            Over::Batch => SharedPlanes { samples: 0..batch, channels: one(set) },
        }
    }

    /// Checks that a volume has groups of equal size, and at least two values in each set: one alone has no variance.
    pub(super) fn expect(self, op: &'static str, volume: &Shape) -> Result<(), GraphError> {
        let channels = volume.channels();
        if let Over::Group(groups) = self
            && (groups == 0 || !channels.is_multiple_of(groups))
        {
            let expected = format!("they must divide the {channels} channels");
            return Err(GraphError::Attribute {
                op,
                attribute: "groups",
                found: groups.to_string(),
                expected,
            });
        }
        let (shared, what) = match self {
            Over::Instance => (1, "one voxel"),
            Over::Group(groups) => (channels / groups, "one voxel of one channel"),
            Over::Batch => (volume.batch(), "one voxel of one sample"),
        };
        if volume.voxels() >= 2 || shared >= 2 {
            return Ok(());
        }
        let expected = format!("{what} has no variance: at least two values are needed");
        Err(GraphError::Shape { op, operand: "the operand", found: volume.clone(), expected })
    }
}

/// Mean μ and reciprocal standard deviation 1/√(σ² + ε) of the values that share them, σ² divided by their number, as
/// `InstanceNorm3d`, `GroupNorm` and, in training, `BatchNorm3d` take them.
///
/// Operand: `[N, C, D, H, W]` with at least two values in each set, since one alone has no variance (PyTorch refuses it too).
/// Result: `[N, C, 2]`, f32, the same numbers for all channels and samples of a set. Over a batch there is another, `[C]`: the
/// variance divided by one less than the number of values, which [`RunningUpdate`](super::RunningUpdate) takes. It cannot be had
/// from 1/√(σ² + ε) in f32 where σ² is not large beside ε.
///
/// Its gradient is part of the gradient of [`Normalise`](super::Normalise); it has no separate one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormStats {
    /// The values that share them.
    pub over: Over,
    /// Added to the variance.
    pub epsilon: f32,
}

const NAME: &str = "norm_stats";

impl NormStats {
    /// Statistics of each channel of each sample.
    pub fn instance(epsilon: f32) -> NormStats {
        NormStats { over: Over::Instance, epsilon }
    }
}

impl Rule for NormStats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        self.over.expect(NAME, shape)?;
        let result = Shape(vec![shape.batch(), shape.channels(), 2]);
        let mut results = vec![Signature::new(result, Kind::Statistics)];
        if self.over == Over::Batch {
            results.push(Signature::new(Shape(vec![shape.channels()]), Kind::Channels));
        }
        Ok(results)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let shape = &inputs[0].shape;
        let (batch, channels, voxels) = (shape.batch(), shape.channels(), shape.voxels());
        let mut all: Vec<Array> = results.iter().cloned().map(Array::zeros).collect();
        for set in 0..self.over.sets(batch, channels) {
            let planes: Vec<usize> = self.over.set(set, batch, channels).planes(channels).collect();
            let values = || planes.iter().flat_map(|p| &inputs[0].data[p * voxels..(p + 1) * voxels]);
            let count = (planes.len() * voxels) as f64;
            let mean = values().sum::<f64>() / count;
            let squares = values().map(|y| (y - mean).powi(2)).sum::<f64>();
            for plane in planes {
                all[0].data[2 * plane] = mean;
                all[0].data[2 * plane + 1] = 1.0 / (squares / count + f64::from(self.epsilon)).sqrt();
            }
            if let Some(variances) = all.get_mut(1) {
                variances.data[set] = squares / (count - 1.0);
            }
        }
        all
    }
}
