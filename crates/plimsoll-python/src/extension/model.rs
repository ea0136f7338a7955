//! Models, and the jobs that predict files with them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use plimsoll::{Context, Event, StopToken};
use plimsoll_infer::{ArrayImage, ArrayOutput, ArrayPredictor, Progress};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_remedy::render;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use super::memory::PyBudget;
use super::{detached, raised, resources};
use crate::model::{
    ArrayModel, ImagePlan, ModelOptions, OutputFiles, budget_within, element_type, geometry, geometry_of,
};
use crate::model_jobs::{
    FolderOptions, SegmentOptions, import_archive, predict_folder, segment_images, tasks,
};
use crate::{Failure, Keywords, model_files};

/// Adds the class and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyModel>()?;
    module.add_function(wrap_pyfunction!(segment, module)?)?;
    module.add_function(wrap_pyfunction!(segmentation_tasks, module)?)?;
    module.add_function(wrap_pyfunction!(import_models, module)?)?;
    module.add_function(wrap_pyfunction!(write_image, module)?)?;
    module.add_function(wrap_pyfunction!(image_shape, module)?)?;
    module.add_function(wrap_pyfunction!(read_labels, module)?)
}

/// The limit of a prediction.
#[derive(Clone)]
enum Limit {
    /// Bytes, or what the machine leaves.
    Ram(Option<Bytes>),
    /// A budget of the caller, which holds nothing after a call.
    Budget(Budget),
}

/// A network that is kept between calls with the same limit.
struct Loaded {
    ram: Option<Bytes>,
    predictor: ArrayPredictor,
}

#[pyclass(name = "Model", module = "plimsoll._plimsoll", frozen)]
struct PyModel {
    model: ArrayModel,
    loaded: Mutex<Option<Loaded>>,
}

/// An image in memory: its shape, its affine, the type of its voxels and the bytes of each channel.
type Arrays<'py> = ([usize; 3], [f64; 12], String, Vec<PyReadonlyArray1<'py, u8>>);

