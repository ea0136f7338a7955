//! What is known of a data set's images once all were read: sizes, spacings, intensities.
//!
//! The rules are nnU-Net's (Isensee et al. 2021; `DatasetFingerprintExtractor` and `ExperimentPlanner` of nnU-Net v2),
//! and so are the names in the file. Sizes and spacings are in the canonical orientation, (depth, height, width) along
//! (superior, anterior, right), so that cases which were stored differently can be compared.

mod percentile;
mod rules;

use std::collections::BTreeMap;

use plimsoll_memory::Bytes;
use plimsoll_volume::{ElementType, Geometry, Spacing, VoxelBox};
use serde::{Deserialize, Serialize};

pub use rules::{BlowUp, resampled_shape};

use crate::dataset::Channel;
use crate::{Intensity, Normalisation};

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
    /// The statistics of a sample, which is sorted in place; `None` of an empty one. Percentiles are interpolated
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

/// What is known of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseFingerprint {
    /// Its name.
    pub id: String,
    /// The grid as it is stored, which all channels and the label map share.
    pub geometry: Geometry,
    /// The box, in the stored grid, outside of which all channels are zero; the whole grid if all is zero.
    pub nonzero_box: VoxelBox,
    /// How voxels are stored, by channel.
    pub element_types: Vec<ElementType>,
    /// The bytes of all channels, decompressed, in their stored type.
    pub stored_bytes: Bytes,
    /// Statistics by channel.
    pub channels: Vec<ChannelStatistics>,
    /// How many voxels have each label, the one to be ignored last; empty without a label map.
    pub label_voxels: Vec<u64>,
}

impl CaseFingerprint {
    /// Millimetres between voxels in the canonical orientation.
    pub fn spacing(&self) -> Spacing {
        self.geometry.canonical().0.spacing()
    }

    /// The number of voxels along each axis in the canonical orientation.
    pub fn shape(&self) -> [usize; 3] {
        self.geometry.canonical().0.shape()
    }

    /// The shape of the box of non-zero voxels in the canonical orientation.
    pub fn shape_after_crop(&self) -> [usize; 3] {
        self.geometry.canonical().1.shape(self.nonzero_box.shape)
    }

    /// How the channels of this case are normalised.
    ///
    /// # Errors
    /// If a channel's method needs statistics of the data set's foreground, and there are none.
    pub fn intensities(
        &self,
        channels: &[Channel],
        foreground: &BTreeMap<usize, IntensityProperties>,
    ) -> Result<Vec<Intensity>, NoForeground> {
        let of = |(index, channel): (usize, &Channel)| {
            let own = self.channels.get(index);
            let intensity = own.and_then(|own| channel.normalisation.intensity(own, foreground.get(&index)));
            intensity.ok_or(NoForeground { channel: index, normalisation: channel.normalisation })
        };
        channels.iter().enumerate().map(of).collect()
    }
}

/// A channel cannot be normalised, because nothing is known of the intensities of the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "channel {channel} is to be normalised by the foreground's intensities ({normalisation:?}), but there are none"
)]
pub struct NoForeground {
    /// The channel, from 0.
    pub channel: usize,
    /// How it is to be normalised.
    pub normalisation: Normalisation,
}

impl NoForeground {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        Some(
            "no label map has any foreground: check them; or name the channel so that each image is normalised by \
             itself (`zscore`)"
                .into(),
        )
    }
}

/// What is known of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The spacing of each case.
    pub spacings: Vec<Spacing>,
    /// The shape of the box of non-zero voxels of each case.
    pub shapes_after_crop: Vec<[usize; 3]>,
    /// Intensities of the foreground by channel; none if there is no foreground at all.
    pub foreground_intensity_properties_per_channel: BTreeMap<usize, IntensityProperties>,
    /// The median of the share of voxels that is left after cropping to non-zero voxels.
    pub median_relative_size_after_cropping: f64,
    /// The spacing that images are brought to.
    pub target_spacing: Spacing,
    /// The median shape of the cropped images at the target spacing.
    pub median_shape: [f64; 3],
    /// The cases, sorted by id, in the order of the lists above.
    pub cases: Vec<CaseFingerprint>,
}

impl Fingerprint {
    /// The fingerprint of these cases, which are sorted by id; `None` if there are none.
    pub fn of(
        cases: Vec<CaseFingerprint>,
        foreground: BTreeMap<usize, IntensityProperties>,
    ) -> Option<Fingerprint> {
        if cases.is_empty() {
            return None;
        }
        let spacings: Vec<Spacing> = cases.iter().map(CaseFingerprint::spacing).collect();
        let shapes: Vec<[usize; 3]> = cases.iter().map(CaseFingerprint::shape_after_crop).collect();
        let target_spacing = rules::target_spacing(&spacings, &shapes);
        Some(Fingerprint {
            median_relative_size_after_cropping: rules::median_relative_size(&cases),
            median_shape: rules::median_shape(&spacings, &shapes, target_spacing),
            target_spacing,
            spacings,
            shapes_after_crop: shapes,
            foreground_intensity_properties_per_channel: foreground,
            cases,
        })
    }

    /// The case of this name.
    pub fn case(&self, id: &str) -> Option<&CaseFingerprint> {
        self.cases.binary_search_by(|case| case.id.as_str().cmp(id)).ok().map(|at| &self.cases[at])
    }
}
