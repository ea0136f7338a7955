//! Filling the batch of one step, the work of a loader's threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_memory::{Budget, Bytes};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::dataset::{Case, Channel, Dataset};
use crate::loader::slot::{BatchBuffer, BatchShape};
use crate::loader::target::TargetScratch;
use crate::loader::{LoaderError, Targets};
use crate::patch::{CaseSource, PatchError, Scratch, pull};
use crate::{Intensity, IntensityProperties, Mode, Sampler, VolumeCache};

/// The sources of patches: the sampler that chooses them, the files of the cases, the cache.
pub struct Patches {
    sampler: Sampler,
    channels: usize,
    /// In the order of the fingerprint's cases.
    cases: Vec<(Case, Vec<Intensity>)>,
    cache: Arc<VolumeCache>,
    targets: Targets,
    /// In nanoseconds.
    on_patches: AtomicU64,
    on_maps: AtomicU64,
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
        let foreground = sampler.inspection().fingerprint.as_ref();
        let foreground =
            foreground.map(|all| all.foreground_intensity_properties_per_channel.clone()).unwrap_or_default();
        Patches::normalised(dataset, sampler, cache, (&dataset.channels, &foreground))
    }

    /// The same, with channels normalised in given ways by given intensities of the foreground: those of a run that goes on, or of
    /// a model whose plans are taken.
    ///
    /// # Errors
    /// If the sampler's inspection is not of this data set, or a channel cannot be normalised.
    pub fn normalised(
        dataset: &Dataset,
        sampler: Sampler,
        cache: Arc<VolumeCache>,
        (channels, foreground): (&[Channel], &BTreeMap<usize, IntensityProperties>),
    ) -> Result<Patches, LoaderError> {
        let mut cases = Vec::new();
        for fingerprint in sampler.inspection().fingerprint.iter().flat_map(|all| &all.cases) {
            let at = dataset.cases.binary_search_by(|case| case.id.cmp(&fingerprint.id));
            let unknown = |_| LoaderError::UnknownCase { case: fingerprint.id.clone() };
            let case = dataset.cases[at.map_err(unknown)?].clone();
            let intensities = fingerprint
                .intensities(channels, foreground)
                .map_err(|problem| LoaderError::Normalisation { case: case.id.clone(), problem })?;
            cases.push((case, intensities));
        }
        let targets = Targets::default();
        let channels = dataset.channels.len();
        let nothing = AtomicU64::default;
        Ok(Patches { sampler, channels, cases, cache, targets, on_patches: nothing(), on_maps: nothing() })
    }

    /// The same, with target maps.
    pub fn with_targets(self, targets: Targets) -> Patches {
        Patches { targets, ..self }
    }

    /// The target maps of the batches.
    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The sampler of the patches.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The cache of decoded volumes.
    pub fn cache(&self) -> &VolumeCache {
        &self.cache
    }

    /// Processor time of filling batches so far.
    pub fn times(&self) -> MakingTimes {
        let seconds = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed)).as_secs_f64();
        MakingTimes { patch_seconds: seconds(&self.on_patches), map_seconds: seconds(&self.on_maps) }
    }

    /// The shape of a batch of this many patches.
    pub fn batch_shape(&self, batch_size: usize) -> BatchShape {
        BatchShape { batch_size, channels: self.channels, patch: self.sampler.config().grid.patch }
    }

    /// Fills the batch of a step. Returns early, between two patches, once `stop` is set.
    pub(crate) fn fill(
        &self,
        mode: Mode,
        seed: u64,
        step: u64,
        batch: &mut BatchBuffer,
        (scratch, target_scratch): (&mut Scratch, &mut TargetScratch),
        stop: &AtomicBool,
    ) -> Result<(), LoaderError> {
        let patch = batch.shape().patch;
        let voxels = batch.shape().voxels();
        let samples = batch.shape().batch_size as u64;
        let images = batch.images.chunks_exact_mut((voxels * self.channels).max(1));
        let labels = batch.labels.chunks_exact_mut(voxels.max(1));
        for ((sample, case), (image, labels)) in (0..).zip(&mut batch.cases).zip(images.zip(labels)) {
            if stop.load(Ordering::Relaxed) {
                return Err(LoaderError::Stopped { step });
            }
            let recipe = match mode {
                Mode::Training => self.sampler.recipe(mode, seed, step, sample),
                // Validated patches are numbered through, so that they are the same in batches of any size.
                Mode::Validation => self.sampler.recipe(mode, seed, step * samples + sample, 0),
            };
            *case = recipe.case();
            let (files, intensities) = &self.cases[recipe.case()];
            let start = processor_nanos();
            CaseSource::open(files, intensities, true, &self.cache)
                .map_err(PatchError::from)
                .and_then(|mut source| pull(&recipe, &mut source, image, Some(labels), scratch))
                .map_err(Box::new)
                .map_err(|problem| LoaderError::Patch { step, case: files.id.clone(), problem })?;
            let pulled = processor_nanos();
            let place = (mode, step, sample as usize);
            self.targets.fill(place, (labels, patch), &mut batch.targets, target_scratch)?;
            self.on_patches.fetch_add(pulled - start, Ordering::Relaxed);
            self.on_maps.fetch_add(processor_nanos() - pulled, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The processor time of this thread in nanoseconds.
fn processor_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Loads single batches on demand, on the calling thread.
pub struct BatchReader {
    patches: Arc<Patches>,
    mode: Mode,
    seed: u64,
    batch: BatchBuffer,
    scratch: Scratch,
    target_scratch: TargetScratch,
    never: AtomicBool,
}

impl BatchReader {
    /// The bytes that a reader of batches of this shape with these targets reserves.
    ///
    /// # Errors
    /// If a batch does not fit the address space.
    pub fn bytes(
        shape: BatchShape,
        mode: Mode,
        scratch: Bytes,
        targets: &Targets,
    ) -> Result<Bytes, LoaderError> {
        targets.check()?;
        let maps = TargetScratch::bytes(targets, mode)?;
        Ok(BatchBuffer::bytes(shape, mode, targets)? + Scratch::reserves(scratch)? + maps)
    }

    /// A reader with one batch and one scratch, reserved from `budget`.
    ///
    /// # Errors
    /// If the budget has no room for them.
    pub fn new(
        patches: Arc<Patches>,
        mode: Mode,
        seed: u64,
        batch_size: usize,
        scratch: Bytes,
        budget: &Budget,
    ) -> Result<BatchReader, LoaderError> {
        let shape = patches.batch_shape(batch_size);
        let memory =
            budget.part("batch reader", BatchReader::bytes(shape, mode, scratch, &patches.targets)?)?;
        let batch = BatchBuffer::new(shape, mode, &patches.targets, &memory)?;
        let scratch = Scratch::new(&memory, scratch)?;
        let target_scratch = TargetScratch::new(&patches.targets, mode, &memory)?;
        let never = AtomicBool::new(false);
        Ok(BatchReader { patches, mode, seed, batch, scratch, target_scratch, never })
    }

    /// The batch of a step, identical to that of a [`Loader`](crate::Loader).
    ///
    /// # Errors
    /// If a patch cannot be loaded; the error names the case and the file.
    pub fn load(&mut self, step: u64) -> Result<&BatchBuffer, LoaderError> {
        let BatchReader { patches, mode, seed, batch, scratch, target_scratch, never } = self;
        patches.fill(*mode, *seed, step, batch, (scratch, target_scratch), never)?;
        Ok(batch)
    }
}
