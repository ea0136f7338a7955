//! The module `plimsoll._plimsoll`. Its arguments are arrays in C order whose types the package has checked.
#![allow(unsafe_code, reason = "expansions of pyo3's macros call Python's C interface")]
#![allow(missing_docs, reason = "functions are documented where the package wraps them")]

mod arrays;
mod command_line;
mod estimate;
mod geometry;
mod interactive;
mod jobs;
mod memory;
mod metrics;
mod model;
mod patches;
mod window;

use plimsoll_memory::OverBudget;
use plimsoll_parallel::{Panicked, catch_panic};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use self::memory::PyBudget;
use crate::{Failure, Resources};

/// Returns the exception for a failure.
fn raised(py: Python<'_>, failure: Failure) -> PyErr {
    let text = failure.to_string();
    let (remedy, held) = (failure.remedy(), failure.holders());
    let made = py.import("plimsoll._errors").and_then(|errors| match failure {
        Failure::Argument { .. } => Ok(PyValueError::new_err(text)),
        Failure::OverLimit(OverBudget { needed, free, limit, .. }) => {
            let arguments = (text, remedy, needed.0, free.0, limit.0, held);
            Ok(PyErr::from_value(errors.getattr("OverLimit")?.call1(arguments)?))
        }
        Failure::Job(failure) => jobs::exception(&errors, *failure),
        Failure::Failed { .. } => Ok(PyErr::from_value(errors.getattr("Error")?.call1((text, remedy))?)),
    });
    made.unwrap_or_else(|error| error)
}

/// Runs a call without the interpreter's lock; a panic becomes `plimsoll.InternalError`.
fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    finished(py, py.detach(|| catch_panic(call)))
}

/// The result of a call that may have panicked.
fn finished<T>(py: Python<'_>, done: Result<Result<T, Failure>, Panicked>) -> PyResult<T> {
    match done {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(failure)) => Err(raised(py, failure)),
        Err(Panicked) => Err(internal(py)),
    }
}

/// Returns the exception for a fault of the package itself.
fn internal(py: Python<'_>) -> PyErr {
    let made = py.import("plimsoll._errors").and_then(|errors| errors.getattr("InternalError")?.call0());
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The resources of a call.
fn resources(
    py: Python<'_>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<Resources> {
    let budget = budget.map(|budget| &budget.get().0);
    Resources::new(budget, threads).map_err(|failure| raised(py, failure))
}

#[pymodule(gil_used = false)]
#[pyo3(name = "_plimsoll")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    command_line::register(module)?;
    estimate::register(module)?;
    geometry::register(module)?;
    interactive::register(module)?;
    jobs::register(module)?;
    memory::register(module)?;
    metrics::register(module)?;
    model::register(module)?;
    patches::register(module)?;
    window::register(module)
}
