//! The fingerprint of a data set: sizes, spacings and intensities of its images.
//!
//! The rules are nnU-Net's (Isensee et al. 2021; `DatasetFingerprintExtractor` and `ExperimentPlanner` of nnU-Net v2),
//! and so are the names in the file. Sizes and spacings are in the canonical orientation, (depth, height, width) along
//! (superior, anterior, right), so that cases that are stored in different orientations are comparable.

mod blow_up;
mod rules;

use std::collections::BTreeMap;

use plimsoll_memory::{Bytes, Digest};
use plimsoll_volume::{ElementType, Geometry, Spacing, VoxelBox};
use serde::{Deserialize, Serialize};

pub use blow_up::BlowUp;

use crate::dataset::Channel;
use crate::percentile;
use crate::statistics::{ChannelStatistics, IntensityProperties};
use crate::{Intensity, Normalisation};

/// The fingerprint of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseFingerprint {
    /// Its name.
    pub id: String,
    /// The grid as it is stored, which all channels and the label map share.
    pub geometry: Geometry,
    /// The box, in the stored grid, outside of which all channels are zero; the whole grid if all voxels are zero.
    pub nonzero_box: VoxelBox,
    /// The stored voxel type of each channel.
    pub element_types: Vec<ElementType>,
    /// The bytes of all channels, decompressed, in their stored type.
    pub stored_bytes: Bytes,
    /// The bytes of the label map, decompressed, in its stored type; 0 without one.
    pub label_bytes: Bytes,
    /// The additional bytes for decoding all its pictures; 0 for NIfTI, which is read by regions.
    pub decoding_bytes: Bytes,
    /// Statistics by channel.
    pub channels: Vec<ChannelStatistics>,
    /// The number of voxels of the box that are in the mask, if channels are normalised inside it: the voxels
    /// that are not zero in any channel, holes among them, and those with a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_voxels: Option<u64>,
    /// The number of voxels of each label, "ignore" last; empty without a label map.
    pub label_voxels: Vec<u64>,
    /// The digest of the grid, all values of all channels, and all labels, which shows whether the case has
    /// changed.
    pub content: Digest,
}

impl CaseFingerprint {
    /// Frees the spare capacity of its lists.
    pub(crate) fn shrink(&mut self) {
        self.id.shrink_to_fit();
        self.element_types.shrink_to_fit();
        self.channels.shrink_to_fit();
        self.label_voxels.shrink_to_fit();
    }

    /// The bytes of its name and lists on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.id.len()
            + size_of_val(&self.element_types[..])
            + size_of_val(&self.channels[..])
            + size_of_val(&self.label_voxels[..])
    }

    /// The bytes of its files in a cache of decoded volumes: each in whole pages.
    pub fn decoded_bytes(&self) -> Bytes {
        const PAGE: u64 = 4096;
        let files = self.channels.len() as u64 + u64::from(self.label_bytes > Bytes::ZERO);
        self.stored_bytes + self.label_bytes + Bytes(PAGE * files)
    }

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

    /// Returns the normalisation of each channel of this case.
    ///
    /// # Errors
    /// If a channel's method needs statistics of the data set's foreground or of the mask, and there are none.
    pub fn intensities(
        &self,
        channels: &[Channel],
        foreground: &BTreeMap<usize, IntensityProperties>,
    ) -> Result<Vec<Intensity>, NoStatistics> {
        let of = |(index, channel): (usize, &Channel)| {
            let own = match channel.normalisation {
                Normalisation::ZScoreInMask => self.inside_mask(index),
                _ => self.channels.get(index).copied(),
            };
            let intensity = own.and_then(|own| channel.normalisation.intensity(&own, foreground.get(&index)));
            intensity.ok_or(NoStatistics { channel: index, normalisation: channel.normalisation })
        };
        channels.iter().enumerate().map(of).collect()
    }

    /// The statistics of a channel inside of the mask; none where that was not found. They follow from the statistics of the box, since what is
    /// outside is zero; the least is of both.
    fn inside_mask(&self, channel: usize) -> Option<ChannelStatistics> {
        let ChannelStatistics { mean, std, min, max } = *self.channels.get(channel)?;
        let voxels: usize = self.nonzero_box.shape.iter().product();
        let share = voxels as f64 / self.mask_voxels.filter(|inside| *inside > 0)? as f64;
        // share · (mean² + std²) is the mean of squares inside, of which the square of the mean is taken.
        let variance = share * (std * std - (share - 1.0) * mean * mean);
        Some(ChannelStatistics { mean: share * mean, std: variance.max(0.0).sqrt(), min, max })
    }
}

