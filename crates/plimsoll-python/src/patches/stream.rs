//! A stream of batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::{Context, Event, FoldData, FoldRequest, Observer, open_fold};
use plimsoll_data::{
    Batch, CaseFingerprint, FilesMemory, Loader, LoaderConfig, LoaderError, Mode, Patches, SampleShape,
    Sampler, Scratch, Targets, VolumeCache,
};
use plimsoll_memory::{Budget, Bytes, Digest, Mapped};
use plimsoll_remedy::render;

use super::batch::PatchBatch;
use super::failure;
use super::settings::{PatchOptions, PatchSettings};
use super::state::{StreamState, digest_of};
use crate::{Failure, Keywords, Resources};

/// The warnings of opening a data set.
#[derive(Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Takes all warnings so far, in the words of Python.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Warnings {
    fn event(&self, event: &Event<'_>) {
        if let Event::Warning { text } = event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(render(text, &Keywords));
        }
    }
}

/// Facts about a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamFacts {
    /// The names of the cases that batches are drawn from.
    pub cases: Vec<String>,
    /// The names of the channels.
    pub channels: Vec<String>,
    /// Labels in batches by name.
    pub labels: BTreeMap<String, u8>,
    /// The spacing in millimetres, along depth, height and width, or in the plane of slices.
    pub spacing: Vec<f64>,
}

/// The result of waiting for a batch.
pub enum Turn {
    /// The next batch.
    Batch(Box<PatchBatch>),
    /// It is not ready yet.
    Waiting,
    /// The epoch has ended.
    End,
}

/// A stream of batches. Its threads start with the first batch, and end when it is closed or dropped.
pub struct PatchStream {
    settings: PatchSettings,
    options: PatchOptions,
    config: LoaderConfig,
    patches: Arc<Patches>,
    /// The memory of the loader.
    memory: Budget,
    /// The memory of labels of 64 bits.
    wide: Option<Budget>,
    loader: Option<Loader>,
    /// The names of all cases, in the order of the fingerprint.
    names: Vec<String>,
    facts: StreamFacts,
    data: Digest,
    /// The reservation for the names of the files.
    _files: FilesMemory,
    /// The step of the next batch.
    step: u64,
    /// The batches of the present epoch that were handed over.
    iteration: u64,
    /// The number of epochs that were begun.
    epochs: u64,
    /// `true` if the next epoch is the rest of one that a state has begun.
    resumes: bool,
}

impl PatchStream {
    /// Opens a data set, and reserves the memory of the threads, the batches and the cache. The cache gets what is left of the budget, at
    /// most what all volumes take.
    ///
    /// # Errors
    /// If an argument is not possible, the data set cannot be opened, a case cannot be used, or the budget is too small.
    pub fn open(
        request: &FoldRequest,
        settings: PatchSettings,
        options: PatchOptions,
        resources: &Resources,
        context: &Context,
    ) -> Result<PatchStream, Failure> {
        settings.patch()?;
        if options.prefetch == 0 {
            return Err(Failure::argument("prefetch", "is 0; pass at least 1"));
        }
        if options.iterations_per_epoch == Some(0) {
            return Err(Failure::argument(
                "iterations_per_epoch",
                "is 0; pass at least 1, or None for no end",
            ));
        }
        let budget = &resources.budget;
        let data = open_fold(request, budget, context).map_err(|error| failure::opening_failure(&error))?;
        let Some(fingerprint) = &data.inspection.fingerprint else {
            return Err(Failure::Failed {
                message: format!("{} has no case that can be used", data.dataset.folder.display()),
                remedy: None,
            });
        };
        let cases = &fingerprint.cases;
        let sampler = settings.sampler(fingerprint.target_spacing)?;
        let patch = sampler.grid.patch;
        let facts = facts(&data, settings.section, sampler.grid.spacing.lengths());
        let digest = digest_of(&data);
        let sampler = Sampler::new(Arc::clone(&data.inspection), &data.fold, sampler)
            .map_err(|error| failure::sampler_failure(&error))?
            .on_regions(data.dataset.labels.scored_regions());
        let largest = cases.iter().map(|case| case.geometry.voxel_count()).max().unwrap_or(0);
        let config = LoaderConfig {
            mode: settings.section,
            seed: settings.seed,
            first_step: 0,
            batch_size: settings.batch_size,
            numbers: plimsoll_data::SampleNumbers::ALL,
            slots: resources.threads.saturating_add(options.prefetch),
            threads: resources.threads,
            scratch: Scratch::for_patches(patch, largest),
        };
        let sample = SampleShape::patch(data.dataset.channels.len(), patch);
        let bytes =
            config.bytes(sample, &Targets::default()).map_err(|error| failure::loader_failure(&error))?;
        let memory = budget.part("batches and threads", bytes).map_err(Failure::OverLimit)?;
        let wide = match options.wide_labels {
            true => Some(
                budget.part("labels of 64 bits", wide_bytes(&config, patch)?).map_err(Failure::OverLimit)?,
            ),
            false => None,
        };
        let cache = cache(cases, &facts.cases, budget, context)?;
        let patches = Patches::new(&data.dataset, sampler, Arc::new(cache))
            .map_err(|error| failure::loader_failure(&error))?;
        Ok(PatchStream {
            settings,
            options,
            config,
            patches: Arc::new(patches),
            memory,
            wide,
            loader: None,
            names: cases.iter().map(|case| case.id.clone()).collect(),
            facts,
            data: digest,
            _files: data.dataset.memory,
            step: 0,
            iteration: 0,
            epochs: 0,
            resumes: false,
        })
    }

