//! Sampling patches: case, position, augmentation.

use std::sync::Arc;

use plimsoll_volume::{Spacing, VoxelBox};
use serde::{Deserialize, Serialize};

use plimsoll_random::{Draws, Purpose};

use crate::inspect::Inspection;
use crate::patch::{
    Augmentation, AugmentationError, IntensityChange, PatchGrid, Recipe, SpatialChange, Stream, TargetGrid,
};
use crate::splits::Fold;

/// The use of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Training: from the fold's training cases, augmented, different in every step.
    Training,
    /// Validation: from the fold's validation cases, not augmented, the same in every validation.
    Validation,
}

impl Mode {
    /// Part of the key of random streams; must not change.
    fn group(self) -> u32 {
        match self {
            Mode::Training => 0,
            Mode::Validation => 1,
        }
    }
}

/// The settings of the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerConfig {
    /// Their shape and spacing.
    pub grid: PatchGrid,
    /// The augmentation of training patches.
    #[serde(default)]
    pub augmentation: Augmentation,
    /// Samples of a batch.
    pub batch_size: usize,
    /// The share of patches that are centred on the foreground.
    #[serde(default = "default_share")]
    pub oversample_foreground: f64,
    /// The choice of the patches on the foreground.
    #[serde(default)]
    pub oversampling: Oversampling,
}

/// The choice of the patches that are centred on the foreground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversampling {
    /// The last samples of each batch: all but the first B · (1 − share), rounded to the nearest integer, of B, as nnU-Net's
    /// trainer does it. Of two samples it is one. A batch of one, which nnU-Net never has, would have none: its sample is drawn
    /// with the probability of the share.
    #[default]
    Last,
    /// Each with the probability of the share.
    Random,
}

impl Oversampling {
    /// The number of samples at the beginning of a batch of `batch_size` that are not centred on the foreground
    /// with [`Oversampling::Last`].
    fn first(batch_size: usize, share: f64) -> u64 {
        // Ties to even, as Python rounds.
        (batch_size as f64 * (1.0 - share)).round_ties_even() as u64
    }
}

/// nnU-Net's `oversample_foreground_percent`.
fn default_share() -> f64 {
    0.33
}

impl SamplerConfig {
    /// nnU-Net's augmentation, and its share of patches on the foreground.
    pub fn new(grid: PatchGrid, batch_size: usize) -> SamplerConfig {
        SamplerConfig {
            grid,
            augmentation: Augmentation::default(),
            batch_size,
            oversample_foreground: default_share(),
            oversampling: Oversampling::Last,
        }
    }
}

/// Why patches cannot be sampled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// A case of the fold was not inspected, or has errors.
    #[error("case {case} of the fold is not among the valid cases")]
    UnknownCase {
        /// The case.
        case: String,
    },
    /// There is nothing to train on or to validate with.
    #[error("the fold has no {list} cases")]
    Empty {
        /// `train` or `val`.
        list: &'static str,
    },
    /// The patch is empty or too large to address.
    #[error("a patch cannot have the shape {patch:?}")]
    Patch {
        /// Its shape.
        patch: [usize; 3],
    },
    /// The spacing is not positive and finite.
    #[error("a spacing is {found} mm, but must be positive and finite")]
    Spacing {
        /// The first invalid spacing.
        found: f64,
    },
    /// A share is not from 0 to 1.
    #[error("`oversample_foreground` is {found}, but must be a share from 0 to 1")]
    Oversampling {
        /// The value.
        found: f64,
    },
    /// A setting of the augmentation is out of range.
    #[error("{0}")]
    Augmentation(#[from] AugmentationError),
}

impl SamplerError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            SamplerError::UnknownCase { .. } => Some(
                "run ‹job inspect› to see the case's problems; repair it, or remove it from the fold".into(),
            ),
            SamplerError::Empty { .. } => Some("use fold `all` to train on all cases".into()),
            SamplerError::Augmentation(problem) => problem.remedy(),
            _ => None,
        }
    }
}

/// The data of a case for placing patches.
struct CasePatches {
    target: TargetGrid,
    /// The first and the last start of a patch along each axis.
    starts: [(i64, i64); 3],
    /// Voxels of each label of the case.
    label_voxels: Vec<u64>,
}

/// Samples patches. The choice is a function of seed, step and sample alone, so a resumed run needs no state.
pub struct Sampler {
    config: SamplerConfig,
    inspection: Arc<Inspection>,
    channels: usize,
    places: Vec<CasePatches>,
    training: Vec<usize>,
    validation: Vec<usize>,
    /// The classes of each region that patches are centred on; empty where they are centred on classes.
    regions: Vec<Vec<u8>>,
}

