//! One step: a batch, its gradients, the update.

use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use plimsoll_data::Batch;
use plimsoll_disk::File;
use plimsoll_graph::TensorId;
use plimsoll_graph::ops::{Noise, RATES};
use plimsoll_memory::{watch_this_thread, watched_allocations};
use plimsoll_nn::names;
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};
use plimsoll_run::{FoldFolder, LossScale, PartSums, RunError, each_line};

use super::bad_numbers::BadStep;
use super::tensors::{LossTensors, PassTensors, UpdateNorm, UpdateTensors};
use super::{KEPT_TIMES, Run, Shards, StepReport};
use crate::TrainError;

/// The reason why a step was not done.
pub(super) enum StepProblem {
    /// It cannot be done.
    Failed(TrainError),
    /// Its numbers went wrong; nothing was updated.
    Bad(BadStep),
    /// Its gradients are more than halves hold with the scale of the loss, which is this one from now on; nothing was updated.
    Overflow(LossScale),
}

impl<E: Into<TrainError>> From<E> for StepProblem {
    fn from(problem: E) -> StepProblem {
        StepProblem::Failed(problem.into())
    }
}

impl Run<'_> {
    pub(super) fn step(&mut self) -> Result<StepReport, StepProblem> {
        let start = Instant::now();
        let before = watched_allocations();
        // The first step allocates what later ones use again. Folds that train at once would count that of each other.
        let watch = (!self.seconds.is_empty()).then(watch_this_thread);
        let step = self.progress.steps;
        let learning_rate = self.learning_rate(step);
        let scales = self.scales_loss();
        let scale = self.loss_factor();
        // Parts count only once it is known that the step does.
        let mut sums = std::mem::take(&mut self.step_parts);
        sums.fill((0.0, 0));
        let (Computed { loss, norm }, waited) = match self.engine.runs_ahead().is_some() {
            true => self.compute_ahead(&mut sums)?,
            false => self.compute_now(&mut sums)?,
        };
        // Exact: the scale is a power of two.
        let norm = norm / scale;
        let overflow = names::was_refused(norm) && scales && loss.is_finite();
        let smaller = overflow.then(|| self.progress.loss_scale.after_overflow()).flatten();
        let bad = names::was_refused(norm).then(|| {
            let cases = self.shards.as_ref().map_or_else(|| self.cases.clone(), Shards::cases);
            BadStep { step, loss, norm, cases }
        });
        if watch.is_some() {
            self.allocations += watched_allocations() - before;
        }
        drop(watch);
        if bad.is_none() {
            let totals = self.progress.epoch_parts.iter_mut().zip(&sums);
            totals.for_each(|(total, sum)| *total = (total.0 + sum.0, total.1 + sum.1));
        }
        self.step_parts = sums;
        if let Some(smaller) = smaller {
            return Err(StepProblem::Overflow(smaller));
        }
        if let Some(bad) = bad {
            return Err(StepProblem::Bad(bad));
        }
        self.progress.steps += 1;
        self.progress.skipped.1 = 0;
        if scales {
            self.progress.loss_scale = self.progress.loss_scale.after_step();
        }
        self.progress.epoch_loss.0 += f64::from(loss);
        self.progress.epoch_loss.1 += 1;
        let seconds = self.keep_time(start, waited);
        let (steps, of) = (self.progress.steps, self.config().schedule.total_steps);
        let loss_scale = scales.then_some(scale);
        let report = StepReport { steps, of, loss, grad_norm: norm, learning_rate, loss_scale, seconds };
        if let Some(log) = &mut self.step_log {
            log.append(&report)?;
        }
        Ok(report)
    }

    /// Waits for the next batch and computes a step, from its inputs to its results.
    fn compute_now(&mut self, sums: &mut PartSums) -> Result<(Computed, Duration), StepProblem> {
        let (batch, waited) = self.next_batch()?;
        let step = self.progress.steps;
        let (variant, rates) = (self.variant(step)?, self.rates(step));
        let (training, seed) = (&self.specification.config.training, self.specification.config.seed);
        let micro_batch = training.micro_batch;
        let inputs =
            StepInputs { variant, micro_batch, seed, step, scale: self.loss_factor(), rates: &rates };
        let computed = match self.shards.is_some() {
            true => self.compute_shards(&batch, &inputs, sums)?,
            false => self.compute(&batch, &inputs, sums)?,
        };
        self.cases.clear();
        self.cases.extend_from_slice(batch.cases());
        Ok((computed, waited))
    }

    /// The variant of the loss of a step.
    pub(super) fn variant(&self, step: u64) -> Result<usize, EngineError> {
        let config = self.config();
        let variants = self.planned.programs.variants();
        let variant = config.training.loss.variant_at(variants, step, config.iterations_per_epoch);
        variant.ok_or_else(|| internal(&format!("no program has the loss of step {step}")))
    }

    /// The rates of the optimizer in a step. Steps whose gradients have overflown are none of the optimizer's, as of
    /// `torch.amp.GradScaler`.
    pub(super) fn rates(&self, step: u64) -> [f32; RATES] {
        let updates = step - self.progress.loss_scale.skipped_steps;
        let optimizer = &self.config().training.optimizer;
        optimizer.rates(self.learning_rate(step), updates + 1, self.loss_factor())
    }

    /// The factor of the loss.
    pub(super) fn loss_factor(&self) -> f32 {
        if self.scales_loss() { self.progress.loss_scale.scale } else { 1.0 }
    }

    /// Runs the micro-batches of a batch and the update.
    fn compute(
        &mut self,
        batch: &Batch,
        inputs: &StepInputs<'_>,
        sums: &mut PartSums,
    ) -> Result<Computed, EngineError> {
        let tensors = &self.tensors.gradients[inputs.variant];
        let program = tensors.pass.program;
        let micro_batches = self.specification.config.training.accumulation();
        let (mut loss, mut norm) = (0.0, 0.0);
        for number in 0..micro_batches {
            let part = MicroBatch { at: number, of: micro_batches, number, guard: None };
            write_inputs(&mut *self.engine, tensors, batch, inputs, &part)?;
            self.engine.run(program)?;
            loss += scalar(&*self.engine, program, tensors.loss)? / micro_batches as f32;
            add_parts(&*self.engine, tensors, &mut self.parts, sums)?;
            if let Some((_, output)) = tensors.update {
                norm = scalar(&*self.engine, program, output)?;
            }
        }
        if let Some(update) = &self.tensors.update {
            norm = run_update(&mut *self.engine, update, inputs.rates, loss, norm)?;
        }
        Ok(Computed { loss, norm })
    }

    /// Returns the seconds of a step since its start, and keeps them for the statistics of times.
    fn keep_time(&mut self, start: Instant, waited: Duration) -> f64 {
        let seconds = start.elapsed().as_secs_f64();
        if self.seconds.len() < KEPT_TIMES {
            self.seconds.push(seconds);
            self.computing.push(seconds - waited.as_secs_f64());
        }
        seconds
    }

    /// The next batch, and the time that the step waited for it.
    pub(super) fn next_batch(&mut self) -> Result<(Batch, Duration), StepProblem> {
        let start = Instant::now();
        let loader = self.loader.as_mut().ok_or_else(|| internal("a step has no loader"))?;
        let batch = loader.next_batch()?;
        let waited = start.elapsed();
        self.waiting += waited;
        Ok((batch, waited))
    }

    /// Returns `true` if the loss is multiplied by a factor before gradients are computed.
    pub(super) fn scales_loss(&self) -> bool {
        self.config().training.precision.needs_loss_scale()
    }

    /// The learning rate of a step.
    pub(super) fn learning_rate(&self, step: u64) -> f64 {
        self.specification.config.schedule.at(step) * self.progress.plateau.factor
    }
}

