//! Steps on a device that copies the next batch while it computes.
//!
//! A batch is copied as soon as it is ready, if the device still computes the step before. The gradients of the next step begin without waiting for the last one if
//! nothing that they need can follow from that, as the factor of the loss does. The update of the next step begins at once too, unless the last one can still
//! end or change the run: then it is committed when the numbers of the last one have been read, and a bad step leaves the parameters from before it.
//! Numbers are then read a step later. Results have the same bits either way.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_data::{Batch, LoaderError};
use plimsoll_graph::ops::Noise;
use plimsoll_plan::{EngineError, RunsAhead};
use plimsoll_run::{BadNumbers, PartSums};

use super::Run;
use super::step::{Computed, MicroBatch, StepProblem, internal, put_batch, put_rates};
use crate::TrainError;

/// Steps under way.
pub(super) struct AheadSteps {
    /// The step whose batch waits on the device.
    copied: Option<AheadStep>,
    /// The steps that have begun: the one that is finished next, and perhaps the one behind it.
    begun: VecDeque<AheadStep>,
    /// The error of a batch that was asked for early; the steps before it are finished first.
    failed: Option<LoaderError>,
    /// `true` if no step is to begin before the last one has ended, so that the run can be saved.
    is_held: bool,
    /// Room for loss, norm and parts of a step.
    results: Vec<f32>,
    /// Lists of cases to be used again.
    spare: Vec<Vec<usize>>,
}

/// A step whose batch was copied.
struct AheadStep {
    step: u64,
    variant: usize,
    cases: Vec<usize>,
    /// `true` if its update has begun as well.
    is_committed: bool,
}

/// The only micro-batch of a step.
const WHOLE: MicroBatch = MicroBatch { at: 0, of: 1, number: 0, guard: None };

impl AheadSteps {
    /// None yet, of losses with `parts` parts.
    pub(super) fn new(parts: usize) -> AheadSteps {
        AheadSteps {
            copied: None,
            begun: VecDeque::with_capacity(2),
            failed: None,
            is_held: false,
            results: vec![0.0; 2 + parts],
            spare: Vec::with_capacity(3),
        }
    }

    /// Returns `true` if the state on the device is the one behind the last finished step. Else no further step begins before it is.
    pub(super) fn settles(&mut self) -> bool {
        self.is_held = self.begun.iter().any(|step| step.is_committed);
        !self.is_held
    }
}

