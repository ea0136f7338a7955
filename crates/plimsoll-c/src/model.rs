//! An open model behind a handle, and the calls on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_infer::{
    CaseEstimate, CaseGrid, CaseInput, CaseOutput, InferError, PredictOptions, PredictPlan, Predictor,
};
use plimsoll_memory::{Budget, Bytes, Reservation, System, limits};
use plimsoll_models::{OpenOptions, OpenedModel, SegmentationModel};
use plimsoll_volume::{ElementType, Geometry, MemoryVolume};

use crate::error::Failure;
use crate::image::{MemoryCase, NAME};
use crate::labels::MemoryLabels;

/// The settings of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The memory line; none for what the machine leaves.
    pub(crate) ram: Option<Bytes>,
    /// The share of a window from one to the next at most.
    pub(crate) step: f64,
    /// Mirrors windows; `None` for the model's default.
    pub(crate) mirror: Option<bool>,
    pub(crate) threads: usize,
}

/// A model that is open.
pub(crate) struct Model {
    predictor: Predictor,
    budget: Budget,
}

/// An image of the caller.
pub(crate) struct Image<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) element: ElementType,
    /// The voxels of each channel.
    pub(crate) channels: Vec<&'a [u8]>,
}

/// The memory of an image during its prediction.
pub(crate) struct ImageMemory {
    pub(crate) plan: PredictPlan,
    /// Copies of its channels, which the plan counts with its windows.
    pub(crate) image: Bytes,
}

impl Model {
    /// Opens a run, one fold of one, a model in one file, or one of nnU-Net or MONAI.
    pub(crate) fn open(path: &Path, settings: Settings) -> Result<Model, Failure> {
        let limits = limits(&System::default(), settings.ram);
        if let Some(asked) = settings.ram.filter(|asked| *asked > limits.line) {
            return Err(Failure::Line { asked, line: limits.line });
        }
        let budget = Budget::new(limits.line);
        let opened = OpenedModel::open(path, &OpenOptions::default(), &budget)?;
        let is_nnunet = matches!(opened, OpenedModel::NnUnet { .. });
        if let Some(previous) = opened.previous() {
            return Err(Failure::Unsupported(format!(
                "{} is a later stage of a cascade, which takes labels of {previous} beside the image: from C that is not possible",
                opened.path().display()
            )));
        }
        let model = opened.into_segmentation()?;
        let Settings { step, mirror, threads, .. } = settings;
        let options = PredictOptions::new(step, mirror.unwrap_or(is_nnunet), threads);
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(threads))?);
        let predictor = Predictor::new(model, options, backend, &budget).map_err(model_failure)?;
        Ok(Model { predictor, budget })
    }

    /// The description of the model.
    pub(crate) fn described(&self) -> &SegmentationModel {
        self.predictor.model()
    }

    /// The memory line.
    pub(crate) fn line(&self) -> Bytes {
        self.budget.line()
    }

    /// The memory of an image of this grid.
    pub(crate) fn plan(&mut self, geometry: Geometry, element: ElementType) -> Result<ImageMemory, Failure> {
        let channels = self.described().channels.len();
        let image = copies(&geometry, element, channels)?;
        // Held as the copies will be, so that the plan is the one that the image will have.
        let _held = self.hold(image)?;
        let planned = CaseGrid { name: NAME, geometry, element };
        let plan = self.predictor.plan_grid(&planned).map_err(model_failure)?;
        Ok(ImageMemory { plan, image })
    }

    /// The least limit for an image of a grid, and the time that predicting it takes.
    pub(crate) fn estimate(
        &mut self,
        geometry: Geometry,
        element: ElementType,
    ) -> Result<CaseEstimate, Failure> {
        let channels = self.described().channels.len();
        // Held as the copies will be, so that the estimate counts them.
        let _held = self.hold(copies(&geometry, element, channels)?)?;
        let planned = CaseGrid { name: NAME, geometry, element };
        self.predictor.estimate_grid(&planned).map_err(model_failure)
    }

    /// Takes memory for copies of an image. An engine of an earlier image that leaves them no room goes before.
    fn hold(&mut self, image: Bytes) -> Result<Reservation, Failure> {
        self.predictor.make_room(image);
        Ok(self.budget.reserve("image", image)?)
    }

    /// Fills `labels`, one or two bytes for each voxel.
    pub(crate) fn predict(
        &mut self,
        image: &Image<'_>,
        labels: &mut [u8],
        is_wide: bool,
        stop: &AtomicBool,
    ) -> Result<ImageMemory, Failure> {
        let Image { geometry, element, channels } = image;
        let model = self.described();
        let expected = model.channels.len();
        if channels.len() != expected {
            let what = format!("the model takes {expected} channels, but {} are given", channels.len());
            return Err(Failure::argument(what));
        }
        let largest = model.answers.largest();
        if !is_wide && largest > u16::from(u8::MAX) {
            let what = format!("labels go up to {largest}, which does not fit 8 bits");
            return Err(Failure::argument(what));
        }
        let copied = copies(geometry, *element, channels.len())?;
        // All of them at once first: what is refused then is the image as a whole, before any of it is copied.
        drop(self.hold(copied)?);
        let case = MemoryCase::copy(geometry, *element, channels, &self.budget)?;
        let input = CaseInput { case: &case.case, earlier: None, within: None };
        let mut sink = MemoryLabels::new(labels, is_wide);
        let output = CaseOutput { labels: &mut sink, probabilities: None };
        match self.predictor.predict_to(input, output, stop, &mut |_| {}) {
            Ok(predicted) => Ok(ImageMemory { plan: predicted.plan, image: copied }),
            Err(source) => {
                let text = case.named(plimsoll_run::one_line(&source));
                Err(Failure::Infer { text, cause: Box::new(source) })
            }
        }
    }
}

/// Bytes of copies of the channels of an image.
fn copies(geometry: &Geometry, element: ElementType, channels: usize) -> Result<Bytes, Failure> {
    let one = MemoryVolume::reserves(geometry, element);
    let all = one.and_then(|one| one.0.checked_mul(u64::try_from(channels).ok()?));
    let shape = geometry.shape();
    all.map(Bytes).ok_or_else(|| {
        Failure::argument(format!("{channels} channels of {shape:?} voxels do not fit the address space"))
    })
}

fn model_failure(source: InferError) -> Failure {
    Failure::Infer { text: plimsoll_run::one_line(&source), cause: Box::new(source) }
}