/// The loss of a step, and the norm of its gradients times the factor of the loss.
pub(super) struct Computed {
    pub(super) loss: f32,
    pub(super) norm: f32,
}

/// The inputs of a step that all its micro-batches share.
pub(super) struct StepInputs<'a> {
    /// The variant of the loss.
    pub(super) variant: usize,
    /// The samples of a micro-batch.
    pub(super) micro_batch: usize,
    seed: u64,
    step: u64,
    /// The factor of the loss.
    scale: f32,
    pub(super) rates: &'a [f32],
}

impl StepInputs<'_> {
    /// The random numbers of a micro-batch.
    fn noise(&self, part: &MicroBatch) -> Noise {
        Noise::for_step(self.seed, self.step, (part.number * self.micro_batch) as u32)
    }
}

/// A micro-batch.
pub(super) struct MicroBatch {
    /// Its place in the batch of this process.
    pub(super) at: usize,
    /// The number of micro-batches in the batch of this process.
    pub(super) of: usize,
    /// Its number among all micro-batches of the step.
    pub(super) number: usize,
    /// The guard of running statistics, where a batch has several shards.
    pub(super) guard: Option<f32>,
}

/// A function that writes an input of a program.
pub(super) type WriteInput<'a> = dyn FnMut(TensorId, HostSlice<'_>) -> Result<(), EngineError> + 'a;

