//! Tensors that one rank has and all need.

use plimsoll_graph::TensorId;
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, ProgramId};

use crate::TrainError;
use crate::ranks::Ranks;

/// A tensor with the rank that has its values.
#[derive(Clone, Copy)]
pub(crate) struct SharedTensor {
    pub(crate) program: ProgramId,
    pub(crate) tensor: TensorId,
    pub(crate) elements: usize,
    pub(crate) owner: usize,
}

/// Copies tensors from their owners to all ranks, one after the other. `room` has room for the largest.
pub(crate) fn share(
    tensors: &[SharedTensor],
    engine: &mut dyn Engine,
    ranks: &mut Ranks<'_>,
    room: &mut [f32],
) -> Result<(), TrainError> {
    if ranks.is_alone() {
        return Ok(());
    }
    let rank = ranks.place().rank;
    for SharedTensor { program, tensor, elements, owner } in tensors.iter().copied() {
        let values = &mut room[..elements];
        if owner == rank {
            engine.read(program, tensor, HostSliceMut::F32(values))?;
        }
        ranks.spread(owner, values)?;
        if owner != rank {
            engine.write(program, tensor, HostSlice::F32(values))?;
        }
    }
    Ok(())
}