#[pymethods]
impl PyModel {
    #[new]
    #[pyo3(signature = (path, *, folds, checkpoint, step, gaussian, mirror, window_batch, threads, device, vram, postprocessing))]
    #[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        folds: Vec<String>,
        checkpoint: Option<String>,
        step: f64,
        gaussian: bool,
        mirror: Option<bool>,
        window_batch: usize,
        threads: Option<usize>,
        device: String,
        vram: Option<u64>,
        postprocessing: bool,
    ) -> PyResult<PyModel> {
        let threads = resources(py, None, threads)?.threads;
        let vram = vram.map(Bytes);
        let options = ModelOptions {
            folds,
            checkpoint,
            step,
            gaussian,
            mirror,
            window_batch,
            threads,
            device,
            vram,
            postprocessing,
        };
        let model = detached(py, || ArrayModel::open(&path, options))?;
        Ok(PyModel { model, loaded: Mutex::new(None) })
    }

    fn description(&self) -> PyResult<String> {
        json(self.model.description())
    }

    #[getter]
    fn is_wide(&self) -> bool {
        self.model.is_wide()
    }

    #[getter]
    fn file_ending(&self) -> &str {
        self.model.file_ending()
    }

    /// The names of the cases of a folder, and the files of their channels.
    fn cases(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(String, Vec<PathBuf>)>> {
        detached(py, || {
            let cases = self.model.cases(&path, &budget_within(None))?;
            let named = cases.into_iter().map(|case| {
                let mut files: Vec<PathBuf> = case.images.into_iter().map(|image| image.path).collect();
                // A file that holds all channels is listed for each.
                files.dedup();
                (case.id, files)
            });
            Ok(named.collect())
        })
    }

    /// Frees the network.
    fn close(&self, py: Python<'_>) {
        py.detach(|| *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }

    #[pyo3(signature = (shape, affine, element, *, ram=None, budget=None))]
    fn plan_array(
        &self,
        py: Python<'_>,
        shape: [usize; 3],
        affine: [f64; 12],
        element: &str,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
    ) -> PyResult<String> {
        let plan = self.with_predictor(py, limit(ram, budget), |predictor| {
            let found = predictor.estimate(geometry(shape, affine)?, element_type(element)?)?;
            Ok(ImagePlan { plan: found.plan, least_ram_bytes: found.least_ram_bytes })
        })?;
        json(&plan)
    }

    #[pyo3(signature = (paths, *, probabilities=false, ram=None, budget=None))]
    fn plan_files(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        probabilities: bool,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
    ) -> PyResult<String> {
        let plan = self.with_predictor(py, limit(ram, budget), |predictor| {
            self.model.plan_files(predictor, &paths, probabilities)
        })?;
        json(&plan)
    }

    /// The shape of the image in files.
    fn shape_of_files(&self, py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<(usize, usize, usize)> {
        let [depth, height, width] = detached(py, || {
            let budget = budget_within(None);
            let case = self.model.case(&paths, &budget)?;
            Ok(geometry_of(&case)?.shape())
        })?;
        Ok((depth, height, width))
    }

    #[pyo3(signature = (image, labels, *, probabilities=None, ram=None, budget=None, progress=None))]
    fn predict_array(
        &self,
        py: Python<'_>,
        image: Arrays<'_>,
        mut labels: PyReadwriteArray1<'_, u8>,
        probabilities: Option<PathBuf>,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (shape, affine, element, channels) = &image;
        let channels = channels.iter().map(|channel| channel.as_slice()).collect::<Result<Vec<_>, _>>()?;
        let labels = labels.as_slice_mut()?;
        let is_wide = self.model.is_wide();
        let watch = Watch::new(progress);
        let predicted = self.with_predictor(py, limit(ram, budget), |predictor| {
            let image = ArrayImage {
                geometry: geometry(*shape, *affine)?,
                element: element_type(element)?,
                channels,
            };
            let output = ArrayOutput { labels, is_wide, probabilities: probabilities.as_deref() };
            self.model.predict_arrays(predictor, &image, output, &watch.stop, &mut |at| watch.observe(at))
        });
        watch.outcome(predicted)
    }

    #[pyo3(signature = (paths, labels, *, probabilities=None, ram=None, budget=None, progress=None))]
    fn predict_files(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        mut labels: PyReadwriteArray1<'_, u8>,
        probabilities: Option<PathBuf>,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let labels = labels.as_slice_mut()?;
        let is_wide = self.model.is_wide();
        let watch = Watch::new(progress);
        let predicted = self.with_predictor(py, limit(ram, budget), |predictor| {
            let case = self.model.case(&paths, &predictor.budget())?;
            let output = ArrayOutput { labels, is_wide, probabilities: probabilities.as_deref() };
            self.model.predict_case(predictor, &case, output, &watch.stop, &mut |at| watch.observe(at))
        });
        watch.outcome(predicted)
    }

    #[pyo3(signature = (paths, output, *, probabilities=None, ram=None, budget=None, progress=None))]
    fn predict_to_file(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        output: PathBuf,
        probabilities: Option<PathBuf>,
        ram: Option<u64>,
        budget: Option<&Bound<'_, PyBudget>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let watch = Watch::new(progress);
        let predicted = self.with_predictor(py, limit(ram, budget), |predictor| {
            let case = self.model.case(&paths, &predictor.budget())?;
            let files = OutputFiles { labels: &output, probabilities: probabilities.as_deref() };
            self.model.predict_to_file(predictor, &case, &files, &watch.stop, &mut |at| watch.observe(at))
        });
        watch.outcome(predicted)
    }

    /// Predicts a folder of images, and returns the report as JSON and warnings.
    #[pyo3(signature = (input, output, *, probabilities, overwrite, earlier=None, part=None, ram=None, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
    fn predict_folder(
        &self,
        py: Python<'_>,
        input: PathBuf,
        output: PathBuf,
        probabilities: bool,
        overwrite: bool,
        earlier: Option<PathBuf>,
        part: Option<String>,
        ram: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, Vec<String>)> {
        let ram = ram.map(Bytes);
        let options = FolderOptions { input, output, probabilities, overwrite, earlier, part, ram };
        self.close(py);
        run_job(py, progress, |context| predict_folder(&self.model, &options, context))
    }
}

impl PyModel {
    /// Calls a function with the network, without the interpreter's lock.
    fn with_predictor<T: Send>(
        &self,
        py: Python<'_>,
        limit: Limit,
        call: impl FnOnce(&mut ArrayPredictor) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            // A network that a panic has left is not used again.
            let mut loaded = self.loaded.lock().unwrap_or_else(|poisoned| {
                let mut guard = poisoned.into_inner();
                *guard = None;
                guard
            });
            match limit {
                Limit::Budget(budget) => call(&mut self.model.load(&budget)?),
                Limit::Ram(ram) => {
                    if loaded.as_ref().is_some_and(|loaded| loaded.ram != ram) {
                        *loaded = None;
                    }
                    let loaded = match &mut *loaded {
                        Some(loaded) => loaded,
                        none => {
                            let predictor = self.model.load(&budget_within(ram))?;
                            none.insert(Loaded { ram, predictor })
                        }
                    };
                    call(&mut loaded.predictor)
                }
            }
        })
    }
}

/// The limit that a call names.
fn limit(ram: Option<u64>, budget: Option<&Bound<'_, PyBudget>>) -> Limit {
    match budget {
        Some(budget) => Limit::Budget(budget.get().0.clone()),
        None => Limit::Ram(ram.map(Bytes)),
    }
}

/// The JSON text of a value.
pub(super) fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The observer of a prediction: it passes progress on, and stops the prediction if Python is interrupted.
pub(super) struct Watch {
    pub(super) stop: AtomicBool,
    progress: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
}

impl Watch {
    pub(super) fn new(progress: Option<Py<PyAny>>) -> Watch {
        Watch { stop: AtomicBool::new(false), progress, raised: Mutex::new(None) }
    }

    fn observe(&self, at: Progress) {
        self.report(at.windows, at.of);
    }

