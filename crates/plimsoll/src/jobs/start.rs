//! The start of a run from trained weights.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{Adoption, NormalisationOf, Start, StartOptions};
use plimsoll_run::{RunConfig, RunError, Settings, StartRule, StartTable, start_table};
use plimsoll_train::PlannedRun;

use crate::context::Context;
use crate::error::{Error, Outcome};

/// The memory for the names in a checkpoint and its plan, before the limit of the run is set. It is freed before a run is planned.
const OPENING: Bytes = Bytes::mib(64);

/// Trained weights that a run starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// A file of weights; or the folder of a checkpoint of nnssl with its plan, of a model of nnU-Net, or of a run.
    pub path: PathBuf,
    /// The settings that are adopted from it where they are not set.
    pub adopt: BTreeSet<Adoption>,
    /// The differences from the network that are allowed.
    pub options: StartOptions,
}

/// A start that was opened. The settings that follow from it are part of the request.
#[derive(Clone)]
pub struct OpenedStart {
    /// The file of weights.
    weights: PathBuf,
    /// The rule by which its tensors become parameters.
    rule: StartRule,
    /// The normalisation that is adopted.
    normalisation: Option<NormalisationOf>,
    /// Facts that a user may want to know, in lines.
    notes: Vec<String>,
}

impl StartRequest {
    /// A start that nothing is adopted from, whose tensors must all fit.
    pub fn new(path: impl Into<PathBuf>) -> StartRequest {
        StartRequest { path: path.into(), adopt: BTreeSet::new(), options: StartOptions::default() }
    }

    /// Opens the start, and completes settings by those that follow from it. A run that resumes has recorded both, so that it needs no
    /// start any more: if there is none at the path, `None` is returned with the same settings.
    ///
    /// # Errors
    /// Returns an error if the start cannot be read, does not say what is to be adopted, or an option has no effect.
    pub fn open(&self, settings: Settings, resumes: bool) -> Outcome<(Settings, Option<OpenedStart>)> {
        if resumes && !self.path.exists() {
            return Ok((settings, None));
        }
        let start = Start::open(&self.path, &Budget::new(OPENING))?;
        if start.is_encoder()
            && let Some(name) = self.options.first_set()
        {
            let message = format!("‹{name}› has no effect: {} has an adaptation plan", self.path.display());
            return Err(Error::new(message, "leave it out"));
        }
        let settings = start.complete(settings, &self.adopt)?;
        let opened = OpenedStart {
            weights: start.weights().into(),
            rule: start.rule(self.options),
            normalisation: start.normalisation(&self.adopt)?,
            notes: start.notes(),
        };
        Ok((settings, Some(opened)))
    }
}

impl OpenedStart {
    /// The file of weights.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// The rule by which its tensors become parameters.
    pub fn rule(&self) -> &StartRule {
        &self.rule
    }

    /// Reports facts that a user may want to know.
    pub(super) fn report(&self, context: &Context) {
        for note in &self.notes {
            context.note(note);
        }
    }

    /// Sets the normalisation that is adopted.
    pub(super) fn normalise(&self, config: &mut RunConfig) -> Result<(), RunError> {
        self.normalisation.as_ref().map_or(Ok(()), |normalisation| normalisation.apply(config))
    }

    /// The fate of each of its tensors in a planned run.
    pub(super) fn table(&self, planned: &PlannedRun, budget: &Budget) -> Result<StartTable, RunError> {
        let net = planned.config.training.net.as_architecture();
        let program = &planned.programs[planned.programs.fullest()];
        start_table(&self.weights, &self.rule, net, program, budget)
    }
}
