//! The sums of a loss over a batch that shards divide, such as the sums of Dice over the batch.
//!
//! Before the gradients of a step each micro-batch passes through the network once to give its sums. Those of a shard are added in f64, micro-batch
//! by micro-batch and sample by sample, and the sums of all shards in their order, so that all ranks have the same totals, whatever their number. A
//! message has the sums of one shard.

use plimsoll_memory::{Bytes, Reservation};
use plimsoll_nn::names;
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut};
use plimsoll_ranks::RanksError;

use super::tensors::{LossTensors, SumsTensors};
use crate::RunPrograms;
use crate::ranks::Ranks;

/// The shape of the sums.
#[derive(Clone, Copy)]
pub(super) struct SumsShape {
    heads: usize,
    /// Samples of a micro-batch.
    samples: usize,
    /// The sums of a sample and head, over all classes.
    of_sample: usize,
    ranks: usize,
}

impl SumsShape {
    /// The shape for a run; `None` if its loss needs no sums of the batch.
    pub(super) fn new(programs: &RunPrograms) -> Option<SumsShape> {
        let program = &programs[programs.sums()?];
        let heads = (0..).map_while(|head| program.find(&names::sums(head)));
        // The tables of all heads are equally large.
        let shape = program.shape(program.find(&names::sums(0))?);
        let samples = shape.dim(0);
        let of_sample = shape.count() / samples;
        Some(SumsShape { heads: heads.count(), samples, of_sample, ranks: programs.place().ranks })
    }

    /// The sums of all heads.
    fn count(&self) -> usize {
        self.heads * self.of_sample
    }

    /// The memory of a table, of the sums of a shard and of the batch, of the sums of all ranks, and of their copies in messages.
    pub(super) fn bytes(&self) -> Bytes {
        let table = self.samples * self.of_sample * size_of::<f32>();
        Bytes::from_len(table + (2 + 3 * self.ranks) * self.count() * size_of::<f64>())
    }
}

/// The sums over a batch.
pub(super) struct BatchSums {
    shape: SumsShape,
    /// A head's sums of a micro-batch.
    table: Vec<f32>,
    /// The sums of a shard of this rank, head by head.
    shard: Vec<f64>,
    /// The sums of all shards.
    batch: Vec<f64>,
    _memory: Reservation,
}

impl BatchSums {
    pub(super) fn new(shape: SumsShape, memory: Reservation) -> BatchSums {
        let table = vec![0.0; shape.samples * shape.of_sample];
        BatchSums {
            shape,
            table,
            shard: vec![0.0; shape.count()],
            batch: vec![0.0; shape.count()],
            _memory: memory,
        }
    }

    /// Begins a step.
    pub(super) fn clear(&mut self) {
        self.batch.fill(0.0);
    }

    /// Adds the sums that the engine has just computed to the sums of the shard.
    pub(super) fn add(&mut self, engine: &dyn Engine, tensors: &SumsTensors) -> Result<(), EngineError> {
        let SumsShape { of_sample, .. } = self.shape;
        for (table, sums) in tensors.tables.iter().zip(self.shard.chunks_exact_mut(of_sample)) {
            engine.read(tensors.pass.program, *table, HostSliceMut::F32(&mut self.table))?;
            for sample in self.table.chunks_exact(of_sample) {
                sums.iter_mut().zip(sample).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
        Ok(())
    }

    /// Adds the shards of a round, of which each rank has one, in their order. The next shard begins at zero.
    pub(super) fn add_round(&mut self, ranks: &mut Ranks<'_>) -> Result<(), RanksError> {
        let all = ranks.all_gather(bytemuck::cast_slice(&self.shard))?;
        for shard in all.chunks_exact(size_of_val(&self.shard[..])) {
            let (numbers, _) = shard.as_chunks();
            for (sum, number) in self.batch.iter_mut().zip(numbers) {
                *sum += f64::from_ne_bytes(*number);
            }
        }
        self.shard.fill(0.0);
        Ok(())
    }

    /// Writes the sums of the batch into the inputs of a program of gradients, as the sums of the first sample.
    pub(super) fn write(
        &mut self,
        engine: &mut dyn Engine,
        tensors: &LossTensors,
    ) -> Result<(), EngineError> {
        let of_sample = self.shape.of_sample;
        self.table.fill(0.0);
        for (input, sums) in tensors.batch_sums.iter().zip(self.batch.chunks_exact(of_sample)) {
            self.table.iter_mut().zip(sums).for_each(|(value, sum)| *value = *sum as f32);
            engine.write(tensors.pass.program, *input, HostSlice::F32(&self.table))?;
        }
        Ok(())
    }
}
