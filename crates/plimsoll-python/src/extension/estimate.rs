//! The memory of a recorded training step.

use pyo3::prelude::*;

use super::{detached, raised};
use crate::{Failure, Operation, Parts, StepTrace, Storage, StorageRole};

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(step_memory, module)?)?;
    module.add_function(wrap_pyfunction!(plan_step, module)?)
}

/// A storage as the package records it.
#[derive(FromPyObject)]
struct RecordedStorage {
    bytes: u64,
    role: usize,
    born: usize,
    end: usize,
}

/// An op as the package records it.
#[derive(FromPyObject)]
struct RecordedOperation {
    reads: Vec<usize>,
    writes: Vec<usize>,
    flops: u64,
    moved: u64,
    is_repeatable: bool,
}

#[pyfunction]
fn step_memory(
    py: Python<'_>,
    storages: Vec<RecordedStorage>,
    operations: Vec<RecordedOperation>,
    backward_starts: Vec<usize>,
) -> PyResult<(Vec<u64>, usize, u64, [u64; 7])> {
    let trace = trace(storages, operations, backward_starts).map_err(|failure| raised(py, failure))?;
    detached(py, || {
        let memory = trace.memory();
        let Parts { parameters, buffers, optimizer, inputs, gradients, activations, temporaries } =
            memory.parts;
        let parts = [parameters, buffers, optimizer, inputs, gradients, activations, temporaries];
        Ok((memory.live, memory.peak, memory.activations, parts))
    })
}

/// A point of the curve: bytes, the recomputed share of the work, and the number of recomputed tensors.
type CurveTuple = (u64, f64, usize);

#[pyfunction]
fn plan_step(
    py: Python<'_>,
    storages: Vec<RecordedStorage>,
    operations: Vec<RecordedOperation>,
    backward_starts: Vec<usize>,
) -> PyResult<(u64, Vec<CurveTuple>)> {
    let trace = trace(storages, operations, backward_starts).map_err(|failure| raised(py, failure))?;
    detached(py, || {
        let plan = trace.plan();
        let curve = plan.curve.iter();
        let curve = curve.map(|point| (point.bytes, point.recomputed_flops, point.recomputed_operations));
        Ok((plan.lower_bound, curve.collect()))
    })
}

fn trace(
    storages: Vec<RecordedStorage>,
    operations: Vec<RecordedOperation>,
    backward_starts: Vec<usize>,
) -> Result<StepTrace, Failure> {
    let storage = |storage: RecordedStorage| {
        let RecordedStorage { bytes, role, born, end } = storage;
        let role = StorageRole::ALL.get(role).copied();
        let role = role.ok_or_else(|| Failure::argument("storages", "has a role that does not exist"))?;
        Ok(Storage { bytes, role, born, end })
    };
    let operation = |operation: RecordedOperation| {
        let RecordedOperation { reads, writes, flops, moved, is_repeatable } = operation;
        Operation { reads, writes, flops, moved, is_repeatable }
    };
    let storages = storages.into_iter().map(storage).collect::<Result<_, Failure>>()?;
    StepTrace::new(storages, operations.into_iter().map(operation).collect(), backward_starts)
}
