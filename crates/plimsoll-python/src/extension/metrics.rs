//! Scores of arrays.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray3;
use pyo3::prelude::*;

use super::arrays::slice;
use super::memory::PyBudget;
use super::{detached, raised, resources};
use crate::{Grid, ScoreOptions, evaluate, group, metric_name, surface, surface_distances};

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure_surfaces, module)?)?;
    module.add_function(wrap_pyfunction!(score, module)?)
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