impl Run<'_> {
    /// Computes a step, and copies or begins the next one meanwhile. Returns the time that it waited for its batch.
    pub(super) fn compute_ahead(&mut self, sums: &mut PartSums) -> Result<(Computed, Duration), StepProblem> {
        let step = self.progress.steps;
        let mut waited = Duration::ZERO;
        if self.ahead.begun.is_empty() {
            if self.ahead.copied.is_none() {
                if let Some(failed) = self.ahead.failed.take() {
                    return Err(failed.into());
                }
                let (batch, waited_for) = self.next_batch()?;
                waited = waited_for;
                self.copy(step, &batch)?;
            }
            self.begin_copied()?;
        }
        self.commit_begun()?;
        self.copy_next(step + 1)?;
        if self.ahead.copied.is_some() && self.may_begin_behind(step) {
            self.begin_copied()?;
            if self.cannot_end() {
                self.commit_begun()?;
            }
        }
        self.ahead.is_held = false;
        Ok((self.finish_first(sums)?, waited))
    }

    /// Drops what has begun or was copied: the run continues from another state.
    pub(super) fn abandon_ahead(&mut self) -> Result<(), EngineError> {
        let dropped = self.ahead.begun.drain(..).chain(self.ahead.copied.take());
        self.ahead.spare.extend(dropped.map(|step| step.cases));
        self.ahead.failed = None;
        self.engine.runs_ahead().map_or(Ok(()), RunsAhead::abandon)
    }

    /// Returns `true` if the gradients of the step behind this one may be computed before this one has ended: none of its results is among their inputs, and
    /// nothing else is done between them.
    fn may_begin_behind(&self, step: u64) -> bool {
        let ends_epoch = (step + 1).is_multiple_of(self.config().iterations_per_epoch);
        !ends_epoch && !self.scales_loss() && !self.ahead.is_held
    }

    /// Returns `true` if no bad number of a step can end the run.
    fn cannot_end(&self) -> bool {
        match self.config().bad_numbers {
            BadNumbers::Stop => false,
            BadNumbers::Skip { limit } => self.progress.skipped.1 < limit,
            BadNumbers::Rollback { limit } => self.progress.rollbacks < limit,
        }
    }

    /// Copies the batch of the next step, if there is one and its batch is ready.
    fn copy_next(&mut self, step: u64) -> Result<(), TrainError> {
        let is_last = step >= self.config().schedule.total_steps;
        let AheadSteps { copied, begun, failed, .. } = &self.ahead;
        if is_last || copied.is_some() || failed.is_some() || begun.len() > 1 {
            return Ok(());
        }
        let loader = self.loader.as_mut().ok_or_else(|| internal("a step has no loader"))?;
        match loader.next_batch_within(Duration::ZERO) {
            Ok(Some(batch)) => self.copy(step, &batch)?,
            Ok(None) => {}
            Err(error) => self.ahead.failed = Some(error),
        }
        Ok(())
    }

    /// Copies a batch to the device.
    fn copy(&mut self, step: u64, batch: &Batch) -> Result<(), EngineError> {
        let variant = self.variant(step)?;
        let tensors = &self.tensors.gradients[variant];
        let program = tensors.pass.program;
        let noise = Noise::for_step(self.specification.config.seed, step, 0);
        let engine = self.engine.runs_ahead().ok_or_else(|| internal("no device copies ahead"))?;
        put_batch(tensors, batch, noise, &WHOLE, &mut |tensor, values| {
            engine.write_ahead(program, tensor, values)
        })?;
        let mut cases = self.ahead.spare.pop().unwrap_or_default();
        cases.clear();
        cases.extend_from_slice(batch.cases());
        self.ahead.copied = Some(AheadStep { step, variant, cases, is_committed: false });
        Ok(())
    }

    /// Begins the gradients of the step whose batch was copied.
    fn begin_copied(&mut self) -> Result<(), EngineError> {
        let next = self.ahead.copied.take().ok_or_else(|| internal("no batch was copied"))?;
        let (rates, scale) = (self.rates(next.step), self.loss_factor());
        let tensors = &self.tensors.gradients[next.variant];
        let program = tensors.pass.program;
        let engine = self.engine.runs_ahead().ok_or_else(|| internal("no device copies ahead"))?;
        put_rates(tensors, scale, &rates, &mut |tensor, values| engine.write_ahead(program, tensor, values))?;
        engine.begin(program)?;
        self.ahead.begun.push_back(next);
        Ok(())
    }

    /// Begins the update of the last step that has begun, if it has not.
    fn commit_begun(&mut self) -> Result<(), EngineError> {
        let Some(last) = self.ahead.begun.back_mut().filter(|step| !step.is_committed) else { return Ok(()) };
        last.is_committed = true;
        let tensors = &self.tensors.gradients[last.variant];
        let (_, norm) = tensors.update.ok_or_else(|| internal("a step does not update"))?;
        let engine = self.engine.runs_ahead().ok_or_else(|| internal("no device copies ahead"))?;
        engine.commit(&[tensors.loss, norm, tensors.parts.0])
    }

    /// Waits for the first step that has begun, and adds the parts of its loss.
    fn finish_first(&mut self, sums: &mut PartSums) -> Result<Computed, EngineError> {
        let first = self.ahead.begun.pop_front().ok_or_else(|| internal("no step has begun"))?;
        let (_, parts) = &self.tensors.gradients[first.variant].parts;
        let results = &mut self.ahead.results[..2 + parts.len()];
        let engine = self.engine.runs_ahead().ok_or_else(|| internal("no device copies ahead"))?;
        engine.finish(results)?;
        for (part, value) in parts.iter().zip(&results[2..]) {
            sums[*part].0 += f64::from(*value);
            sums[*part].1 += 1;
        }
        let computed = Computed { loss: results[0], norm: results[1] };
        let spare = std::mem::replace(&mut self.cases, first.cases);
        self.ahead.spare.push(spare);
        Ok(computed)
    }
}
