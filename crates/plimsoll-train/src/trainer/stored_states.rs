//! Moments and averages of all ranks in one checkpoint.

use std::io;

use plimsoll_graph::{Role, TensorId};
use plimsoll_nn::{names, trained_tensors};
use plimsoll_plan::{Engine, HostSliceMut, ProgramId};
use plimsoll_run::{CheckpointKind, Checkpoints, RunState};

use crate::ranks::Ranks;
use crate::{PlannedRun, TrainError};

/// A moment or an average.
struct StoredState {
    name: String,
    owner: usize,
    elements: usize,
    /// Its tensor in the update of its owner.
    own: Option<TensorId>,
}

/// The moments and averages of a run in the order of checkpoints, each with the rank that has it.
pub(super) struct StoredStates {
    updating: ProgramId,
    states: Vec<StoredState>,
}

impl StoredStates {
    pub(super) fn new(planned: &PlannedRun) -> StoredStates {
        let programs = &planned.programs;
        let (stored, updating) = (programs.stored(), programs.updating());
        let gradients = &programs[programs.fullest()];
        let optimizer = &planned.config.training.optimizer;
        let mut states = Vec::new();
        let trained = trained_tensors(gradients, programs.place().ranks);
        for id in stored.with_role(Role::State) {
            let name = &stored.tensor(id).name;
            let has_it = |parameter: &str| {
                optimizer.moments(parameter).contains(name) || names::average(parameter) == *name
            };
            let owner = trained.iter().find(|tensor| has_it(&gradients.tensor(tensor.parameter).name));
            if let Some(tensor) = owner {
                let (owner, elements) = (tensor.owner, tensor.elements);
                let own = programs[updating].find(name);
                states.push(StoredState { name: name.clone(), owner, elements, own });
            }
        }
        StoredStates { updating, states }
    }

    /// Writes a checkpoint with the states of all ranks, which [send](Self::send) them.
    pub(super) fn write(
        &self,
        checkpoints: &mut Checkpoints,
        kind: CheckpointKind,
        state: RunState<'_>,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        let mut problem = None;
        let mut next = self.states.iter().filter(|state| state.owner != 0);
        let written = checkpoints.write_gathered(kind, state, &mut |name, values| {
            let expected = next.next().filter(|state| state.name == name);
            let state =
                expected.ok_or_else(|| io::Error::other(format!("no rank is known to have `{name}`")))?;
            ranks.receive_stored(state.owner, values).map_err(|error| {
                let text = error.to_string();
                problem = Some(error);
                io::Error::other(text)
            })
        });
        match problem {
            Some(error) => Err(error.into()),
            None => Ok(written?),
        }
    }

    /// Sends the states of this rank to the first one, which writes a checkpoint.
    pub(super) fn send(
        &self,
        engine: &dyn Engine,
        room: &mut [f32],
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        let rank = ranks.place().rank;
        for state in self.states.iter().filter(|state| state.owner == rank) {
            let values = &mut room[..state.elements];
            if let Some(own) = state.own {
                engine.read(self.updating, own, HostSliceMut::F32(values))?;
                ranks.send_stored(values)?;
            }
        }
        Ok(())
    }
}
