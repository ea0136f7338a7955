//! Interactive sessions.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use plimsoll_infer::PromptMask;
use plimsoll_memory::Bytes;
use pyo3::prelude::*;

use super::memory::PyBudget;
use super::model::{Watch, json};
use super::{detached, resources};
use crate::model::{budget_within, element_type};
use crate::{ArraySession, Failure, MaskKind, SessionOptions};

/// Adds the class to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySession>()
}

#[pyclass(name = "InteractiveSession", module = "plimsoll._plimsoll", frozen)]
struct PySession(Mutex<Option<ArraySession>>);

/// A box of voxels: its first one, and the one past its last.
type Ends = ((usize, usize, usize), (usize, usize, usize));

#[pymethods]
impl PySession {
    #[new]
    #[pyo3(signature = (path, *, fold, auto_zoom, threads, device, vram, ram=None, budget=None))]
    #[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        fold: Option<String>,
        auto_zoom: bool,
        threads: Option<usize>,
        device: String,
        vram: Option<u64>,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
    ) -> PyResult<PySession> {
        let threads = resources(py, None, threads)?.threads;
        let options = SessionOptions { fold, auto_zoom, threads, device, vram: vram.map(Bytes) };
        let budget = budget.map(|budget| budget.get().0.clone());
        let session = detached(py, || {
            let budget = budget.unwrap_or_else(|| budget_within(ram.map(Bytes)));
            ArraySession::open(&path, &options, &budget)
        })?;
        Ok(PySession(Mutex::new(Some(session))))
    }

    fn description(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.with(py, |session| Ok(session.description().clone()))?)
    }

    fn plan(&self, py: Python<'_>, shape: [usize; 3]) -> PyResult<String> {
        json(&self.with(py, |session| Ok(session.session().plan(shape)?))?)
    }

    fn set_image(
        &self,
        py: Python<'_>,
        shape: [usize; 3],
        element: &str,
        voxels: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<String> {
        let voxels = voxels.as_slice()?;
        json(&self.with(py, |session| session.set_image(shape, element_type(element)?, voxels))?)
    }

    fn set_auto_zoom(&self, py: Python<'_>, auto_zoom: bool) -> PyResult<()> {
        self.with(py, |session| {
            session.session().set_auto_zoom(auto_zoom);
            Ok(())
        })
    }

    fn add_point(&self, py: Python<'_>, at: [i64; 3], include: bool) -> PyResult<()> {
        self.with(py, |session| Ok(session.session().add_point(at, include)?))
    }

    fn add_box(&self, py: Python<'_>, start: [i64; 3], end: [i64; 3], include: bool) -> PyResult<()> {
        self.with(py, |session| Ok(session.session().add_box(start, end, include)?))
    }

    /// Adds a scribble or, with `lasso`, a lasso.
    fn add_mask(
        &self,
        py: Python<'_>,
        lasso: bool,
        start: [usize; 3],
        shape: [usize; 3],
        voxels: PyReadonlyArray1<'_, u8>,
        include: bool,
    ) -> PyResult<()> {
        let voxels = voxels.as_slice()?;
        let kind = if lasso { MaskKind::Lasso } else { MaskKind::Scribble };
        self.with(py, |session| session.add_mask(kind, PromptMask { start, shape, voxels }, include))
    }

    fn add_initial_segmentation(&self, py: Python<'_>, voxels: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let voxels = voxels.as_slice()?;
        self.with(py, |session| Ok(session.session().add_initial_segmentation(voxels)?))
    }

    #[pyo3(signature = (*, progress=None))]
    fn predict(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Option<Ends>> {
        let watch = Watch::new(progress);
        let predicted =
            self.with(py, |session| session.predict(&watch.stop, &mut |done, of| watch.report(done, of)));
        let changed = watch.outcome(predicted)?;
        Ok(changed.map(|within| {
            let end: [usize; 3] = std::array::from_fn(|axis| within.start[axis] + within.shape[axis]);
            (within.start.into(), end.into())
        }))
    }

    fn undo(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |session| Ok(session.session().undo()))
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |session| {
            session.session().reset();
            Ok(())
        })
    }

    fn prompts(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |session| Ok(session.session().prompts()))
    }

    /// The shape of the image, if there is one.
    fn shape(&self, py: Python<'_>) -> PyResult<Option<(usize, usize, usize)>> {
        self.with(py, |session| Ok(session.session().shape().map(Into::into)))
    }

    fn write_segmentation(&self, py: Python<'_>, mut to: PyReadwriteArray1<'_, u8>) -> PyResult<()> {
        let to = to.as_slice_mut()?;
        self.with(py, |session| Ok(session.session().write_segmentation(to)?))
    }

    /// Frees the network and the image.
    fn close(&self, py: Python<'_>) {
        py.detach(|| *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }
}

impl PySession {
    /// Calls a function with the session, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut ArraySession) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            // A session that a panic has left is not used again.
            let mut session = self.0.lock().unwrap_or_else(|poisoned| {
                let mut guard = poisoned.into_inner();
                *guard = None;
                guard
            });
            let closed = || Failure::Failed {
                message: "the session is closed".into(),
                remedy: Some("open another one".into()),
            };
            call(session.as_mut().ok_or_else(closed)?)
        })
    }
}
