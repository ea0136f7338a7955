//! Jobs of the library, whose events go to a function of Python on the thread that called.

use std::time::Duration;

use plimsoll_run::CacheFolder;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{internal, raised};
use crate::JobFailure;
use crate::jobs::{Kind, Running, job};

/// The time between two checks for signals.
const TICK: Duration = Duration::from_millis(100);

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // DICOM is read where images are opened, in all functions.
    plimsoll_dicom::register();
    module.add_function(wrap_pyfunction!(run_job, module)?)?;
    module.add_function(wrap_pyfunction!(launched_rank, module)?)?;
    module.add_function(wrap_pyfunction!(close_ranks, module)?)
}

/// Runs a job to its end, and returns its result as JSON. The observer is called with each event as JSON. An exception of it, or Ctrl-C, stops
/// the job as soon as its results are saved, and is raised then.
#[pyfunction]
#[pyo3(signature = (name, arguments, observer=None))]
fn run_job(
    py: Python<'_>,
    name: &str,
    arguments: String,
    observer: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let job = job(name).ok_or_else(|| PyValueError::new_err(format!("unknown job {name:?}")))?;
    let cache = CacheFolder::for_user(|name| std::env::var_os(name));
    let mut running = Running::start(job, arguments, cache).map_err(|failure| raised(py, failure))?;
    let mut interruption = None;
    loop {
        let pending = py.detach(|| running.pending(TICK));
        if interruption.is_none() {
            let handled = py.check_signals().and_then(|()| handle(observer, &pending.events));
            if let Err(raised) = handled {
                running.stop();
                interruption = Some(raised);
            }
        }
        if pending.is_ended {
            break;
        }
    }
    match (py.detach(|| running.finish()), interruption) {
        (Err(_), _) => Err(internal(py)),
        (Ok(Ok(result)), None) => Ok(result),
        (Ok(Err(failure)), None) => Err(raised(py, failure)),
        // The job failed while it was stopping, so that its results may not be saved.
        (Ok(Err(failure)), Some(interruption)) if !failure.is_stopped() => {
            let error = raised(py, failure);
            error.set_cause(py, Some(interruption));
            Err(error)
        }
        (Ok(_), Some(interruption)) => Err(interruption),
    }
}

/// Calls the observer with events.
fn handle(observer: Option<&Bound<'_, PyAny>>, events: &[String]) -> PyResult<()> {
    let Some(observer) = observer else { return Ok(()) };
    events.iter().try_for_each(|event| observer.call1((event,)).map(drop))
}

/// The number of this process among those that a launcher has started; none if it is alone.
#[pyfunction]
fn launched_rank(py: Python<'_>) -> PyResult<Option<usize>> {
    let launch = crate::launched_ranks().map_err(|failure| raised(py, failure))?;
    Ok(launch.map(|launch| launch.rank))
}

/// Ends the communication with other ranks: together with them, or by ending all of them if the script has failed.
#[pyfunction]
fn close_ranks(py: Python<'_>, has_failed: bool) {
    py.detach(|| crate::close_ranks(has_failed));
}

/// Returns the exception for a failure of a job.
pub(super) fn exception<'py>(errors: &Bound<'py, PyModule>, failure: JobFailure) -> PyResult<PyErr> {
    let JobFailure { message, remedy, kind } = failure;
    Ok(match kind {
        Kind::Argument => PyValueError::new_err(message),
        Kind::OverLimit { needed, available, limit, holders } => {
            let arguments = (message, remedy, needed, available, limit, holders);
            PyErr::from_value(errors.getattr("OverLimit")?.call1(arguments)?)
        }
        Kind::Stopped | Kind::Failed => PyErr::from_value(errors.getattr("Error")?.call1((message, remedy))?),
    })
}
