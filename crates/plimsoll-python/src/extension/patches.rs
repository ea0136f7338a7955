//! Streams of batches of patches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use numpy::ndarray::ArrayViewD;
use numpy::{Element, PyArrayDyn};
use plimsoll::{Context, DataPlace, FoldRequest, StopToken};
use plimsoll_data::DataSettings;
use plimsoll_parallel::{Panicked, catch_panic};
use plimsoll_run::{CacheFolder, Settings};
use pyo3::prelude::*;

use super::memory::PyBudget;
use super::{detached, raised, resources};
use crate::{
    AugmentationChoice, EpochLength, Failure, InProcess, LabelBuffer, LabelType, PatchBatch, PatchOptions,
    PatchSettings, PatchStream, StreamFacts, Turn, Warnings, parsed, section_by_name,
};

/// The time between two looks at whether the user has interrupted.
const PATIENCE: Duration = Duration::from_millis(50);

/// Adds the classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPatchStream>()?;
    module.add_class::<LentBatch>()
}

/// Cases, channels, classes, values of labels and spacing of a stream.
type Facts = (Vec<String>, Vec<String>, Vec<String>, BTreeMap<String, u8>, Vec<f64>);

#[pyclass(name = "PatchStream", module = "plimsoll._plimsoll", frozen)]
struct PyPatchStream {
    stream: InProcess<Mutex<PatchStream>>,
    warnings: Vec<String>,
}

/// A batch whose buffers arrays share. It returns to its stream with the last of them.
#[pyclass(module = "plimsoll._plimsoll", frozen)]
struct LentBatch {
    _batch: InProcess<Box<PatchBatch>>,
}

#[pymethods]
impl PyPatchStream {
    #[new]
    #[pyo3(signature = (*, place, listed, patch_size, batch_size, spacing, augmentation, oversample_foreground, images, seed, section,
        fold, channels, labels, allow_outside, skip_bad_cases, iterations_per_epoch, is_endless, prefetch, wide_labels, cache, budget, threads))]
    #[allow(clippy::too_many_arguments, reason = "the package passes keyword arguments")]
    fn new(
        py: Python<'_>,
        place: PathBuf,
        listed: Option<String>,
        patch_size: Vec<usize>,
        batch_size: usize,
        spacing: Option<&str>,
        augmentation: Augmented,
        oversample_foreground: Option<f64>,
        images: Option<&str>,
        seed: u64,
        section: &str,
        fold: Option<usize>,
        channels: Option<Vec<String>>,
        labels: Option<BTreeMap<String, u64>>,
        allow_outside: bool,
        skip_bad_cases: bool,
        iterations_per_epoch: Option<u64>,
        is_endless: bool,
        prefetch: usize,
        wide_labels: Option<bool>,
        cache: bool,
        budget: &Bound<'_, PyBudget>,
        threads: usize,
    ) -> PyResult<PyPatchStream> {
        let resources = resources(py, Some(budget), Some(threads))?;
        let settings = || -> Result<PatchSettings, Failure> {
            Ok(PatchSettings {
                patch_size,
                batch_size,
                spacing: spacing.map(|text| parsed("spacing", text)).transpose()?,
                augmentation: augmentation.choice(),
                oversample_foreground,
                images: images.map(|text| parsed("images", text)).transpose()?,
                seed,
                section: section_by_name(section)?,
            })
        };
        let settings = settings().map_err(|failure| raised(py, failure))?;
        let options = PatchOptions {
            epoch: match iterations_per_epoch {
                Some(count) => EpochLength::Batches(count),
                None if is_endless => EpochLength::Endless,
                None => EpochLength::Usual,
            },
            prefetch,
            labels: match wide_labels {
                None => LabelType::Usual,
                Some(false) => LabelType::Bytes,
                Some(true) => LabelType::Words,
            },
        };
        let request = FoldRequest {
            place: match listed {
                Some(text) => DataPlace::List { text, folder: place },
                None => DataPlace::Path(place),
            },
            settings: Settings {
                data: Some(DataSettings { channels, ..DataSettings::default() }),
                labels,
                ..Settings::default()
            },
            allow_outside,
            skip_bad_cases,
            fold,
            threads: resources.threads,
        };
        let warnings = Warnings::default();
        let folder = CacheFolder::for_user(|name| std::env::var_os(name)).filter(|_| cache);
        let context = Context::observed(warnings.clone()).with_cache(folder);
        let stop = context.stop.clone();
        let open = move || PatchStream::open(&request, &settings, options, &resources, &context);
        let stream = interruptible(py, &stop, open)?;
        Ok(PyPatchStream { stream: InProcess::new(Mutex::new(stream)), warnings: warnings.take() })
    }

    /// The warnings of opening the data set.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Cases, channels, classes, labels and spacing.
    fn facts(&self, py: Python<'_>) -> PyResult<Facts> {
        let StreamFacts { cases, channels, classes, labels, spacing } =
            self.with(py, |stream| Ok(stream.facts().clone()))?;
        Ok((cases, channels, classes, labels, spacing))
    }

    /// The batches of an epoch; none for no end.
    fn batches(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, |stream| Ok(stream.batches()))
    }

    /// Begins an epoch.
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |stream| Ok(stream.begin()))
    }

    /// The next images, labels and names of cases; none at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>, epoch: u64) -> PyResult<Option<Arrays<'py>>> {
        loop {
            match self.with(py, |stream| stream.next(epoch, PATIENCE))? {
                Turn::Batch(batch) => return arrays(py, batch).map(Some),
                Turn::Waiting => py.check_signals()?,
                Turn::End => return Ok(None),
            }
        }
    }

    /// The state as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |stream| stream.state())
    }

    /// Resumes from a state.
    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        self.with(py, |stream| stream.restore(state))
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.close();
            Ok(())
        })
    }
}

