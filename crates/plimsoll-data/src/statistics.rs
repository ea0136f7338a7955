//! Statistics of intensities: of one channel of a case, and of a data set's foreground.

use serde::{Deserialize, Serialize};

use crate::percentile;

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

/// Statistics of the foreground voxels of all cases in one channel, in real values.
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

impl IntensityProperties {
    /// The statistics of a sample, which is sorted in place; `None` if it is empty. Percentiles are interpolated
    /// linearly, as NumPy does by default.
    pub fn of(sample: &mut [f32]) -> Option<IntensityProperties> {
        sample.sort_unstable_by(f32::total_cmp);
        let (min, max) = (f64::from(*sample.first()?), f64::from(*sample.last()?));
        let count = sample.len() as f64;
        let mean = sample.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let square = |value: &f32| (f64::from(*value) - mean).powi(2);
        let at = |percent| percentile::of_sorted(sample, percent, |value| f64::from(*value));
        Some(IntensityProperties {
            mean,
            median: at(50.0),
            std: (sample.iter().map(square).sum::<f64>() / count).sqrt(),
            min,
            max,
            percentile_99_5: at(99.5),
            percentile_00_5: at(0.5),
        })
    }
}
