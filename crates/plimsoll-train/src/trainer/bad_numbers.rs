//! Steps whose loss or gradients are no longer numbers.
//!
//! The programs themselves refuse to update anything then, so weights and moments are unchanged. This module decides how the run
//! continues.

use plimsoll_run::{BadNumbers, CheckpointKind, Journal};

use super::start::initialise;
use super::step::{StepLog, StepProblem};
use super::{Observer, Run};
use crate::TrainError;

/// A step that was refused.
pub(super) struct BadStep {
    /// From 0.
    pub(super) step: u64,
    pub(super) loss: f32,
    pub(super) norm: f32,
    /// The cases of the batch, by their index in the data set's list.
    pub(super) cases: Vec<usize>,
}

impl Run<'_> {
    /// Goes on after a step that failed, as the run's settings say.
    pub(super) fn after_bad_step(
        &mut self,
        problem: StepProblem,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let bad = match problem {
            StepProblem::Failed(problem) => return Err(problem),
            StepProblem::Overflow(smaller) => {
                // No update: a series of bad steps continues after it.
                self.progress.loss_scale = smaller;
                self.progress.steps += 1;
                return Ok(());
            }
            StepProblem::Bad(bad) => bad,
        };
        let error = TrainError::BadNumbers {
            step: bad.step + 1,
            loss: bad.loss,
            norm: bad.norm,
            patches: self.source.name(&bad, self.loader_seed()),
            precision: self.config().training.precision,
        };
        match self.config().bad_numbers {
            BadNumbers::Stop => Err(error),
            BadNumbers::Skip { limit } => {
                let (all, in_a_row) = self.progress.skipped;
                if in_a_row >= limit {
                    return Err(error);
                }
                self.progress.skipped = (all + 1, in_a_row + 1);
                self.progress.steps += 1;
                Ok(self.warn(format!("{error}; the step is skipped"), observer)?)
            }
            BadNumbers::Rollback { limit } => {
                if self.progress.rollbacks >= limit {
                    return Err(error);
                }
                self.roll_back(observer)?;
                let steps = self.progress.steps;
                Ok(self.warn(
                    format!("{error}; rolled back to step {steps}; training continues with other patches"),
                    observer,
                )?)
            }
        }
    }

    /// Goes back to the last checkpoint, or to the beginning where there is none.
    fn roll_back(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        self.abandon_ahead()?;
        let rollbacks = self.progress.rollbacks + 1;
        let updating = self.planned.programs.updating();
        let resumed = self.checkpoints.resume(&self.specification, &mut *self.engine, updating)?;
        match resumed {
            Some(resumed) => self.progress = resumed.progress,
            None => {
                initialise(&mut *self.engine, &self.planned, &self.specification, &mut self.checkpoints)?;
                self.progress = plimsoll_run::Progress::default();
                self.progress.epoch_parts.resize(self.parts.len(), (0.0, 0));
            }
        }
        self.progress.rollbacks = rollbacks;
        let per_epoch = self.config().iterations_per_epoch;
        if self.ranks.is_first() {
            let steps = self.progress.validated * per_epoch;
            self.journal = Some(Journal::open(&self.folder, steps, per_epoch)?);
        }
        if self.step_log.take().is_some() {
            // The steps since then are done again.
            self.step_log = Some(StepLog::open(&self.folder, self.progress.steps)?);
        }
        self.restart_loader()?;
        // Killed now, the run must not take the old patches again.
        self.write(CheckpointKind::Latest, observer)
    }
}