/// Writes the inputs of a pass of one micro-batch through the network.
pub(super) fn write_pass(
    engine: &mut dyn Engine,
    tensors: &PassTensors,
    batch: &Batch,
    inputs: &StepInputs<'_>,
    part: &MicroBatch,
) -> Result<(), EngineError> {
    let program = tensors.program;
    put_pass(tensors, batch, inputs.noise(part), part, &mut |tensor, values| {
        engine.write(program, tensor, values)
    })
}

/// Writes the inputs of one micro-batch.
pub(super) fn write_inputs(
    engine: &mut dyn Engine,
    tensors: &LossTensors,
    batch: &Batch,
    inputs: &StepInputs<'_>,
    part: &MicroBatch,
) -> Result<(), EngineError> {
    let StepInputs { scale, rates, .. } = *inputs;
    let program = tensors.pass.program;
    let mut write = |tensor: TensorId, values: HostSlice<'_>| engine.write(program, tensor, values);
    put_batch(tensors, batch, inputs.noise(part), part, &mut write)?;
    if let Some((input, guard)) = tensors.running_guard.zip(part.guard) {
        write(input, HostSlice::F32(&[guard]))?;
    }
    put_rates(tensors, scale, rates, &mut write)
}

fn put_pass(
    tensors: &PassTensors,
    batch: &Batch,
    noise: Noise,
    part: &MicroBatch,
    write: &mut WriteInput<'_>,
) -> Result<(), EngineError> {
    let MicroBatch { at, of, .. } = *part;
    write(tensors.image, HostSlice::F32(share(batch.images(), at, of)))?;
    write(tensors.labels, HostSlice::U8(share(batch.labels(), at, of)))?;
    if let Some(input) = tensors.noise {
        write(input, HostSlice::F32(&noise.to_table()))?;
    }
    Ok(())
}

/// Writes the inputs of a micro-batch that follow from its batch and its step alone.
pub(super) fn put_batch(
    tensors: &LossTensors,
    batch: &Batch,
    noise: Noise,
    part: &MicroBatch,
    write: &mut WriteInput<'_>,
) -> Result<(), EngineError> {
    let MicroBatch { at, of, .. } = *part;
    put_pass(&tensors.pass, batch, noise, part, write)?;
    if let Some(input) = tensors.shift {
        write(input, HostSlice::F32(share(batch.shifts(), at, of)))?;
    }
    for (map, input) in &tensors.targets {
        write(*input, HostSlice::F32(share(batch.target(*map), at, of)))?;
    }
    Ok(())
}

