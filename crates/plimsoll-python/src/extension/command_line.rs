//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use plimsoll_cli::{Invocation, run};
use pyo3::prelude::*;

/// Adds the function to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(command_line, module)?)
}

/// Runs a command in this process, which it takes over, and returns the exit status.
#[pyfunction]
fn command_line(py: Python<'_>, program: PathBuf, arguments: Vec<OsString>) -> u8 {
    py.detach(|| run(&Invocation::new(program, arguments)))
}
