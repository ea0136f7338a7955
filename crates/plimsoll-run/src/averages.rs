//! The averages of parameters when a run begins.

use plimsoll_graph::Program;
use plimsoll_nn::averages;
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};

/// Gives the average of each parameter, where averages are taken, the parameter's value. To be called when the initial parameters
/// are there and no step has been taken; a checkpoint has the averages. `program` is one that updates, and `buffer` must have
/// room for the largest parameter.
///
/// # Errors
/// If the engine is not one for the program.
pub fn start_averages(
    engine: &mut dyn Engine,
    (id, program): (ProgramId, &Program),
    buffer: &mut [f32],
) -> Result<(), EngineError> {
    for (parameter, average) in averages(program) {
        let values = &mut buffer[..program.shape(parameter).count()];
        engine.read(id, parameter, HostSliceMut::F32(values))?;
        engine.write(id, average, HostSlice::F32(values))?;
    }
    Ok(())
}