impl Sampler {
    /// A sampler of the cases of a fold.
    ///
    /// # Errors
    /// If the fold is empty or names a case that is not valid, or a setting is out of range.
    pub fn new(
        inspection: Arc<Inspection>,
        fold: &Fold,
        config: SamplerConfig,
    ) -> Result<Sampler, SamplerError> {
        config.augmentation.check()?;
        let PatchGrid { patch, spacing } = config.grid;
        if config.grid.voxels().is_none_or(|voxels| voxels == 0 || voxels > isize::MAX as usize / 8) {
            return Err(SamplerError::Patch { patch });
        }
        if let Some(found) =
            spacing.lengths().iter().copied().find(|length| !(length.is_normal() && *length > 0.0))
        {
            return Err(SamplerError::Spacing { found });
        }
        if !(0.0..=1.0).contains(&config.oversample_foreground) {
            return Err(SamplerError::Oversampling { found: config.oversample_foreground });
        }
        let cases = inspection.fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint.cases);
        let number = |id: &String| {
            let found = cases.binary_search_by(|case| case.id.cmp(id));
            found.map_err(|_| SamplerError::UnknownCase { case: id.clone() })
        };
        let numbers = |list: &'static str, ids: &[String]| {
            if ids.is_empty() {
                return Err(SamplerError::Empty { list });
            }
            ids.iter().map(number).collect::<Result<Vec<usize>, _>>()
        };
        let (training, validation) = (numbers("train", &fold.train)?, numbers("val", &fold.val)?);
        let places = cases
            .iter()
            .map(|case| {
                let target = TargetGrid::new(&case.geometry, spacing);
                let room = target.covering(&case.nonzero_box);
                CasePatches { target, starts: starts(&room, patch), label_voxels: case.label_voxels.clone() }
            })
            .collect();
        let channels = cases.first().map_or(0, |case| case.channels.len());
        Ok(Sampler { config, places, channels, training, validation, inspection, regions: Vec::new() })
    }

    /// The same with patches on the foreground centred on voxels of regions, as nnU-Net has it where it trains on regions: a region
    /// of the case is drawn uniformly, and then one of its voxels.
    #[must_use]
    pub fn on_regions(self, regions: Vec<Vec<u8>>) -> Sampler {
        Sampler { regions, ..self }
    }

    /// The class that a patch of a case is centred on; none where the case has no foreground.
    fn class(&self, case: usize, draws: &mut Draws) -> Option<u8> {
        let index = &self.inspection.foreground[case];
        let present: Vec<u8> = index.present().collect();
        if self.regions.is_empty() {
            return (!present.is_empty()).then(|| present[draws.below(present.len())]);
        }
        // Classes of a region that the case has, with their voxels.
        let voxels = &self.places[case].label_voxels;
        let counted = |class: &u8| Some((*class, usize::try_from(*voxels.get(usize::from(*class))?).ok()?));
        let of_case = |region: &Vec<u8>| {
            let known = region.iter().filter(|class| present.contains(class)).filter_map(counted);
            known.filter(|(_, voxels)| *voxels > 0).collect()
        };
        let regions = self.regions.iter().map(of_case);
        let regions: Vec<Vec<(u8, usize)>> = regions.filter(|classes: &Vec<_>| !classes.is_empty()).collect();
        let region = (!regions.is_empty()).then(|| &regions[draws.below(regions.len())])?;
        // Each class of the region as often as it has voxels, so that each voxel of the region is as likely.
        let mut drawn = draws.below(region.iter().map(|(_, voxels)| voxels).sum());
        let hit = |(_, voxels): &&(u8, usize)| {
            let is_hit = drawn < *voxels;
            drawn = drawn.saturating_sub(*voxels);
            is_hit
        };
        region.iter().find(hit).map(|(class, _)| *class)
    }

    /// The settings of the sampler.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// The inspection of the data set.
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// The grid of a case, by its index in the fingerprint's list.
    pub fn target(&self, case: usize) -> Option<&TargetGrid> {
        self.places.get(case).map(|place| &place.target)
    }

    /// The recipe of sample `sample` of step `step`.
    ///
    /// The case is drawn uniformly. As [`Oversampling`] says, the patch is centred on a foreground voxel, whose class is
    /// drawn uniformly from the classes of the case ([`on_regions`](Self::on_regions): of a region); otherwise, or without foreground, its position is uniform within the box of
    /// non-zero voxels along axes where it fits, and it is centred along the others. If the data set has an "ignore" label,
    /// patches that are not on the foreground are centred on an annotated voxel. As in nnU-Net, a patch that is centred on a
    /// voxel does not begin before that box, but may end behind it.
    pub fn recipe(&self, mode: Mode, seed: u64, step: u64, sample: u64) -> Recipe {
        let stream = Stream { seed, group: mode.group(), step, sample };
        let draws = |purpose| Draws::new(seed, purpose, stream.group, step, sample);
        let cases = match mode {
            Mode::Training => &self.training,
            Mode::Validation => &self.validation,
        };
        let mut place = draws(Purpose::Place);
        let case = cases[place.below(cases.len())];
        // Validated samples are numbered through, whatever the size of their batches.
        let in_batch = match mode {
            Mode::Training => sample,
            Mode::Validation => step % self.config.batch_size.max(1) as u64,
        };
        let start = self.start(case, in_batch, &mut place);
        let augmentation = &self.config.augmentation;
        let grid = &self.config.grid;
        let (space, deformation, change) = match mode {
            Mode::Training => (
                augmentation.draw_space(grid, &mut draws(Purpose::Space)),
                augmentation.draw_deformation(grid, &mut draws(Purpose::Deformation)),
                augmentation.draw_intensity(grid, self.channels, &mut draws(Purpose::Intensity)),
            ),
            Mode::Validation => (SpatialChange::NONE, None, IntensityChange::default()),
        };
        let PatchGrid { patch, spacing } = self.config.grid;
        let rigid_on = Spacing(spacing.within_patch());
        let recipe = Recipe::new(case, &self.places[case].target, start, patch, rigid_on, &space);
        Recipe { change, stream, deformation, interpolation: augmentation.interpolation, ..recipe }
    }

    fn start(&self, case: usize, in_batch: u64, draws: &mut Draws) -> [i64; 3] {
        let CasePatches { target, starts, .. } = &self.places[case];
        let index = &self.inspection.foreground[case];
        let share = self.config.oversample_foreground;
        let on_foreground = match self.config.oversampling {
            Oversampling::Last if self.config.batch_size > 1 => {
                in_batch >= Oversampling::first(self.config.batch_size, share)
            }
            Oversampling::Last | Oversampling::Random => draws.chance(share),
        };
        let positions = if on_foreground {
            self.class(case, draws).map(|class| index.positions(class))
        } else {
            Some(index.annotated())
        };
        let drawn = positions
            .filter(|positions| !positions.is_empty())
            .and_then(|positions| positions.voxel(draws.below(positions.len()), target.stored_shape()));
        match drawn {
            Some(voxel) => {
                let centre = target.index_of(voxel);
                std::array::from_fn(|axis| {
                    let before = (self.config.grid.patch[axis] / 2) as i64;
                    (centre[axis].round() as i64 - before).max(starts[axis].0)
                })
            }
            None => starts.map(|(first, last)| first + draws.below((last - first + 1) as usize) as i64),
        }
    }
}