    /// Passes the numbers of finished pieces and of all pieces on.
    pub(super) fn report(&self, done: usize, of: usize) {
        let told = Python::attach(|py| {
            py.check_signals()?;
            match &self.progress {
                Some(progress) => progress.call1(py, (done, of)).map(|_| ()),
                None => Ok(()),
            }
        });
        if let Err(error) = told {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The exception that ended the prediction, or else its result.
    pub(super) fn outcome<T>(self, result: PyResult<T>) -> PyResult<T> {
        match self.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => result,
        }
    }
}

/// The events of a job that Python sees.
struct Events {
    stop: StopToken,
    progress: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
    warnings: Mutex<Vec<String>>,
}

impl Events {
    fn see(&self, event: &Event<'_>) {
        match event {
            Event::Warning { text } => {
                let text = render(text, &Keywords);
                self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            }
            Event::WorkAdvanced { work, done, .. } => {
                let told = Python::attach(|py| {
                    py.check_signals()?;
                    match (&self.progress, work.pieces) {
                        (Some(progress), Some(pieces)) => progress.call1(py, (*done, pieces)).map(|_| ()),
                        _ => Ok(()),
                    }
                });
                if let Err(error) = told {
                    *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    self.stop.ask();
                }
            }
            _ => {}
        }
    }
}

/// Runs a job without the interpreter's lock. Returns its report as JSON, and its warnings.
fn run_job<T: Serialize + Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    job: impl FnOnce(&Context) -> Result<T, Failure> + Send,
) -> PyResult<(String, Vec<String>)> {
    let events = Arc::new(Events {
        stop: StopToken::default(),
        progress,
        raised: Mutex::new(None),
        warnings: Mutex::new(Vec::new()),
    });
    let observer = Arc::clone(&events);
    let mut context = Context::observed(move |event: &Event<'_>| observer.see(event));
    context.stop = events.stop.clone();
    let report = detached(py, || job(&context));
    if let Some(error) = events.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let warnings = std::mem::take(&mut *events.warnings.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((json(&report?)?, warnings))
}

/// Runs tasks of TotalSegmentator on files, and returns the report as JSON and warnings.
#[pyfunction]
#[pyo3(signature = (tasks, input, output, *, one_file, mode, subset, body_seg, robust_crop, by_logits, small, remove_small_blobs, derived, statistics, incomplete, report, preview, dicom, weights, overwrite, part, device, vram, threads, ram, progress=None))]
#[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
fn segment(
    py: Python<'_>,
    tasks: Vec<String>,
    input: PathBuf,
    output: PathBuf,
    one_file: bool,
    mode: &str,
    subset: Vec<String>,
    body_seg: bool,
    robust_crop: bool,
    by_logits: bool,
    small: bool,
    remove_small_blobs: Option<f64>,
    derived: bool,
    statistics: bool,
    incomplete: bool,
    report: bool,
    preview: bool,
    dicom: &str,
    weights: PathBuf,
    overwrite: bool,
    part: Option<String>,
    device: String,
    vram: Option<u64>,
    threads: Option<usize>,
    ram: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    let threads = resources(py, None, threads)?.threads;
    let options = SegmentOptions {
        tasks,
        input,
        output,
        one_file,
        mode: mode.into(),
        subset,
        body_seg,
        robust_crop,
        by_logits,
        small,
        remove_small_blobs,
        derived,
        statistics,
        incomplete,
        report,
        preview,
        dicom: dicom.into(),
        weights,
        overwrite,
        part,
        device,
        vram: vram.map(Bytes),
        threads,
        ram: ram.map(Bytes),
    };
    run_job(py, progress, |context| segment_images(options, context))
}

/// The names of TotalSegmentator's tasks and of their labels.
#[pyfunction]
fn segmentation_tasks(py: Python<'_>) -> PyResult<Vec<(String, Vec<String>)>> {
    tasks().map_err(|failure| raised(py, failure))
}

/// Extracts the models of an archive of nnU-Net into a folder, and returns their folders.
#[pyfunction]
fn import_models(py: Python<'_>, archive: PathBuf, to: PathBuf) -> PyResult<Vec<PathBuf>> {
    detached(py, || import_archive(&archive, &to))
}

/// Writes an image of one channel to a file, in the format of its name.
#[pyfunction]
fn write_image(
    py: Python<'_>,
    path: PathBuf,
    shape: [usize; 3],
    affine: [f64; 12],
    element: &str,
    voxels: PyReadonlyArray1<'_, u8>,
) -> PyResult<()> {
    let voxels = voxels.as_slice()?;
    detached(py, || model_files::write_image(&path, geometry(shape, affine)?, element_type(element)?, voxels))
}

/// Depth, height, width of the image in a file.
#[pyfunction]
fn image_shape(py: Python<'_>, path: PathBuf) -> PyResult<(usize, usize, usize)> {
    let [depth, height, width] = detached(py, || model_files::image_shape(&path))?;
    Ok((depth, height, width))
}

/// Copies the labels of a file, which are at most 255, to an array.
#[pyfunction]
fn read_labels(py: Python<'_>, path: PathBuf, mut labels: PyReadwriteArray1<'_, u8>) -> PyResult<()> {
    let labels = labels.as_slice_mut()?;
    detached(py, || model_files::read_labels(&path, labels))
}
