//! Budgets and the memory that is reserved from them.

use plimsoll_memory::{Budget, Bytes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::raised;
use crate::{Failure, holders, process_budget, unlimited};

/// Adds the classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBudget>()?;
    module.add_class::<Reservation>()?;
    module.add_function(wrap_pyfunction!(parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(unlimited_holders, module)?)
}

/// A limit of memory in bytes, and the ledger of its reservations.
#[pyclass(name = "Budget", module = "plimsoll._plimsoll", frozen)]
pub(super) struct PyBudget(pub(super) Budget);

#[pymethods]
impl PyBudget {
    #[new]
    #[pyo3(signature = (limit, *, of_process=false))]
    fn new(py: Python<'_>, limit: u64, of_process: bool) -> PyResult<PyBudget> {
        if of_process {
            return process_budget(Bytes(limit)).map(PyBudget).map_err(|failure| raised(py, failure));
        }
        Ok(PyBudget(Budget::new(Bytes(limit))))
    }

    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit().0
    }

    #[getter]
    fn used(&self) -> u64 {
        self.0.used().0
    }

    #[getter]
    fn free(&self) -> u64 {
        self.0.free().0
    }

    #[getter]
    fn peak(&self) -> u64 {
        self.0.peak().0
    }

    fn holders(&self) -> Vec<(String, u64, u64)> {
        holders(&self.0)
    }

    /// Reserves bytes for an array of the package, and releases them with the returned object.
    fn reserve(&self, py: Python<'_>, holder: &str, bytes: u64) -> PyResult<Reservation> {
        let reserved = self.0.reserve(holder, Bytes(bytes));
        reserved.map(|held| Reservation { _held: held }).map_err(|over| raised(py, Failure::OverLimit(over)))
    }
}

/// Bytes that are reserved for as long as the object lives.
#[pyclass(module = "plimsoll._plimsoll", frozen)]
struct Reservation {
    _held: plimsoll_memory::Reservation,
}

#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The holders of the budget of calls that are given none: name, bytes now and largest number of bytes.
#[pyfunction]
fn unlimited_holders() -> Vec<(String, u64, u64)> {
    holders(&unlimited())
}
