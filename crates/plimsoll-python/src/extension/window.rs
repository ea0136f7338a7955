//! Sums of windows of arrays.

use numpy::{PyReadonlyArray5, PyReadwriteArray3, PyReadwriteArray4};
use plimsoll_infer::{RingStorage, WindowRequest, WindowSums};
use pyo3::prelude::*;

use super::memory::PyBudget;
use super::{detached, resources};
use crate::{WindowOutput, add_windows};

/// Adds the class to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWindowSums>()
}

/// The array of labels or logits of an image.
#[derive(FromPyObject)]
enum Output<'py> {
    Bytes(PyReadwriteArray3<'py, u8>),
    Shorts(PyReadwriteArray3<'py, u16>),
    Logits(PyReadwriteArray4<'py, f32>),
}

#[pyclass(name = "WindowSums", module = "plimsoll._plimsoll")]
struct PyWindowSums(WindowSums);

#[pymethods]
impl PyWindowSums {
    #[new]
    #[pyo3(signature = (image, window, overlap, sigma_scale, outputs, *, logits=false, half=false, budget=None, threads=None))]
    #[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
    fn new(
        py: Python<'_>,
        image: [usize; 3],
        window: [usize; 3],
        overlap: [f64; 3],
        sigma_scale: Option<[f64; 3]>,
        outputs: usize,
        logits: bool,
        half: bool,
        budget: Option<&Bound<'_, PyBudget>>,
        threads: Option<usize>,
    ) -> PyResult<PyWindowSums> {
        let resources = resources(py, budget, threads)?;
        let request = WindowRequest {
            image,
            window,
            overlap,
            sigma_scale,
            outputs,
            logits,
            storage: if half { RingStorage::F16 } else { RingStorage::F32 },
            threads: resources.threads,
        };
        detached(py, || Ok(WindowSums::new(&request, &resources.budget)?)).map(PyWindowSums)
    }

    #[getter]
    fn windows(&self) -> usize {
        self.0.windows()
    }

    #[getter]
    fn strips(&self) -> usize {
        self.0.strips()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes().0
    }

    #[getter]
    fn label_bytes(&self) -> usize {
        self.0.label_bytes()
    }

    fn starts(&self, count: usize) -> Vec<(i64, i64, i64)> {
        self.0.starts(count).map(|[depth, height, width]| (depth, height, width)).collect()
    }

    fn add(
        &mut self,
        py: Python<'_>,
        logits: PyReadonlyArray5<'_, f32>,
        mut output: Output<'_>,
    ) -> PyResult<()> {
        let logits = logits.as_slice()?;
        let mut output = match &mut output {
            Output::Bytes(labels) => WindowOutput::Labels(labels.as_slice_mut()?),
            Output::Shorts(labels) => WindowOutput::Labels(bytemuck::cast_slice_mut(labels.as_slice_mut()?)),
            Output::Logits(logits) => WindowOutput::Logits(logits.as_slice_mut()?),
        };
        let sums = &mut self.0;
        detached(py, || add_windows(sums, logits, &mut output))
    }
}
