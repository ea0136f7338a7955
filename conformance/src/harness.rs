//! Engines, and numbers in and out of them, with no more words than a test needs.

use plimsoll_graph::{DType, Program, TensorId};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{
    Backend, Engine, HostSlice, HostSliceMut, Options, PlanError, ProgramId, VerifiedPlan, plan,
};

/// Reservations are made in pages.
const PAGE: usize = 4096;

/// An engine of a plan, with a budget of just the arena.
///
/// # Panics
/// Panics if there is no memory, or the plan is not for this backend.
pub fn engine(backend: &dyn Backend, plan: VerifiedPlan) -> Box<dyn Engine> {
    let bytes = Bytes::from_len(plan.arena_bytes.next_multiple_of(PAGE));
    let reservation = Budget::new(bytes).reserve("arena", bytes).unwrap();
    backend.engine(plan, reservation).unwrap_or_else(|error| panic!("{error}"))
}

/// Plans programs and makes an engine of the plan.
///
/// # Errors
/// Returns an error if the programs cannot be planned.
///
/// # Panics
/// Panics as [`engine`] does.
pub fn engine_for(
    backend: &dyn Backend,
    programs: &[Program],
    options: Options,
) -> Result<Box<dyn Engine>, PlanError> {
    Ok(engine(backend, plan(programs, backend, options)?))
}

fn dtype(engine: &dyn Engine, program: ProgramId, tensor: TensorId) -> DType {
    engine.plan().program(program).tensor(tensor).dtype
}

/// Writes numbers into a tensor, whatever it is stored as.
///
/// # Panics
/// Panics if the tensor has another number of elements.
pub fn write(engine: &mut dyn Engine, program: ProgramId, tensor: TensorId, numbers: &[f64]) {
    let written = match dtype(engine, program, tensor) {
        DType::F32 | DType::Bf16 | DType::F16 => {
            let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
            engine.write(program, tensor, HostSlice::F32(&numbers))
        }
        DType::F64 => engine.write(program, tensor, HostSlice::F64(numbers)),
        DType::U8 => {
            let numbers: Vec<u8> = numbers.iter().map(|x| *x as u8).collect();
            engine.write(program, tensor, HostSlice::U8(&numbers))
        }
    };
    written.unwrap_or_else(|error| panic!("{error}"));
}

/// Reads the numbers of a tensor, whatever it is stored as.
///
/// # Panics
/// Panics if the tensor is never stored.
pub fn read(engine: &dyn Engine, program: ProgramId, tensor: TensorId) -> Vec<f64> {
    let count = engine.plan().program(program).shape(tensor).count();
    let (numbers, read) = match dtype(engine, program, tensor) {
        DType::F32 | DType::Bf16 | DType::F16 => {
            let mut numbers = vec![0.0; count];
            let read = engine.read(program, tensor, HostSliceMut::F32(&mut numbers));
            (numbers.into_iter().map(f64::from).collect(), read)
        }
        DType::F64 => {
            let mut numbers = vec![0.0; count];
            let read = engine.read(program, tensor, HostSliceMut::F64(&mut numbers));
            (numbers, read)
        }
        DType::U8 => {
            let mut numbers = vec![0; count];
            let read = engine.read(program, tensor, HostSliceMut::U8(&mut numbers));
            (numbers.into_iter().map(f64::from).collect(), read)
        }
    };
    read.unwrap_or_else(|error| panic!("{error}"));
    numbers
}
