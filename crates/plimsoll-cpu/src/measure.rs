//! The measured speed of a program on this machine.
#![forbid(unsafe_code)]

use plimsoll_graph::{Program, Role};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{Backend, EngineError, HostSlice, Options, plan};

/// Timed runs, of which the best counts.
const ROUNDS: usize = 4;

/// Floating-point operations per second of a program of one kernel over inputs of f32, or none if it does not fit `memory` bytes.
pub(crate) fn measure(
    program: &Program,
    backend: &dyn Backend,
    memory: usize,
) -> Result<Option<f64>, EngineError> {
    let Ok(plan) = plan(std::slice::from_ref(program), backend, Options::default()) else {
        return Ok(None);
    };
    let arena = Bytes::from_len(plan.arena_bytes.next_multiple_of(4096));
    // Inputs are written one after the other.
    let written = program.tensors.iter().map(|tensor| tensor.shape.count() * size_of::<f32>()).max();
    if arena + Bytes::from_len(written.unwrap_or(0)) > Bytes::from_len(memory) {
        return Ok(None);
    }
    let Ok(reservation) = Budget::new(arena).reserve("a measurement", arena) else { return Ok(None) };
    let Some(id) = plan.ids().next() else { return Ok(None) };
    let mut engine = backend.engine(plan, reservation)?;
    for tensor in program.with_role(Role::Input) {
        engine.write(id, tensor, HostSlice::F32(&vec![1.0; program.shape(tensor).count()]))?;
    }
    for _ in 0..=ROUNDS {
        engine.run(id)?;
    }
    let best = engine.least_times(id).first().map(|time| time.seconds.max(f64::MIN_POSITIVE));
    Ok(best.map(|best| program.flops() as f64 / best))
}