/// The argument `augmentation`: on or off, or the JSON of values.
#[derive(FromPyObject)]
enum Augmented {
    Usual(bool),
    Values(String),
}

impl Augmented {
    fn choice(self) -> AugmentationChoice {
        match self {
            Augmented::Usual(true) => AugmentationChoice::Usual,
            Augmented::Usual(false) => AugmentationChoice::Off,
            Augmented::Values(text) => AugmentationChoice::Values(text),
        }
    }
}

impl PyPatchStream {
    /// Calls the stream without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut PatchStream) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let stream = self.stream.get().map_err(|failure| raised(py, failure))?;
        // A panic leaves the stream with a step that it has not handed over, which is loaded again.
        detached(py, || call(&mut stream.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Images, labels and names of cases.
type Arrays<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<String>);

/// Returns the arrays of a batch, which share its buffers.
fn arrays(py: Python<'_>, batch: Box<PatchBatch>) -> PyResult<Arrays<'_>> {
    let (image_shape, label_shape) = (batch.image_shape(), batch.label_shape());
    let (images, labels, cases) = (batch.image_buffer(), batch.label_buffer(), batch.cases().to_vec());
    let lent = Bound::new(py, LentBatch { _batch: InProcess::new(batch) })?.into_any();
    // SAFETY: the buffers have these shapes, and stay mapped and unused by others until `lent` is dropped.
    let images = unsafe { shared(images, &image_shape, &lent) };
    let labels = match labels {
        // SAFETY: as for the images.
        LabelBuffer::Bytes(start) => unsafe { shared(start, &label_shape, &lent) },
        // SAFETY: as for the images.
        LabelBuffer::Words(start) => unsafe { shared(start, &label_shape, &lent) },
        // SAFETY: as for the images.
        LabelBuffer::Shares(start) => unsafe { shared(start, &label_shape, &lent) },
    };
    Ok((images, labels, cases))
}

/// Returns an array over a buffer, which keeps the buffer's owner alive.
///
/// # Safety
/// The buffer must have a value for each element of the shape, aligned and initialised, and until the owner is dropped nothing else may
/// access it.
unsafe fn shared<'py, T: Element>(
    start: *mut T,
    shape: &[usize],
    owner: &Bound<'py, PyAny>,
) -> Bound<'py, PyAny> {
    // SAFETY: the caller's contract; the view ends before the array is used.
    let view = unsafe { ArrayViewD::from_shape_ptr(shape, start.cast_const()) };
    // SAFETY: the owner becomes the array's base, and neither moves nor frees the buffer while it lives.
    unsafe { PyArrayDyn::borrow_from_array(&view, owner.clone()) }.into_any()
}

/// Runs a call on a thread of its own, and waits for it. If the user interrupts, the call is asked to stop and left to end by itself.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: &StopToken,
    call: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let run = move || {
        // Nobody receives the result of a call that was interrupted.
        let _ = sender.send(catch_panic(call));
    };
    let thread = thread::Builder::new().name("open data set".into()).spawn(run);
    thread.map_err(|error| {
        raised(py, Failure::Failed { message: format!("cannot start a thread: {error}"), remedy: None })
    })?;
    loop {
        let wait = |receiver: Receiver<_>| (receiver.recv_timeout(PATIENCE), receiver);
        let (received, back) = py.detach(move || wait(receiver));
        receiver = back;
        match received {
            Ok(done) => return super::finished(py, done),
            Err(RecvTimeoutError::Disconnected) => return super::finished(py, Err(Panicked)),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| stop.ask())?,
        }
    }
}
