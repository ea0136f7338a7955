//! The averages of parameters when a run begins.

use plimsoll_graph::Program;
use plimsoll_nn::averages;
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};

/// Sets the average of each averaged parameter to the parameter's value.
///
/// Call it before the first step, when the initial parameters are set; a checkpoint holds the averages of later steps. `program`
/// updates parameters and has the number `id`; `buffer` must have room for the largest parameter.
///
/// # Errors
/// Returns an error if the engine is not one for the program.
pub fn start_averages(
    engine: &mut dyn Engine,
    id: ProgramId,
    program: &Program,
    buffer: &mut [f32],
) -> Result<(), EngineError> {
    for (parameter, average) in averages(program) {
        let values = &mut buffer[..program.shape(parameter).count()];
        engine.read(id, parameter, HostSliceMut::F32(values))?;
        engine.write(id, average, HostSlice::F32(values))?;
    }
    Ok(())
}
