//! Patches of volumes, as samples of batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_memory::{Budget, Bytes};
use serde::Serialize;

use crate::dataset::{Case, Channel, Dataset};
use crate::loader::samples::{SamplePlace, SampleWorker, Samples, processor_nanos};
use crate::loader::{LoaderError, SampleShape, Targets};
use crate::patch::{CaseMask, CaseSource, PatchError, Scratch, pull};
use crate::{Intensity, IntensityProperties, Sampler, VolumeCache};

/// The pauses before a patch is read again after its files could not be read, because a network or a disk was
/// briefly unavailable.
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];

/// The sources of patches: the sampler that chooses them, the files of the cases, the cache.
pub struct Patches {
    sampler: Sampler,
    channels: usize,
    /// In the order of the fingerprint's cases.
    cases: Vec<(Case, Vec<Intensity>, Option<CaseMask>)>,
    cache: Arc<VolumeCache>,
    targets: Targets,
    /// In nanoseconds.
    on_patches: AtomicU64,
    on_maps: AtomicU64,
    retries: AtomicU64,
}

/// Processor time of filling batches, summed over all threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MakingTimes {
    /// Images and labels: decoding, cropping, augmenting.
    pub patch_seconds: f64,
    /// Target maps.
    pub map_seconds: f64,
}

impl Patches {
    /// Combines a sampler with the files of the data set, whose channels are normalised as it says, by the intensities that its
    /// inspection has found.
    ///
    /// # Errors
    /// If the sampler's inspection is not of this data set, or a channel cannot be normalised.
    pub fn new(dataset: &Dataset, sampler: Sampler, cache: Arc<VolumeCache>) -> Result<Patches, LoaderError> {
        // Without a fingerprint there are no cases that could be normalised.
        let foreground = sampler
            .inspection()
            .fingerprint
            .as_ref()
            .map_or_else(BTreeMap::new, |all| all.foreground_intensity_properties_per_channel.clone());
        Patches::normalised(dataset, sampler, cache, &dataset.channels, &foreground)
    }

    /// The same, with channels normalised in given ways by given intensities of the foreground: the intensities of a run that resumes, or of
    /// a model whose plans are taken.
    ///
    /// # Errors
    /// If the sampler's inspection is not of this data set, or a channel cannot be normalised.
    pub fn normalised(
        dataset: &Dataset,
        sampler: Sampler,
        cache: Arc<VolumeCache>,
        channels: &[Channel],
        foreground: &BTreeMap<usize, IntensityProperties>,
    ) -> Result<Patches, LoaderError> {
        let mut cases = Vec::new();
        let masked = CaseMask::masked(channels);
        let all = sampler.inspection().fingerprint.iter().flat_map(|all| &all.cases);
        for (number, fingerprint) in all.enumerate() {
            let at = dataset.cases.binary_search_by(|case| case.id.cmp(&fingerprint.id));
            let unknown = |_| LoaderError::UnknownCase { case: fingerprint.id.clone() };
            let case = dataset.cases[at.map_err(unknown)?].clone();
            let intensities = fingerprint
                .intensities(channels, foreground)
                .map_err(|problem| LoaderError::Normalisation { case: case.id.clone(), problem })?;
            // Where there is no mask, intensities inside of one are not known either.
            let runs = sampler.inspection().mask(number).filter(|_| masked.contains(&true));
            let mask = runs.map(|runs| CaseMask { runs: Arc::clone(runs), masked: Arc::clone(&masked) });
            cases.push((case, intensities, mask));
        }
        let targets = Targets::default();
        let channels = dataset.channels.len();
        let nothing = AtomicU64::default;
        let (on_patches, on_maps, retries) = (nothing(), nothing(), nothing());
        Ok(Patches { sampler, channels, cases, cache, targets, on_patches, on_maps, retries })
    }

    /// The same, with target maps.
    pub fn with_targets(self, targets: Targets) -> Patches {
        Patches { targets, ..self }
    }

    /// The sampler of the patches.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The cache of decoded volumes.
    pub fn cache(&self) -> &VolumeCache {
        &self.cache
    }

    /// The number of times that a patch was read again because its files were briefly unavailable.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Reads the volumes of cases into the cache, until they are all there or it has no room for the next. Returns how many are there as a
    /// whole.
    ///
    /// # Errors
    /// If a file cannot be read; the error names the case.
    pub fn warm(&self, cases: impl Iterator<Item = usize>, stop: &AtomicBool) -> Result<usize, LoaderError> {
        let mut kept = 0;
        for case in cases {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Some((files, ..)) = self.cases.get(case) else {
                return Err(LoaderError::UnknownCase { case: format!("number {case}") });
            };
            let is_whole = self.cache.fill(files, stop).map_err(|problem| LoaderError::Warm {
                case: files.id.clone(),
                problem: Box::new(problem),
            })?;
            if !is_whole {
                break;
            }
            kept += 1;
        }
        Ok(kept)
    }

    /// Processor time of filling batches so far.
    pub fn times(&self) -> MakingTimes {
        let seconds = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed)).as_secs_f64();
        MakingTimes { patch_seconds: seconds(&self.on_patches), map_seconds: seconds(&self.on_maps) }
    }
}

impl Samples for Patches {
    fn shape(&self) -> SampleShape {
        SampleShape::patch(self.channels, self.sampler.config().grid.patch)
    }

    fn targets(&self) -> &Targets {
        &self.targets
    }

    fn worker(
        self: Arc<Self>,
        scratch: Bytes,
        budget: &Budget,
    ) -> Result<Box<dyn SampleWorker>, LoaderError> {
        let scratch = Scratch::new(budget, scratch)?;
        Ok(Box::new(PatchWorker { patches: self, scratch }))
    }
}

/// Pulls patches on one thread.
struct PatchWorker {
    patches: Arc<Patches>,
    scratch: Scratch,
}

impl SampleWorker for PatchWorker {
    fn make(
        &mut self,
        SamplePlace { mode, seed, step, sample }: SamplePlace,
        image: &mut [f32],
        labels: &mut [u8],
        _: &mut [f32],
    ) -> Result<usize, LoaderError> {
        let patches = &self.patches;
        let recipe = patches.sampler.recipe(mode, seed, step, sample);
        let (files, intensities, mask) = &patches.cases[recipe.case()];
        let start = processor_nanos();
        let mut attempt = || {
            let mut source = CaseSource::open(files, intensities, true, &patches.cache)?;
            if let Some(mask) = mask {
                source = source.inside(mask.clone());
            }
            pull(&recipe, &mut source, image, Some(labels), &mut self.scratch)
        };
        let mut result = attempt();
        for pause in PAUSES {
            match &result {
                Err(PatchError::Volume(problem)) if problem.may_pass() => {
                    patches.retries.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(pause);
                    result = attempt();
                }
                _ => break,
            }
        }
        result.map_err(Box::new).map_err(|problem| LoaderError::Patch {
            step,
            sample,
            case: files.id.clone(),
            problem,
        })?;
        patches.on_patches.fetch_add(processor_nanos() - start, Ordering::Relaxed);
        Ok(recipe.case())
    }

    fn spent_on_maps(&self, nanoseconds: u64) {
        self.patches.on_maps.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}
