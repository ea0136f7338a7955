//! A stream of batches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::{Context, Event, FoldRequest, Observer};
use plimsoll_data::{Batch, Loader, LoaderConfig, LoaderError, Mode};
use plimsoll_remedy::render;

use super::batch::PatchBatch;
use super::failure;
use super::opened::{Given, Opened};
use super::settings::{EpochLength, PatchOptions, PatchSettings};
use super::state::StreamState;
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
    /// The names of the classes, by their numbers.
    pub classes: Vec<String>,
    /// Labels in batches by name.
    pub labels: BTreeMap<String, u8>,
    /// The spacing in millimetres, along depth, height and width, or in the plane of slices; empty of images with classes.
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
    opened: Opened,
    /// The batches of an epoch; `None` for no end.
    batches: Option<u64>,
    loader: Option<Loader>,
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
    /// most what all volumes or images take.
    ///
    /// # Errors
    /// If an argument is not possible, the data set cannot be opened, a case cannot be used, or the budget is too small.
    pub fn open(
        request: &FoldRequest,
        settings: &PatchSettings,
        options: PatchOptions,
        resources: &Resources,
        context: &Context,
    ) -> Result<PatchStream, Failure> {
        settings.check()?;
        if options.prefetch == 0 {
            return Err(Failure::argument("prefetch", "is 0; pass at least 1"));
        }
        if options.epoch == EpochLength::Batches(0) {
            return Err(Failure::argument(
                "iterations_per_epoch",
                "is 0; pass at least 1, or None for no end",
            ));
        }
        let opened = Opened::open(Given { request, settings, options, resources, context })?;
        let batches = match options.epoch {
            EpochLength::Usual => Some(opened.batches),
            EpochLength::Batches(count) => Some(count),
            EpochLength::Endless => None,
        };
        Ok(PatchStream { opened, batches, loader: None, step: 0, iteration: 0, epochs: 0, resumes: false })
    }

    /// The batches of an epoch; `None` for no end.
    pub fn batches(&self) -> Option<u64> {
        self.batches
    }

    /// Facts about the stream.
    pub fn facts(&self) -> &StreamFacts {
        &self.opened.facts
    }

    /// Begins an epoch, and returns its number. Training continues with new patches. Validation has the same patches in each epoch.
    pub fn begin(&mut self) -> u64 {
        self.epochs += 1;
        if !std::mem::take(&mut self.resumes) {
            self.iteration = 0;
            if self.opened.config.mode == Mode::Validation {
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
        if self.batches.is_some_and(|count| self.iteration >= count) {
            return Ok(Turn::End);
        }
        let Some(batch) = self.lend(patience)? else { return Ok(Turn::Waiting) };
        let Opened { names, labels, is_of_images, .. } = &self.opened;
        let batch = PatchBatch::new(batch, names, labels, *is_of_images)?;
        self.step += 1;
        self.iteration += 1;
        Ok(Turn::Batch(Box::new(batch)))
    }

    /// The state, from which another stream with the same settings resumes.
    ///
    /// # Errors
    /// If the settings cannot be written.
    pub fn state(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.present()).map_err(|error| Failure::Failed {
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
        state.expect_alike(&self.present())?;
        self.seek(state.step);
        self.iteration = state.iteration;
        self.resumes = self.batches.is_none_or(|count| state.iteration < count);
        self.epochs += 1;
        Ok(())
    }

    /// Ends the threads. A later iteration starts them again.
    pub fn close(&mut self) {
        self.loader = None;
    }

    fn present(&self) -> StreamState {
        StreamState::new(self.step, self.iteration, &self.opened.settings, self.opened.data)
    }

    /// Waits for the next batch of the loader, which is started if there is none.
    fn lend(&mut self, patience: Duration) -> Result<Option<Batch>, Failure> {
        let lent = match &mut self.loader {
            Some(loader) => loader.next_batch_within(patience),
            none => {
                let config = LoaderConfig { first_step: self.step, ..self.opened.config };
                Loader::start(config, Arc::clone(&self.opened.samples), &self.opened.memory)
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
