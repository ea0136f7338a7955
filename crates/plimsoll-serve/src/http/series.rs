//! Series of an archive: fetched, labelled, and stored as a segmentation beside them.

use std::sync::Arc;

use plimsoll::StopToken;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::dicomweb::{Endpoint, SeriesUid, fetch, store};
use crate::job::{Job, LabelForm, PlanReply};
use crate::models::ServedModel;
use crate::problem::Problem;
use crate::service::{CancelOnDrop, Service};
use crate::shares::TRANSFERS;
use crate::worker::Turn;

use super::router::ended;

/// The archive of a service.
pub(super) struct Archive {
    endpoint: Endpoint,
    transfers: Semaphore,
}

/// A segmentation that was stored.
#[derive(Serialize)]
pub(super) struct Stored {
    pub(super) stored: bool,
    pub(super) plan: PlanReply,
    pub(super) seconds: f64,
    pub(super) warnings: Vec<String>,
}

impl Archive {
    pub(super) fn new(endpoint: Endpoint) -> Archive {
        Archive { endpoint, transfers: Semaphore::new(TRANSFERS) }
    }

    /// Labels a series, and stores the segmentation in its study.
    pub(super) async fn label(
        &self,
        service: &Arc<Service>,
        model: Arc<ServedModel>,
        uid: &SeriesUid,
    ) -> Result<Stored, Problem> {
        let workspace = service.enter()?;
        let source = workspace.file("series");
        let transfer = self.transfers.acquire().await.map_err(|_| Problem::closing())?;
        fetch(&self.endpoint, uid, &source, service.bounds().unpacked).await?;
        drop(transfer);
        let cancel = CancelOnDrop { service: Arc::clone(service), stop: StopToken::default() };
        let job = Job {
            service: Arc::clone(service),
            model,
            workspace,
            source,
            form: LabelForm::DicomSeg,
            stop: cancel.stop.clone(),
        };
        let planning = service.worker().submit(Turn::First, &cancel.stop, || job.prepare());
        let prepared = planning.await.map_err(|_| ended(service))??;
        let turn = Turn::InOrder { seconds: prepared.plan.predicted_seconds };
        let predicting = service.worker().submit(turn, &cancel.stop, || prepared.predict());
        let labels = predicting.await.map_err(|_| ended(service))??;
        let _transfer = self.transfers.acquire().await.map_err(|_| Problem::closing())?;
        store(&self.endpoint, uid, &labels.file).await?;
        Ok(Stored { stored: true, plan: labels.plan, seconds: labels.seconds, warnings: labels.warnings })
    }
}
