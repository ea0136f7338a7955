//! A service: models below one memory limit, and the operations that clients call.

use std::sync::Arc;

use plimsoll::{Context, MemoryLimit, StopToken};
use plimsoll_data::LengthUnit;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::{Bytes, resident};
use plimsoll_plan::Backend;
use plimsoll_run::CacheFolder;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ServeError;
use crate::models::ServedModel;
use crate::problem::Problem;
use crate::settings::{Bounds, ServiceSettings};
use crate::shares::MemoryShares;
use crate::wording::ServerWords;
use crate::worker::Worker;
use crate::workspace::{Scratch, Workspace};

/// Models below one memory limit.
pub struct Service {
    models: Vec<Arc<ServedModel>>,
    settings: ServiceSettings,
    shares: MemoryShares,
    words: ServerWords,
    places: Arc<Semaphore>,
    // Dropped before the folder that its tasks write into.
    worker: Worker,
    scratch: Scratch,
}

/// The state of a service.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) ram_limit_bytes: Bytes,
    /// The share of connections.
    pub(crate) transport_bytes: Bytes,
    /// The most resident memory of the process so far.
    pub(crate) peak_rss_bytes: Option<Bytes>,
    /// Places of the queue, of requests that are received, planned, predicted or sent.
    pub(crate) places: usize,
    pub(crate) taken_places: usize,
    /// Plans and predictions that wait for the one that runs.
    pub(crate) waiting: usize,
    /// The predicted seconds of the predictions that run or wait.
    pub(crate) predicted_seconds: f64,
}

impl Service {
    /// Opens the models, and divides the memory limit. Connections have TLS if `has_tls` is set.
    ///
    /// # Errors
    /// Returns an error if there is no model, one cannot be opened, two have one name, the limit is too low for the process and its
    /// connections, or the folder of requests cannot be made.
    pub fn open(settings: ServiceSettings, has_tls: bool) -> Result<Service, ServeError> {
        let context = Context::default();
        let threads = settings.options.threads;
        let memory = MemoryLimit::set(settings.ram, threads, &context)?;
        let shares = MemoryShares::new(memory.limits.limit, memory.own_bytes(), &settings.bounds, has_tls)?;
        let mut models: Vec<Arc<ServedModel>> = Vec::new();
        let mut add = |model: ServedModel| match models.iter().any(|other| other.card.name == model.card.name)
        {
            true => Err(ServeError::SameName { name: model.card.name }),
            false => {
                models.push(Arc::new(model));
                Ok(())
            }
        };
        for model in settings.models.iter().cloned() {
            add(ServedModel::open(model, &memory.budget)?)?;
        }
        for task in settings.tasks.iter().cloned() {
            add(ServedModel::of_task(task)?)?;
        }
        if models.is_empty() {
            return Err(ServeError::NoModel);
        }
        let worker = Worker::start().map_err(|source| ServeError::System { what: "a thread", source })?;
        Ok(Service {
            models,
            shares,
            words: ServerWords { transport: shares.transport },
            places: Arc::new(Semaphore::new(settings.bounds.queue)),
            worker,
            scratch: Scratch::open(&settings.scratch)?,
            settings,
        })
    }

    /// The shares of the memory limit.
    pub fn shares(&self) -> MemoryShares {
        self.shares
    }

    pub(crate) fn models(&self) -> &[Arc<ServedModel>] {
        &self.models
    }

    /// The model of a name.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<ServedModel>, Problem> {
        let found = self.models.iter().find(|model| model.card.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.models.iter().map(|model| model.card.name.as_str()).collect();
            let hint = format!("name one of these: {}", names.join(", "));
            Problem::new(axum::http::StatusCode::NOT_FOUND, "there is no model of this name", hint)
        })
    }

    /// Takes a place in the queue, with a folder for the request.
    pub(crate) fn enter(&self) -> Result<Arc<Workspace>, Problem> {
        let place: OwnedSemaphorePermit =
            Arc::clone(&self.places).try_acquire_owned().map_err(|_| self.busy())?;
        let workspace = self.scratch.workspace(place).map_err(|error| crate::archive::full(&error))?;
        Ok(Arc::new(workspace))
    }

    /// The queue has no place.
    fn busy(&self) -> Problem {
        let seconds = self.worker.seconds_ahead().ceil().clamp(1.0, 3600.0) as u64;
        let places = self.settings.bounds.queue;
        Problem {
            retry_after_seconds: Some(seconds),
            ..Problem::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                format!("the queue is full: all of its {places} places are taken"),
                format!("send the request again in {seconds} s, or raise `--queue` of the server"),
            )
        }
    }

    /// The state.
    pub(crate) fn status(&self) -> Status {
        let places = self.settings.bounds.queue;
        Status {
            ram_limit_bytes: self.shares.limit,
            transport_bytes: self.shares.transport,
            peak_rss_bytes: resident().ok().map(|resident| resident.peak),
            places,
            taken_places: places - self.places.available_permits().min(places),
            waiting: self.worker.waiting(),
            predicted_seconds: self.worker.seconds_ahead(),
        }
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.settings.bounds
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn words(&self) -> &ServerWords {
        &self.words
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.settings.backend)
    }

    /// The options of windows, as they are set.
    pub(crate) fn window_options(&self) -> PredictOptions {
        self.settings.options
    }

    /// The options of the windows of a model: mirrored as the program that trained it does, unless the service says otherwise.
    pub(crate) fn options(&self, is_nnunet: bool) -> PredictOptions {
        PredictOptions { mirror: self.settings.mirror.unwrap_or(is_nnunet), ..self.settings.options }
    }

    pub(crate) fn threads(&self) -> usize {
        self.settings.options.threads
    }

    pub(crate) fn unit(&self) -> Option<LengthUnit> {
        self.settings.unit
    }

    pub(crate) fn cache(&self) -> Option<CacheFolder> {
        self.settings.cache.clone()
    }
}

/// Cancels a request when it is dropped: a client that goes away ends its prediction.
pub(crate) struct CancelOnDrop {
    pub(crate) service: Arc<Service>,
    pub(crate) stop: StopToken,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.stop.ask();
        self.service.worker.drop_cancelled();
    }
}
