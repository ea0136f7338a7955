//! Running statistics of normalisations over batches, where a batch has several shards.
//!
//! They follow the first shard of each step, as in PyTorch's `DistributedDataParallel` they follow the first process. The first shard moves
//! them before it is known whether the step counts, so they are kept to be restored.

use plimsoll_graph::{Op, Program, TensorId};
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};

use crate::RunPrograms;
use crate::stream::SentTensor;

/// The running statistics of a program, with their values before a step.
pub(crate) struct RunningStatistics {
    program: ProgramId,
    tensors: Vec<(TensorId, usize)>,
    before: Mapped<f32>,
}

/// The tensors that a program moves by its batch, with their numbers of elements.
fn moved(program: &Program) -> Vec<(TensorId, usize)> {
    let updates = program.nodes.iter().filter(|node| matches!(node.op, Op::RunningUpdate(_)));
    // Mean, variance and the number of batches.
    let tensors = updates.flat_map(|node| node.inputs.iter().take(3));
    tensors.map(|tensor| (*tensor, program.shape(*tensor).count())).collect()
}

fn elements(tensors: &[(TensorId, usize)]) -> usize {
    tensors.iter().map(|(_, elements)| elements).sum()
}

impl RunningStatistics {
    /// The memory of their earlier values.
    ///
    /// # Errors
    /// Returns an error if it does not fit the address space.
    pub(crate) fn bytes(programs: &RunPrograms) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(elements(&moved(&programs[programs.fullest()])))
    }

    /// The running statistics of the programs, with room from `budget`; `None` if there are none.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(crate) fn new(
        programs: &RunPrograms,
        budget: &Budget,
    ) -> Result<Option<RunningStatistics>, MapError> {
        let program = programs.fullest();
        let tensors = moved(&programs[program]);
        if tensors.is_empty() {
            return Ok(None);
        }
        let before = Mapped::zeroed(budget, "shards", elements(&tensors))?;
        Ok(Some(RunningStatistics { program, tensors, before }))
    }

    /// The statistics, which the first rank moves.
    pub(crate) fn shared(&self) -> impl Iterator<Item = SentTensor> + '_ {
        let program = self.program;
        let shared = move |(tensor, elements): &(TensorId, usize)| SentTensor {
            program,
            tensor: *tensor,
            elements: *elements,
            owner: 0,
        };
        self.tensors.iter().map(shared)
    }

    /// Keeps the values before a step.
    pub(crate) fn keep(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        let mut rest = &mut self.before[..];
        for (tensor, elements) in &self.tensors {
            let (values, others) = rest.split_at_mut(*elements);
            rest = others;
            engine.read(self.program, *tensor, HostSliceMut::F32(values))?;
        }
        Ok(())
    }

    /// Restores the values from before a step.
    pub(crate) fn restore(&self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        let mut rest = &self.before[..];
        for (tensor, elements) in &self.tensors {
            let (values, others) = rest.split_at(*elements);
            rest = others;
            engine.write(self.program, *tensor, HostSlice::F32(values))?;
        }
        Ok(())
    }
}
