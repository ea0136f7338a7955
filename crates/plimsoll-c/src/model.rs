//! An open model behind a handle, and the calls on it.

use std::path::Path;
use std::sync::Arc;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_infer::{ArrayPredictor, InferError, PredictOptions, Predictor};
use plimsoll_memory::{Budget, Bytes, System, limits};
use plimsoll_models::{OpenOptions, OpenedModel};

use crate::error::Failure;

/// The settings of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The memory limit; none for what the machine leaves.
    pub(crate) ram: Option<Bytes>,
    /// The share of a window from one to the next at most.
    pub(crate) step: f64,
    /// Mirrors windows; `None` for the model's default.
    pub(crate) mirror: Option<bool>,
    pub(crate) threads: usize,
}

/// A model that is open.
pub(crate) struct Model(ArrayPredictor);

impl Model {
    /// Opens a run, one fold of one, a model in one file, or one of nnU-Net or MONAI.
    pub(crate) fn open(path: &Path, settings: Settings) -> Result<Model, Failure> {
        let limits = limits(&System::default(), settings.ram);
        if let Some(asked) = settings.ram.filter(|asked| *asked > limits.limit) {
            return Err(Failure::AboveLimit { asked, limit: limits.limit });
        }
        let budget = Budget::new(limits.limit);
        let opened = OpenedModel::open(path, &OpenOptions::default(), &budget)?;
        let is_nnunet = matches!(opened, OpenedModel::NnUnet { .. });
        if let Some(previous) = opened.previous() {
            return Err(Failure::Unsupported(format!(
                "{} is a later stage of a cascade: it needs labels of {previous}, which the C interface cannot pass",
                opened.path().display()
            )));
        }
        let model = opened.into_segmentation()?;
        let Settings { step, mirror, threads, .. } = settings;
        let options = PredictOptions::new(step, mirror.unwrap_or(is_nnunet), threads);
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(threads))?);
        let predictor = Predictor::new(model, options, backend, &budget).map_err(model_failure)?;
        Ok(Model(ArrayPredictor::new(predictor)))
    }

    /// The predictor.
    pub(crate) fn arrays(&mut self) -> &mut ArrayPredictor {
        &mut self.0
    }
}

fn model_failure(source: InferError) -> Failure {
    Failure::Infer { text: plimsoll_run::one_line(&source), cause: Box::new(source) }
}
