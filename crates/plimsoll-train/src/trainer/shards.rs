//! A step whose batch has several shards, which one process or several compute.

use plimsoll_data::Batch;
use plimsoll_graph::ops::GradNorm;
use plimsoll_memory::{Budget, Bytes, MapError};
use plimsoll_nn::{RankPlace, TrainedTensor, Training, names};
use plimsoll_plan::{Engine, HostSliceMut};
use plimsoll_run::PartSums;

use super::Run;
use super::batch_sums::{BatchSums, SumsShape};
use super::running::RunningStatistics;
use super::step::{Computed, MicroBatch, StepInputs, internal, run_update, scalar, write_inputs, write_pass};
use super::step_record::{RecordShape, StepRecord};
use super::validated_batch::ValidatedBatch;
use crate::gradient_sums::GradientSums;
use crate::ranks::{Ranks, message_bytes};
use crate::ring::share;
use crate::stream::SentTensor;
use crate::{RunPrograms, TrainError};

/// The state of steps whose batch has several shards.
pub(crate) struct Shards {
    sums: GradientSums,
    /// The sums of the loss over the batch, if gradients are computed by these.
    batch_sums: Option<BatchSums>,
    running: Option<RunningStatistics>,
    /// The numbers of the step by all ranks.
    record: StepRecord,
    /// The averages of parameters that validation reads.
    averages: Vec<SentTensor>,
    /// The parameters of these averages.
    averaged: Vec<SentTensor>,
}

impl Shards {
    /// The memory that a training with several shards needs beside its programs.
    ///
    /// # Errors
    /// Returns an error if it does not fit the address space.
    pub(crate) fn bytes(training: &Training, programs: &RunPrograms) -> Result<Bytes, MapError> {
        if training.shards <= 1 {
            return Ok(Bytes::ZERO);
        }
        let ranks = programs.place().ranks;
        let records = StepRecord::bytes(&RecordShape::new(training, programs));
        let sums = GradientSums::bytes(training, programs)? + RunningStatistics::bytes(programs)?;
        let of_batch = SumsShape::new(programs).map_or(Bytes::ZERO, |shape| shape.bytes());
        // Validated batches are gathered between steps.
        let validated = ValidatedBatch::bytes(training, programs);
        Ok(sums + records + of_batch + validated + message_bytes(ranks))
    }

    /// The state of a training, reserved from `budget`; `None` if its batch is one shard.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(super) fn new(
        training: &Training,
        programs: &RunPrograms,
        budget: &Budget,
    ) -> Result<Option<Shards>, MapError> {
        if training.shards <= 1 {
            return Ok(None);
        }
        let memory = budget.part("shards", Shards::bytes(training, programs)?)?;
        let sums = GradientSums::new(training, programs, &memory)?;
        let batch_sums = SumsShape::new(programs)
            .map(|shape| Ok::<_, MapError>(BatchSums::new(shape, memory.reserve("sums", shape.bytes())?)))
            .transpose()?;
        let running = RunningStatistics::new(programs, &memory)?;
        let shape = RecordShape::new(training, programs);
        let validated = ValidatedBatch::bytes(training, programs);
        let beside = StepRecord::bytes(&shape) + validated + message_bytes(programs.place().ranks);
        let record = StepRecord::new(shape, memory.reserve("messages", beside)?);
        let [averages, averaged] = averages(&sums, programs);
        Ok(Some(Shards { sums, batch_sums, running, record, averages, averaged }))
    }

    /// The cases of the last step, in the order of its samples.
    pub(super) fn cases(&self) -> Vec<usize> {
        self.record.cases()
    }

    /// Gives all ranks what validation reads and not every rank has: averages of parameters and running statistics. Parameters have to be
    /// [restored](Self::restore_parameters) afterwards.
    pub(super) fn share_validated(
        &self,
        engine: &mut dyn Engine,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        let running = self.running.iter().flat_map(RunningStatistics::shared);
        share(self.averages.iter().copied().chain(running), engine, ranks)
    }

    /// Gives all ranks the parameters again whose places averages have taken.
    pub(super) fn restore_parameters(
        &self,
        engine: &mut dyn Engine,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        share(self.averaged.iter().copied(), engine, ranks)
    }
}

/// The averages that validation reads, by the owners of their parameters, and these parameters; none if one process has all. Other ranks than the
/// owner have an average in the place of its parameter while they validate.
fn averages(sums: &GradientSums, programs: &RunPrograms) -> [Vec<SentTensor>; 2] {
    let Some(whole) = programs.whole() else { return [Vec::new(), Vec::new()] };
    let gradients = &programs[sums.program()];
    let average = |tensor: &TrainedTensor| {
        let TrainedTensor { parameter, elements, owner, .. } = *tensor;
        let name = names::average(&gradients.tensor(parameter).name);
        // A head that only training has is not validated.
        whole.validate.find(&name)?;
        let parameter = SentTensor { program: sums.program(), tensor: parameter, elements, owner };
        let own = programs[programs.validate()].find(&name);
        let own = own.map(|tensor| SentTensor { program: programs.validate(), tensor, ..parameter });
        Some((own.unwrap_or(parameter), parameter))
    };
    let (averages, parameters) = sums.tensors().iter().filter_map(average).unzip();
    [averages, parameters]
}