/// Writes the inputs that follow from earlier steps as well: the factor of the loss, and the rates of an update.
pub(super) fn put_rates(
    tensors: &LossTensors,
    scale: f32,
    rates: &[f32],
    write: &mut WriteInput<'_>,
) -> Result<(), EngineError> {
    if let Some(input) = tensors.loss_scale {
        write(input, HostSlice::F32(&[scale]))?;
    }
    if let Some((input, _)) = tensors.update {
        write(input, HostSlice::F32(rates))?;
    }
    Ok(())
}

/// Updates the parameters, and returns the norm of the gradients: that which is given, or that which the program computes. Inputs are written
/// just before the program runs, because other programs use their memory.
pub(super) fn run_update(
    engine: &mut dyn Engine,
    update: &UpdateTensors,
    rates: &[f32],
    loss: f32,
    norm: f32,
) -> Result<f32, EngineError> {
    engine.write(update.program, update.rates, HostSlice::F32(rates))?;
    match update.norm {
        UpdateNorm::Given { norm: input } => {
            engine.write(update.program, input, HostSlice::F32(&[norm]))?;
            engine.run(update.program)?;
            Ok(norm)
        }
        UpdateNorm::Computed { norm: output, loss: input } => {
            engine.write(update.program, input, HostSlice::F32(&[loss]))?;
            engine.run(update.program)?;
            scalar(engine, update.program, output)
        }
    }
}

pub(super) fn internal(fault: &str) -> EngineError {
    EngineError::Internal(fault.into())
}

pub(super) fn scalar(engine: &dyn Engine, program: ProgramId, tensor: TensorId) -> Result<f32, EngineError> {
    let mut value = [0.0];
    engine.read(program, tensor, HostSliceMut::F32(&mut value))?;
    Ok(value[0])
}

/// Adds the parts of the loss that a program has just computed. `room` has room for all of them.
fn add_parts(
    engine: &dyn Engine,
    tensors: &LossTensors,
    room: &mut [f32],
    sums: &mut PartSums,
) -> Result<(), EngineError> {
    let (tensor, parts) = &tensors.parts;
    let values = &mut room[..parts.len()];
    engine.read(tensors.pass.program, *tensor, HostSliceMut::F32(values))?;
    for (part, value) in parts.iter().zip(values) {
        sums[*part].0 += f64::from(*value);
        sums[*part].1 += 1;
    }
    Ok(())
}

/// One of `parts` equal parts of a batch.
fn share<T>(values: &[T], part: usize, parts: usize) -> &[T] {
    let count = values.len() / parts;
    &values[part * count..][..count]
}

/// The most bytes of a line that is read.
const LONGEST_LINE: u64 = 4096;

/// The part of a line that is read.
#[derive(serde::Deserialize)]
struct LoggedStep {
    steps: u64,
}

/// The numbers of each step, as JSON lines.
pub(super) struct StepLog {
    file: BufWriter<File>,
    folder: FoldFolder,
}

impl StepLog {
    /// Opens the lines of finished steps to append to them; lines of steps that will be repeated are cut off.
    pub(super) fn open(folder: &FoldFolder, steps: u64) -> Result<StepLog, RunError> {
        let path = folder.steps();
        let mut kept = 0;
        let opened = each_line(&path, LONGEST_LINE, |line, end| {
            let done: Option<LoggedStep> = serde_json::from_slice(line).ok();
            let is_kept = done.is_some_and(|logged| logged.steps <= steps);
            if is_kept {
                kept = end;
            }
            is_kept
        })
        .and_then(|()| File::append(&path))
        .and_then(|file| file.set_len(kept).map(|()| file));
        let file = opened.map_err(|source| RunError::Io { path, source })?;
        Ok(StepLog { file: BufWriter::new(file), folder: folder.clone() })
    }

    fn append(&mut self, report: &StepReport) -> Result<(), RunError> {
        let written = serde_json::to_writer(&mut self.file, report).map_err(std::io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|source| RunError::Io { path: self.folder.steps(), source })
    }

    /// Passes on what was collected.
    pub(super) fn flush(&mut self) -> Result<(), RunError> {
        self.file.flush().map_err(|source| RunError::Io { path: self.folder.steps(), source })
    }
}
