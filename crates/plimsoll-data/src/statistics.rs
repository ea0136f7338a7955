//! Statistics of intensities: of one channel of a case, and of a data set's foreground.

use serde::{Deserialize, Serialize};

/// Statistics of one channel of one case over the box that its non-zero voxels fill, in real values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatistics {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (of the population, as NumPy's default is).
    pub std: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// Statistics of the foreground voxels of all cases in one channel, in real values. Cases weigh alike, however many such voxels they
/// have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntensityProperties {
    /// Their mean.
    pub mean: f64,
    /// The 50th percentile.
    pub median: f64,
    /// Their standard deviation (of the population).
    pub std: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The 99.5th percentile.
    pub percentile_99_5: f64,
    /// The 0.5th percentile.
    pub percentile_00_5: f64,
}