/// The micro-batches of a rank.
#[derive(Clone, Copy)]
struct Division {
    place: RankPlace,
    /// Shards of a rank.
    rounds: usize,
    /// Micro-batches of a shard.
    in_shard: usize,
}

impl Division {
    fn new(training: &Training, place: RankPlace) -> Division {
        let rounds = training.shards / place.ranks;
        Division { place, rounds, in_shard: training.shard_accumulation() }
    }

    /// The micro-batches of a rank's shard of a round.
    fn micro_batches(self, round: usize) -> impl Iterator<Item = MicroBatch> {
        let Division { place, rounds, in_shard } = self;
        let shard = round * place.ranks + place.rank;
        // A norm that is no number keeps running statistics as they are.
        let guard = Some(if shard == 0 { 0.0 } else { f32::NAN });
        (0..in_shard).map(move |within| MicroBatch {
            at: round * in_shard + within,
            of: rounds * in_shard,
            number: shard * in_shard + within,
            guard,
        })
    }
}

impl Run<'_> {
    /// Runs the micro-batches of all shards, adds their gradients in order, and updates the parameters.
    pub(super) fn compute_shards(
        &mut self,
        batch: &Batch,
        inputs: &StepInputs<'_>,
        sums: &mut PartSums,
    ) -> Result<Computed, TrainError> {
        self.compute_batch_sums(batch, inputs)?;
        self.compute_gradients(batch, inputs)?;
        let shards = self.shards.as_mut().ok_or_else(|| internal("a step has no shards"))?;
        let (engine, room) = (&mut *self.engine, self.checkpoints.buffer());
        shards.sums.finish(engine, room)?;
        shards.record.set_squares(shards.sums.squares());
        shards.record.gather(&mut self.ranks)?;
        let which = &self.tensors.gradients[inputs.variant].parts.1;
        let loss = shards.record.loss(which, sums);
        let squares = shards.record.squares(shards.sums.tensors());
        let norm = GradNorm::from_squares(squares, Some(f64::from(loss))) as f32;
        let Some(update) = &self.tensors.update else { return Err(internal("shards have no update").into()) };
        run_update(engine, update, inputs.rates, loss, norm)?;
        if names::was_refused(norm) {
            if let Some(running) = &shards.running {
                running.restore(engine)?;
            }
        } else if !self.ranks.is_alone() {
            let program = shards.sums.program();
            let updated = shards.sums.tensors().iter().map(|tensor| SentTensor {
                program,
                tensor: tensor.parameter,
                elements: tensor.elements,
                owner: tensor.owner,
            });
            share(updated, engine, &mut self.ranks)?;
        }
        Ok(Computed { loss, norm })
    }

    /// Computes the sums of the loss over the batch, if gradients are computed by these.
    fn compute_batch_sums(&mut self, batch: &Batch, inputs: &StepInputs<'_>) -> Result<(), TrainError> {
        let division = Division::new(&self.specification.config.training, self.ranks.place());
        let shards = self.shards.as_mut().ok_or_else(|| internal("a step has no shards"))?;
        let Some(sums) = &mut shards.batch_sums else { return Ok(()) };
        let tensors = self.tensors.sums.as_ref().ok_or_else(|| internal("no program computes sums"))?;
        let engine = &mut *self.engine;
        sums.clear();
        for round in 0..division.rounds {
            for micro_batch in division.micro_batches(round) {
                write_pass(engine, &tensors.pass, batch, inputs, &micro_batch)?;
                engine.run(tensors.pass.program)?;
                sums.add(engine, tensors)?;
            }
            sums.add_round(&mut self.ranks)?;
        }
        Ok(())
    }

    /// Runs the micro-batches of this rank, and adds the gradients of all shards.
    fn compute_gradients(&mut self, batch: &Batch, inputs: &StepInputs<'_>) -> Result<(), TrainError> {
        let division = Division::new(&self.specification.config.training, self.ranks.place());
        let tensors = &self.tensors.gradients[inputs.variant];
        let (program, engine) = (tensors.pass.program, &mut *self.engine);
        let shards = self.shards.as_mut().ok_or_else(|| internal("a step has no shards"))?;
        if let Some(running) = &mut shards.running {
            running.keep(engine)?;
        }
        shards.sums.clear();
        shards.record.begin(batch.cases());
        for round in 0..division.rounds {
            for (within, micro_batch) in division.micro_batches(round).enumerate() {
                write_inputs(engine, tensors, batch, inputs, &micro_batch)?;
                if let Some(sums) = &mut shards.batch_sums {
                    sums.write(engine, tensors)?;
                }
                if within + 1 < division.in_shard {
                    engine.run(program)?;
                } else {
                    shards.sums.run_and_add(program, engine, &mut self.ranks)?;
                }
                let loss = scalar(engine, program, tensors.loss)?;
                let parts = &mut self.parts[..tensors.parts.1.len()];
                engine.read(program, tensors.parts.0, HostSliceMut::F32(parts))?;
                shards.record.set_losses(micro_batch.at, loss, parts);
            }
        }
        Ok(())
    }
}