/// A channel cannot be normalised, because statistics that it needs are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel} cannot be normalised by {}: there {}", self.missing().0, self.missing().1)]
pub struct NoStatistics {
    /// The channel, from 0.
    pub channel: usize,
    /// Its normalisation.
    pub normalisation: Normalisation,
}

impl NoStatistics {
    /// The name of the missing statistics, and the reason why they are missing.
    fn missing(&self) -> (&'static str, &'static str) {
        match self.normalisation {
            Normalisation::ZScoreInMask => (
                "the voxels in the mask of non-zero voxels (`use_mask_for_norm`)",
                "are none, because its images are not mostly zero around the object, or are zero everywhere",
            ),
            Normalisation::Ct => ("the foreground's intensities (CTNormalization)", "are none"),
            _ => ("its own intensities", "are none"),
        }
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        let text = match self.normalisation {
            Normalisation::ZScoreInMask => {
                "start from a model that was trained on images like these, or without one"
            }
            _ => {
                "no label map has any foreground: check them; or name the channel so that each image is normalised by \
                 itself (`zscore`)"
            }
        };
        Some(text.into())
    }
}

/// The fingerprint of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The spacing of each case.
    pub spacings: Vec<Spacing>,
    /// The shape of the box of non-zero voxels of each case.
    pub shapes_after_crop: Vec<[usize; 3]>,
    /// Intensities of the foreground by channel; none if there is no foreground at all.
    pub foreground_intensity_properties_per_channel: BTreeMap<usize, IntensityProperties>,
    /// The median share of voxels that cropping to non-zero voxels keeps.
    pub median_relative_size_after_cropping: f64,
    /// The spacing of patches.
    pub target_spacing: Spacing,
    /// The median shape of the cropped images at the target spacing.
    pub median_shape: [f64; 3],
    /// The cases, sorted by id, in the order of the lists above.
    pub cases: Vec<CaseFingerprint>,
}

impl Fingerprint {
    /// The fingerprint of these cases, which are sorted by id; `None` if there are none.
    pub fn new(
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
            median_relative_size_after_cropping: rules::median_relative_size(
                cases.iter().map(|case| (case.nonzero_box.shape, case.geometry.shape())),
            ),
            median_shape: rules::median_shape(&spacings, &shapes, target_spacing),
            target_spacing,
            spacings,
            shapes_after_crop: shapes,
            foreground_intensity_properties_per_channel: foreground,
            cases,
        })
    }

    /// The median spacing, axis by axis.
    pub fn median_spacing(&self) -> Spacing {
        Spacing(
            [0, 1, 2].map(|axis| {
                percentile::from_values(self.spacings.iter().map(|spacing| spacing.0[axis]), 50.0)
            }),
        )
    }

    /// The median shape of the cropped images at a spacing, axis by axis.
    pub fn median_shape_at(&self, spacing: Spacing) -> [f64; 3] {
        rules::median_shape(&self.spacings, &self.shapes_after_crop, spacing)
    }

    /// The median shape of the cropped images as they are stored, axis by axis.
    pub fn median_shape_after_crop(&self) -> [f64; 3] {
        let along = |axis: usize| self.shapes_after_crop.iter().map(move |shape| shape[axis] as f64);
        [0, 1, 2].map(|axis| percentile::from_values(along(axis), 50.0))
    }

    /// The case of this name.
    pub fn case(&self, id: &str) -> Option<&CaseFingerprint> {
        self.cases.binary_search_by(|case| case.id.as_str().cmp(id)).ok().map(|at| &self.cases[at])
    }
}
