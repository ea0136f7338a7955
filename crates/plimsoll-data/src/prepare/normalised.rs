//! Images of a case that were not trained on, normalised as those that were.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_volume::VoxelBox;

use crate::dataset::{Case, Channel};
use crate::mask::{Mask, MaskRuns};
use crate::patch::CaseMask;
use crate::prepare::{PrepareError, Survey};
use crate::{CaseFingerprint, CaseSource, Intensity, IntensityProperties, Normalisation, VolumeCache};

/// A case, and how its channels are normalised.
pub struct Normalising<'a> {
    /// The images.
    pub case: &'a Case,
    /// The fingerprint from an inspection of the images.
    pub fingerprint: &'a CaseFingerprint,
    /// The channels of the images that the model was trained on.
    pub channels: &'a [Channel],
    /// Intensities of the foreground of the data set that the model was trained on, by channel.
    pub foreground: &'a BTreeMap<usize, IntensityProperties>,
}

impl Normalising<'_> {
    /// Bytes that [`open`](Self::open) reserves beside the cache, and what it opened holds, for images that are zero outside of a
    /// box: nothing where no channel is normalised inside of the mask.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn bytes(channels: &[Channel], nonzero: VoxelBox) -> Result<Bytes, PrepareError> {
        if !channels.iter().any(|channel| channel.normalisation == Normalisation::ZScoreInMask) {
            return Ok(Bytes::ZERO);
        }
        let mask = Mask::bytes(nonzero)?;
        // Holes are filled with a second bit for each voxel, before runs are made.
        Ok(mask + mask.max(MaskRuns::most(nonzero)?) + Survey::bytes(nonzero)?)
    }

    /// Opens the images without their label map. Where a channel is normalised inside of the mask, all of them are read once, to find it.
    ///
    /// # Errors
    /// If a file cannot be read, a channel cannot be normalised, the budget has no room, or `stop` is set.
    pub fn open(
        &self,
        cache: &VolumeCache,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<CaseSource, PrepareError> {
        let masked = CaseMask::masked(self.channels);
        if !masked.contains(&true) {
            let intensities = self.fingerprint.intensities(self.channels, self.foreground)?;
            return Ok(CaseSource::open_unless(self.case, &intensities, false, cache, stop)?);
        }
        let unchanged = vec![Intensity::UNCHANGED; self.channels.len()];
        let mut source = CaseSource::open_unless(self.case, &unchanged, false, cache, stop)?;
        let covered = self.fingerprint.nonzero_box;
        let mask = Survey::new(covered, None, budget)?.mask(&mut source, budget, stop)?;
        let fingerprint = CaseFingerprint { mask_voxels: Some(mask.voxels()), ..self.fingerprint.clone() };
        let intensities = fingerprint.intensities(self.channels, self.foreground)?;
        let room = budget.reserve("masks", MaskRuns::most(covered)?).map_err(MapError::from)?;
        let runs = Arc::new(MaskRuns::encode(&mask, room)?);
        Ok(source.normalised(&intensities).inside(CaseMask { runs, masked }))
    }
}