    /// Facts about the stream.
    pub fn facts(&self) -> &StreamFacts {
        &self.facts
    }

    /// Begins an epoch, and returns its number. Training continues with new patches. Validation has the same patches in each epoch.
    pub fn begin(&mut self) -> u64 {
        self.epochs += 1;
        if !std::mem::take(&mut self.resumes) {
            self.iteration = 0;
            if self.settings.section == Mode::Validation {
                self.seek(0);
            }
        }
        self.epochs
    }

    /// Waits for the next batch of an epoch, for at most `patience`.
    ///
    /// # Errors
    /// If a newer epoch has begun, a sample cannot be loaded, the budget is used up, or all batches are in use. An error about a sample names
    /// the case and the file.
    pub fn next(&mut self, epoch: u64, patience: Duration) -> Result<Turn, Failure> {
        if epoch != self.epochs {
            return Err(Failure::Failed {
                message: "another iteration over these patches has begun since".into(),
                remedy: Some("finish an iteration before the next, or open the patches twice".into()),
            });
        }
        if self.options.iterations_per_epoch.is_some_and(|count| self.iteration >= count) {
            return Ok(Turn::End);
        }
        let Some(batch) = self.lend(patience)? else { return Ok(Turn::Waiting) };
        let batch = PatchBatch::new(batch, &self.names, self.wide.as_ref())?;
        self.step += 1;
        self.iteration += 1;
        Ok(Turn::Batch(Box::new(batch)))
    }

    /// The state, from which another stream with the same settings resumes.
    ///
    /// # Errors
    /// If the settings cannot be written.
    pub fn state(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.present()?).map_err(|error| Failure::Failed {
            message: format!("the state of the patches cannot be written: {error}"),
            remedy: None,
        })
    }

    /// Resumes from a state: the next batch is the one that would have followed. Iterations that have begun end.
    ///
    /// # Errors
    /// If the state is of other settings or of other data.
    pub fn restore(&mut self, text: &str) -> Result<(), Failure> {
        let state = StreamState::read(text)?;
        state.expect_alike(&self.present()?)?;
        self.seek(state.step);
        self.iteration = state.iteration;
        self.resumes = self.options.iterations_per_epoch.is_none_or(|count| state.iteration < count);
        self.epochs += 1;
        Ok(())
    }

    /// Ends the threads. A later iteration starts them again.
    pub fn close(&mut self) {
        self.loader = None;
    }

    fn present(&self) -> Result<StreamState, Failure> {
        StreamState::new(self.step, self.iteration, &self.settings, self.data)
    }

    /// Waits for the next batch of the loader, which is started if there is none.
    fn lend(&mut self, patience: Duration) -> Result<Option<Batch>, Failure> {
        let lent = match &mut self.loader {
            Some(loader) => loader.next_batch_within(patience),
            none => {
                let config = LoaderConfig { first_step: self.step, ..self.config };
                let patches: Arc<Patches> = Arc::clone(&self.patches);
                Loader::start(config, patches, &self.memory)
                    .and_then(|loader| none.insert(loader).next_batch_within(patience))
            }
        };
        lent.map_err(|error| {
            if !matches!(error, LoaderError::AllLent { .. }) {
                // It makes no more batches. A later iteration begins with the step that failed.
                self.loader = None;
            }
            failure::loader_failure(&error)
        })
    }

    /// Continues with another step.
    fn seek(&mut self, step: u64) {
        if self.step != step {
            self.step = step;
            let loader = self.loader.take();
            self.loader = loader.and_then(|mut loader| loader.seek(step).then_some(loader));
        }
    }
}

/// Facts about the stream of a section of a fold.
fn facts(data: &FoldData, section: Mode, spacing: &[f64]) -> StreamFacts {
    let cases = match section {
        Mode::Training => &data.fold.train,
        Mode::Validation => &data.fold.val,
    };
    let labels = &data.dataset.labels;
    let named = labels.names().iter().cloned().zip(0..);
    let ignored = labels.ignore().map(|label| ("ignore".to_string(), label));
    StreamFacts {
        cases: cases.clone(),
        channels: data.dataset.channels.iter().map(|channel| channel.name.clone()).collect(),
        labels: named.chain(ignored).collect(),
        spacing: spacing.to_vec(),
    }
}

/// The bytes of the labels of all batches in 64 bits.
fn wide_bytes(config: &LoaderConfig, patch: [usize; 3]) -> Result<Bytes, Failure> {
    let labels = patch.iter().fold(config.batch_size, |product, size| product.saturating_mul(*size));
    let bytes = Mapped::<i64>::bytes(labels)?;
    Ok(Bytes(bytes.0.saturating_mul(config.slots as u64)))
}

/// The cache of the volumes of `used` cases, in what is left of the budget.
fn cache(
    cases: &[CaseFingerprint],
    used: &[String],
    budget: &Budget,
    context: &Context,
) -> Result<VolumeCache, Failure> {
    let decoding = cases.iter().map(|case| case.decoding_bytes).max().unwrap_or(Bytes::ZERO);
    let decoding = budget.part("decoding", decoding).map_err(Failure::OverLimit)?;
    let used: BTreeSet<&String> = used.iter().collect();
    let of_used = cases.iter().filter(|case| used.contains(&case.id));
    let volumes: Bytes = of_used.map(CaseFingerprint::decoded_bytes).sum();
    let room = budget.part("cache", volumes.min(budget.free())).map_err(Failure::OverLimit)?;
    let cache = VolumeCache::new(room).decoding_within(decoding);
    Ok(match context.cache() {
        Some(folder) => cache.indexed_in(folder.points()),
        None => cache,
    })
}
