//! Distances, components, skeletons and Betti numbers.

use numpy::{PyReadonlyArray3, PyReadwriteArray1, PyReadwriteArray3};
use plimsoll_morphology::{Distance, Label, Recheck, Region, Topology, Voxels};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrays::{AnyMask, Integer, Mask, View, on_mask, slice};
use super::memory::PyBudget;
use super::{detached, raised, resources};
use crate::{
    DistanceOptions, Failure, Grid, Resources, dilated_skeleton, distance_transform,
    distance_transform_of_voxels, features_of, indices, keep_largest_component, neighbours,
};

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(transform_distances, module)?)?;
    module.add_function(wrap_pyfunction!(connected_components, module)?)?;
    module.add_function(wrap_pyfunction!(largest_component, module)?)?;
    module.add_function(wrap_pyfunction!(fill_holes, module)?)?;
    module.add_function(wrap_pyfunction!(skeletonize, module)?)?;
    module.add_function(wrap_pyfunction!(betti_numbers, module)?)
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
    mask: AnyMask<'_>,
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
    let transform = Transform { spacing, rank, options, distances, places, resources };
    match &mask {
        AnyMask::Bytes(mask) => transform.run_on_array(py, mask),
        AnyMask::Shorts(mask) => transform.run_on_array(py, mask),
        AnyMask::Words(mask) => transform.run_on_array(py, mask),
        AnyMask::Longs(mask) => transform.run_on_view(py, View(mask.as_array())),
    }
}

/// A distance transform without its mask.
struct Transform<'a> {
    spacing: [f64; 3],
    rank: usize,
    options: DistanceOptions,
    distances: &'a mut [f32],
    /// The array for indices of nearest voxels, if there is one.
    places: Option<&'a mut [i32]>,
    resources: Resources,
}

impl Transform<'_> {
    /// Transforms an array, whose elements are read as a slice where they are one.
    fn run_on_array<L: Label + Integer>(
        self,
        py: Python<'_>,
        mask: &PyReadonlyArray3<'_, L>,
    ) -> PyResult<()> {
        let Ok(elements) = mask.as_slice() else { return self.run_on_view(py, View(mask.as_array())) };
        self.run(py, mask.as_array().dim().into(), |grid, options, distances, features, resources| {
            distance_transform(elements, grid, options, distances, features, resources)
        })
    }

    /// Transforms a view of an array.
    fn run_on_view<T: Integer>(self, py: Python<'_>, mask: View<'_, T>) -> PyResult<()> {
        self.run(py, mask.shape(), |grid, options, distances, features, resources| {
            distance_transform_of_voxels(&mask, grid, options, distances, features, resources)
        })
    }

    fn run(
        self,
        py: Python<'_>,
        shape: [usize; 3],
        transform: impl FnOnce(
            &Grid,
            &DistanceOptions,
            &mut [f32],
            Option<&mut [u32]>,
            &Resources,
        ) -> Result<(), Failure>
        + Send,
    ) -> PyResult<()> {
        let Transform { spacing, rank, options, distances, places, resources } = self;
        let grid = Grid { shape, spacing, rank };
        detached(py, || {
            let Some(places) = places else {
                return transform(&grid, &options, distances, None, &resources);
            };
            let features = features_of(&grid, places)?;
            transform(&grid, &options, distances, Some(features), &resources)?;
            indices(&grid, places)
        })
    }
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
#[pyo3(signature = (mask, rank, keep_topology, dilations, out, budget=None, threads=None))]
#[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
fn skeletonize(
    py: Python<'_>,
    mask: Mask<'_>,
    rank: usize,
    keep_topology: bool,
    dilations: usize,
    mut out: PyReadwriteArray3<'_, bool>,
    budget: Option<&Bound<'_, PyBudget>>,
    threads: Option<usize>,
) -> PyResult<()> {
    let resources = resources(py, budget, threads)?;
    let recheck = if keep_topology { Recheck::Topology } else { Recheck::Connectivity };
    let out = out.as_slice_mut()?;
    on_mask!(mask, |mask, shape| {
        let grid = Grid { shape, spacing: [1.0; 3], rank };
        detached(py, || dilated_skeleton(mask, &grid, recheck, dilations, out, &resources))
    })
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