/// The range of starts along each axis that keep a patch within `room`, or centre it where it does not fit.
fn starts(room: &VoxelBox, patch: [usize; 3]) -> [(i64, i64); 3] {
    std::array::from_fn(|axis| {
        let (first, size, patch) = (room.start[axis] as i64, room.shape[axis] as i64, patch[axis] as i64);
        if patch <= size {
            (first, first + size - patch)
        } else {
            let centred = first - (patch - size) / 2;
            (centred, centred)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_samples_of_a_batch_are_on_the_foreground_as_in_nnu_net() {
        // `not sample_idx < round(batch_size * (1 - 0.33))`, nnU-Net 2.8.1.
        for (batch, on) in [(2, 1), (3, 1), (4, 1), (5, 2), (12, 4), (49, 16)] {
            assert_eq!(batch as u64 - Oversampling::first(batch, default_share()), on, "{batch}");
        }
        assert_eq!([Oversampling::first(2, 0.0), Oversampling::first(2, 1.0)], [2, 0]);
    }

    #[test]
    fn a_patch_stays_inside_where_it_fits_and_is_centred_elsewhere() {
        let room = VoxelBox { start: [2, 0, 5], shape: [10, 8, 4] };
        assert_eq!(starts(&room, [4, 8, 7]), [(2, 8), (0, 0), (4, 4)]);
    }
}
