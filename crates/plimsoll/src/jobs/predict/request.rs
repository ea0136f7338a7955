//! The request of a prediction of volumes.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_data::{Dataset, FoundImages, LengthUnit};
use plimsoll_infer::{CaseSpacing, LabelNames, PredictOptions};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::SegmentationModel;
use plimsoll_models::nnunet::NnUnetChoice;
use plimsoll_plan::Backend;
use plimsoll_run::CheckpointKind;

use super::bids;
use crate::backend::{DeviceName, default_threads};
use crate::error::{Error, Outcome};
use crate::jobs::steps::StepChoice;
use crate::part::Part;

/// Options of predictions of volumes.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    /// The unit that lengths in headers of images are in, whatever headers say.
    pub unit: Option<LengthUnit>,
    /// The parts of a model folder of nnU-Net to use.
    pub nnunet: Option<NnUnetChoice>,
    /// The labels of an earlier stage of a cascade; `None` if that stage predicts them.
    pub earlier: Option<PathBuf>,
    /// Writes probabilities beside labels.
    pub probabilities: bool,
    /// Steps that are done after each prediction.
    pub postprocessing: StepChoice,
    /// The spacing of cases with far more windows than the others; `None` for the model's spacing.
    pub outlier_spacing: Option<CaseSpacing>,
    /// The axes of the network along which windows are mirrored; `None` for all axes that the model allows.
    pub mirror_axes: Option<[bool; 3]>,
    /// Draws a picture of each case beside its labels.
    pub preview: bool,
    /// Reports a description of the model.
    pub verbose: bool,
    /// The input is a data set of BIDS, and labels become a derivative of it: what the names of its images end in, one for each channel, or
    /// nothing where that is what the channels are called.
    pub bids: Option<Vec<String>>,
}

impl VolumeOptions {
    /// The naming scheme of label files.
    pub fn names(&self) -> LabelNames {
        if self.bids.is_some() { LabelNames::Bids } else { LabelNames::Cases }
    }
}

/// Images to be segmented.
#[derive(Clone)]
pub struct PredictRequest {
    /// A model: a folder or a file.
    pub model: PathBuf,
    /// The kind of weights.
    pub checkpoint: CheckpointKind,
    /// Options of volumes.
    pub volumes: VolumeOptions,
    /// A folder of images, or one image.
    pub input: PathBuf,
    /// The folder of label maps.
    pub output: PathBuf,
    /// Replaces existing predictions.
    pub overwrite: bool,
    /// How.
    pub options: PredictOptions,
    /// The part of the images that is predicted; `None` for all. Several processes predict the parts into the same folder.
    pub part: Option<Part>,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
}

impl PredictRequest {
    /// Predicting on the processor with all cores, with the final weights of a model, windows that overlap by half, and its own steps of
    /// post-processing.
    ///
    /// # Errors
    /// Returns an error if the processor's threads cannot be started.
    pub fn new(
        model: impl Into<PathBuf>,
        input: impl Into<PathBuf>,
        output: impl Into<PathBuf>,
    ) -> Outcome<PredictRequest> {
        let threads = default_threads();
        Ok(PredictRequest {
            model: model.into(),
            checkpoint: CheckpointKind::Final,
            volumes: VolumeOptions { postprocessing: StepChoice::OfModel, ..VolumeOptions::default() },
            input: input.into(),
            output: output.into(),
            overwrite: false,
            options: PredictOptions::new(0.5, false, threads),
            part: None,
            ram: None,
            backend: DeviceName::Cpu.open(threads, None)?,
        })
    }

    /// Finds the images for a model.
    pub fn images(&self, model: &SegmentationModel, budget: &Budget) -> Outcome<FoundImages> {
        let mut found = match &self.volumes.bids {
            Some(suffixes) => bids::images(&self.input, suffixes, model, budget)?,
            None => Dataset::find_images(&self.input, &model.channels, &model.file_ending, budget)?,
        };
        found.cases.iter_mut().for_each(|case| case.reading.unit = self.volumes.unit);
        Ok(found)
    }

    /// Refuses a part of a job that has none.
    pub(in crate::jobs) fn expect_all(&self, job: &str) -> Outcome {
        match self.part {
            None => Ok(()),
            Some(part) => {
                let message = format!("‹part={part}› has no effect: {job}");
                Err(Error::new(message, "leave ‹part› out"))
            }
        }
    }
}
