//! The module `plimsoll._plimsoll`. Its arguments are arrays in C order whose types the package has checked.
#![allow(unsafe_code, reason = "expansions of pyo3's macros call Python's C interface")]
#![allow(missing_docs, reason = "functions are documented where the package wraps them")]

use std::collections::BTreeMap;

use numpy::{PyReadonlyArray3, PyReadwriteArray1, PyReadwriteArray3};
use plimsoll_memory::{Budget, Bytes, OverBudget};
use plimsoll_morphology::{Distance, Label, Recheck, Region, Topology};
use plimsoll_parallel::{Panicked, catch_panic};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{
    DistanceOptions, Failure, Grid, Resources, ScoreOptions, distance_transform, evaluate, features_of,
    group, holders, indices, keep_largest_component, metric_name, neighbours, process_budget, surface,
    surface_distances, unlimited,
};

/// A limit of memory in bytes, and the ledger of its reservations.
#[pyclass(name = "Budget", module = "plimsoll._plimsoll", frozen)]
struct PyBudget(Budget);

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
        self.0.line().0
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

/// A mask in one of the types that kernels read.
#[derive(FromPyObject)]
enum Mask<'py> {
    Bytes(PyReadonlyArray3<'py, u8>),
    Shorts(PyReadonlyArray3<'py, u16>),
    Words(PyReadonlyArray3<'py, u32>),
}

/// Runs a generic call on the slice of a mask, whose shape it is given.
macro_rules! on_mask {
    ($mask:expr, |$slice:ident, $shape:ident| $call:expr) => {
        match &$mask {
            Mask::Bytes(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
            Mask::Shorts(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
            Mask::Words(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
        }
    };
}

/// The elements of an array in C order, and its shape.
fn slice<'a, T: numpy::Element>(array: &'a PyReadonlyArray3<'_, T>) -> PyResult<(&'a [T], [usize; 3])> {
    let shape = array.as_array().dim().into();
    Ok((array.as_slice()?, shape))
}

/// Returns the exception for a failure.
fn raised(py: Python<'_>, failure: Failure) -> PyErr {
    let text = failure.to_string();
    let (remedy, held) = (failure.remedy(), failure.holders());
    let made = py.import("plimsoll._errors").and_then(|errors| match failure {
        Failure::Argument { .. } => Ok(PyValueError::new_err(text)),
        Failure::OverLimit(OverBudget { needed, free, line, .. }) => {
            let arguments = (text, remedy, needed.0, free.0, line.0, held);
            Ok(PyErr::from_value(errors.getattr("OverLimit")?.call1(arguments)?))
        }
        Failure::Failed { .. } => Ok(PyErr::from_value(errors.getattr("Error")?.call1((text, remedy))?)),
    });
    made.unwrap_or_else(|error| error)
}

/// Runs a call without the interpreter's lock; a panic becomes `plimsoll.InternalError`.
fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    match py.detach(|| catch_panic(call)) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(failure)) => Err(raised(py, failure)),
        Err(Panicked) => {
            let errors = py.import("plimsoll._errors")?;
            Err(PyErr::from_value(errors.getattr("InternalError")?.call0()?))
        }
    }
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

/// The voxels that distances are measured to, by name.
fn distance_by_name(name: &str) -> PyResult<Distance> {
    match name {
        "background" => Ok(Distance::ToBackground),
        "labels" => Ok(Distance::ToOtherLabel),
        "signed" => Ok(Distance::Signed),
        _ => Err(PyValueError::new_err(format!("unknown distance {name:?}"))),
    }
}

#[pyfunction]
#[pyo3(signature = (mask, spacing, rank, distance, squared, black_border, distances, indices=None, budget=None, threads=None))]
#[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
fn transform_distances(
    py: Python<'_>,
    mask: Mask<'_>,
    spacing: [f64; 3],
    rank: usize,
    distance: &str,
    squared: bool,
    black_border: bool,
    mut distances: PyReadwriteArray3<'_, f32>,
    indices: Option<PyReadwriteArray1<'_, i32>>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<()> {
    let resources = resources(py, budget, threads)?;
    let options = DistanceOptions { distance: distance_by_name(distance)?, squared, black_border };
    let distances = distances.as_slice_mut()?;
    let mut places = indices;
    let places = places.as_mut().map(|array| array.as_slice_mut()).transpose()?;
    on_mask!(mask, |mask, shape| {
        let grid = Grid { shape, spacing, rank };
        detached(py, || transform(mask, &grid, &options, distances, places, &resources))
    })
}

/// Transforms a mask, with the indices of nearest voxels where there is an array for them.
fn transform<L: Label>(
    mask: &[L],
    grid: &Grid,
    options: &DistanceOptions,
    distances: &mut [f32],
    places: Option<&mut [i32]>,
    resources: &Resources,
) -> Result<(), Failure> {
    let Some(places) = places else {
        return distance_transform(mask, grid, options, distances, None, resources);
    };
    let features = features_of(grid, places)?;
    distance_transform(mask, grid, options, distances, Some(features), resources)?;
    indices(grid, places)
}

#[pyfunction]
#[pyo3(signature = (mask, rank, connectivity, same_label, labels, budget=None, threads=None))]
fn connected_components(
    py: Python<'_>,
    mask: Mask<'_>,
    rank: usize,
    connectivity: u32,
    same_label: bool,
    mut labels: PyReadwriteArray3<'_, u32>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<u32> {
    let resources = resources(py, budget, threads)?;
    let connectivity = neighbours(rank, connectivity).map_err(|failure| raised(py, failure))?;
    let region = if same_label { Region::SameLabel } else { Region::Foreground };
    let labels = labels.as_slice_mut()?;
    on_mask!(mask, |mask, shape| {
        let grid = Grid { shape, spacing: [1.0; 3], rank };
        detached(py, || crate::connected_components(mask, &grid, connectivity, region, labels, &resources))
    })
}

#[pyfunction]
#[pyo3(signature = (mask, rank, connectivity, out, budget=None, threads=None))]
fn largest_component(
    py: Python<'_>,
    mask: Mask<'_>,
    rank: usize,
    connectivity: u32,
    mut out: PyReadwriteArray3<'_, bool>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<()> {
    let resources = resources(py, budget, threads)?;
    let connectivity = neighbours(rank, connectivity).map_err(|failure| raised(py, failure))?;
    let out = out.as_slice_mut()?;
    on_mask!(mask, |mask, shape| {
        let grid = Grid { shape, spacing: [1.0; 3], rank };
        detached(py, || keep_largest_component(mask, &grid, connectivity, out, &resources))
    })
}

#[pyfunction]
#[pyo3(signature = (mask, rank, connectivity, out, budget=None, threads=None))]
fn fill_holes(
    py: Python<'_>,
    mask: Mask<'_>,
    rank: usize,
    connectivity: u32,
    mut out: PyReadwriteArray3<'_, bool>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<()> {
    let resources = resources(py, budget, threads)?;
    let background = neighbours(rank, connectivity).map_err(|failure| raised(py, failure))?;
    let out = out.as_slice_mut()?;
    on_mask!(mask, |mask, shape| {
        let grid = Grid { shape, spacing: [1.0; 3], rank };
        detached(py, || crate::fill_holes(mask, &grid, background, out, &resources))
    })
}

#[pyfunction]
#[pyo3(signature = (mask, keep_topology, out, budget=None, threads=None))]
fn skeletonize(
    py: Python<'_>,
    mask: Mask<'_>,
    keep_topology: bool,
    mut out: PyReadwriteArray3<'_, bool>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<()> {
    let Resources { budget, threads } = resources(py, budget, threads)?;
    let recheck = if keep_topology { Recheck::Topology } else { Recheck::Connectivity };
    let out = out.as_slice_mut()?;
    on_mask!(mask, |mask, shape| detached(py, || {
        Ok(plimsoll_morphology::skeletonize(mask, shape, recheck, out, &budget, threads)?)
    }))
}

#[pyfunction]
#[pyo3(signature = (mask, connectivity, budget=None, threads=None))]
fn betti_numbers(
    py: Python<'_>,
    mask: Mask<'_>,
    connectivity: u32,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<(u64, u64, u64)> {
    let Resources { budget, threads } = resources(py, budget, threads)?;
    let topology = match connectivity {
        4 | 6 => Topology::Faces,
        8 | 26 => Topology::Corners,
        _ => {
            return Err(PyValueError::new_err(format!(
                "connectivity is {connectivity}, but must be 4, 6, 8 or 26"
            )));
        }
    };
    on_mask!(mask, |mask, shape| {
        let betti = detached(py, || {
            Ok(plimsoll_morphology::betti_numbers(mask, shape, topology, &budget, threads)?)
        })?;
        Ok((betti.components, betti.tunnels, betti.cavities))
    })
}

#[pyfunction]
#[pyo3(signature = (prediction, reference, spacing, definition, tolerance, budget=None, threads=None))]
fn measure_surfaces(
    py: Python<'_>,
    prediction: PyReadonlyArray3<'_, u8>,
    reference: PyReadonlyArray3<'_, u8>,
    spacing: [f64; 3],
    definition: &str,
    tolerance: f64,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<(f64, f64, f64, f64, f64, f64)> {
    let resources = resources(py, budget, threads)?;
    let definition = surface(definition).map_err(|failure| raised(py, failure))?;
    let (prediction, shape) = slice(&prediction)?;
    let (reference, _) = slice(&reference)?;
    let grid = Grid { shape, spacing, rank: 3 };
    let found =
        detached(py, || surface_distances(prediction, reference, &grid, definition, tolerance, &resources))?;
    let [from_prediction, from_reference] = found.averages;
    Ok((
        found.hausdorff,
        found.hausdorff_95,
        found.average_symmetric,
        from_prediction,
        from_reference,
        found.surface_dice,
    ))
}

#[pyfunction]
#[pyo3(signature = (prediction, reference, spacing, labels, metrics, definition, tolerance, ignore, budget=None, threads=None))]
#[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
fn score(
    py: Python<'_>,
    prediction: PyReadonlyArray3<'_, u8>,
    reference: PyReadonlyArray3<'_, u8>,
    spacing: [f64; 3],
    labels: Vec<u8>,
    metrics: Vec<String>,
    definition: &str,
    tolerance: f64,
    ignore: Option<u8>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<BTreeMap<u8, BTreeMap<String, Option<f64>>>> {
    let resources = resources(py, budget, threads)?;
    let groups = metrics.iter().map(|name| group(name)).collect::<Result<_, _>>();
    let options = ScoreOptions {
        labels,
        groups: groups.map_err(|failure| raised(py, failure))?,
        surface: surface(definition).map_err(|failure| raised(py, failure))?,
        tolerance,
        ignore,
    };
    let (prediction, shape) = slice(&prediction)?;
    let (reference, _) = slice(&reference)?;
    let grid = Grid { shape, spacing, rank: 3 };
    let scores = detached(py, || evaluate(prediction, reference, &grid, &options, &resources))?;
    let named = scores.into_iter().map(|(label, scores)| {
        let scores = scores.into_iter().map(|(metric, score)| (metric_name(metric), score)).collect();
        (label, scores)
    });
    Ok(named.collect())
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

#[pymodule(gil_used = false)]
#[pyo3(name = "_plimsoll")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyBudget>()?;
    module.add_class::<Reservation>()?;
    module.add_function(wrap_pyfunction!(transform_distances, module)?)?;
    module.add_function(wrap_pyfunction!(connected_components, module)?)?;
    module.add_function(wrap_pyfunction!(largest_component, module)?)?;
    module.add_function(wrap_pyfunction!(fill_holes, module)?)?;
    module.add_function(wrap_pyfunction!(skeletonize, module)?)?;
    module.add_function(wrap_pyfunction!(betti_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(measure_surfaces, module)?)?;
    module.add_function(wrap_pyfunction!(score, module)?)?;
    module.add_function(wrap_pyfunction!(parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(unlimited_holders, module)?)
}
