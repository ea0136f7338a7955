//! The source of a run's samples.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll_data::pictures::{ImageDataset, PreparedCache};
use plimsoll_data::{
    CacheStatistics, Fold, ImageSamples, Inspection, MakingTimes, Mode, Patches, Sampler, Samples,
    VolumeCache,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::{CacheFolder, Specification};

use super::bad_numbers::BadStep;
use crate::{PlannedRun, RunData, TrainError};

/// Samples that are named at most.
const NAMED: usize = 8;

/// The samples of a run.
pub(super) enum Source {
    /// Patches of volumes.
    Volumes { patches: Arc<Patches>, inspection: Arc<Inspection> },
    /// Images.
    Images { samples: Arc<ImageSamples>, dataset: Arc<ImageDataset> },
}

impl Source {
    /// Opens the cases of a fold. The cache is reserved from `budget`.
    pub(super) fn open(
        data: RunData,
        planned: &PlannedRun,
        specification: &Specification,
        cache_folder: Option<&CacheFolder>,
        budget: &Budget,
    ) -> Result<Source, TrainError> {
        let config = &specification.config;
        let cache = || budget.part("cache", planned.numbers.cache_bytes);
        match data {
            RunData::Volumes { dataset, inspection } => {
                let task = config.task.segmentation()?;
                let sampler = task.sampler(config.training.patch, config.training.batch);
                let sampler = Sampler::new(Arc::clone(&inspection), &specification.cases, sampler)?
                    .on_regions(task.dataset.labels.scored_regions());
                // The channels of the run, not of the data set as it is now: an added case would change the normalisation of all.
                let known = &task.dataset;
                let foreground = &known.foreground_intensity_properties_per_channel;
                let decoding = budget.part("decoding", planned.numbers.decoding_bytes)?;
                let cache = VolumeCache::new(cache()?).decoding_within(decoding);
                let cache = Arc::new(match cache_folder {
                    Some(folder) => cache.indexed_in(folder.points()),
                    None => cache,
                });
                let patches = Patches::normalised(&dataset, sampler, cache, &known.channels, foreground)?;
                let patches = Arc::new(patches.with_targets(planned.target_maps()));
                Ok(Source::Volumes { patches, inspection })
            }
            RunData::Images { dataset, inspection, .. } => {
                let task = config.task.classification()?;
                let fold = task.image_fold(&dataset, &specification.cases, config.training.batch)?;
                let pipeline = task.pipeline(inspection.largest)?;
                let cache = PreparedCache::new(cache()?, dataset.cases.len(), budget)?;
                let augmentation = task.augmentation.clone();
                let samples =
                    ImageSamples::new(Arc::clone(&dataset), fold, pipeline, augmentation, cache, budget)?;
                Ok(Source::Images { samples: Arc::new(samples), dataset })
            }
        }
    }

    pub(super) fn samples(&self) -> Arc<dyn Samples> {
        match self {
            Source::Volumes { patches, .. } => patches.clone(),
            Source::Images { samples, .. } => samples.clone(),
        }
    }

    /// Reads the cases of the fold into the cache, training cases first, as many as it has room for. Returns a line about it; images are
    /// cached when they are first used.
    pub(super) fn warm(&self, specification: &Specification) -> Result<String, TrainError> {
        let Source::Volumes { patches, inspection } = self else {
            return Ok("cache: images are kept when they are first used".into());
        };
        let start = Instant::now();
        let places: HashMap<&str, usize> = inspection
            .fingerprint
            .iter()
            .flat_map(|all| &all.cases)
            .enumerate()
            .map(|(at, case)| (&case.id[..], at))
            .collect();
        let Fold { train, val } = &specification.cases;
        let mut names: Vec<&str> = train.iter().map(String::as_str).collect();
        names.extend(val.iter().filter(|name| !train.contains(name)).map(String::as_str));
        let cases = names.iter().filter_map(|name| places.get(name).copied());
        let kept = patches.warm(cases, &AtomicBool::new(false))?;
        let statistics = patches.cache().statistics();
        Ok(format!(
            "cache: {kept} of {} cases, {} of {}, read in {:.1} s",
            names.len(),
            statistics.now,
            statistics.limit,
            start.elapsed().as_secs_f64()
        ))
    }

    /// The labels of a case of a batch; none of volumes.
    pub(super) fn labels(&self, case: usize) -> &[u32] {
        match self {
            Source::Volumes { .. } => &[],
            Source::Images { dataset, .. } => &dataset.cases[case].labels,
        }
    }

    /// The statistics of the cache.
    pub(super) fn cache(&self) -> CacheStatistics {
        match self {
            Source::Volumes { patches, .. } => patches.cache().statistics(),
            Source::Images { samples, .. } => {
                let found = samples.cache();
                // Nothing of it is ever evicted.
                CacheStatistics {
                    hits: found.hits,
                    misses: found.misses,
                    bypasses: 0,
                    evictions: 0,
                    now: found.now,
                    peak: found.now,
                    limit: found.limit,
                }
            }
        }
    }

    /// Sets the limit of the cache. Cached images stay.
    pub(super) fn limit_cache(&self, bytes: Bytes) {
        match self {
            Source::Volumes { patches, .. } => {
                patches.cache().shrink_to(bytes);
            }
            Source::Images { samples, .. } => samples.limit_cache(bytes),
        }
    }

    /// Processor time of making samples so far.
    pub(super) fn times(&self) -> MakingTimes {
        match self {
            Source::Volumes { patches, .. } => patches.times(),
            Source::Images { samples, .. } => samples.times(),
        }
    }

    /// The samples of a step, for people: images, or cases and the voxels that patches are centred on.
    pub(super) fn name(&self, bad: &BadStep, seed: u64) -> String {
        let more = if bad.cases.len() > NAMED { ", …" } else { "" };
        let named = bad.cases.iter().enumerate().take(NAMED);
        let named: Vec<String> = match self {
            Source::Volumes { patches, inspection } => {
                let cases = inspection.fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint.cases);
                let name = |(sample, case): (usize, &usize)| {
                    let recipe = patches.sampler().recipe(Mode::Training, seed, bad.step, sample as u64);
                    let centre = recipe.patch().map(|extent| (extent as f64 - 1.0) / 2.0);
                    let [d, h, w] = recipe.map().apply(centre).map(|at| at.round() as i64);
                    let id = cases.get(*case).map_or("?", |case| case.id.as_str());
                    format!("{id} around voxel {d},{h},{w}")
                };
                named.map(name).collect()
            }
            Source::Images { dataset, .. } => named
                .map(|(_, case)| dataset.cases.get(*case).map_or("?".into(), |case| case.name.clone()))
                .collect(),
        };
        named.join(", ") + more
    }
}
