//! Predictions of images in memory, for callers that have arrays and no files.

pub(crate) mod memory_case;
pub(crate) mod memory_labels;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};
use plimsoll_models::SegmentationModel;
use plimsoll_run::one_line;
use plimsoll_volume::{ElementType, Geometry, MemoryVolume, MemoryVolumeError};

use self::memory_case::{MemoryCase, NAME};
use self::memory_labels::MemoryLabels;
use crate::cases::request::{CaseGrid, CaseInput};
use crate::error::InferError;
use crate::planning::plan::{CaseEstimate, PredictPlan};
use crate::predicting::predictor::{CaseOutput, Predictor};
use crate::progress::Progress;

/// An image of the caller.
#[derive(Clone, Debug)]
pub struct ArrayImage<'a> {
    /// Its grid.
    pub geometry: Geometry,
    /// The type of a voxel.
    pub element: ElementType,
    /// The bytes of the voxels `[depth][height][width]` of each channel.
    pub channels: Vec<&'a [u8]>,
}

/// The output of a prediction.
pub struct ArrayOutput<'a> {
    /// Receives the labels of all voxels.
    pub labels: &'a mut [u8],
    /// `true` if a label has 16 bits, in the byte order of the machine; else it has 8.
    pub is_wide: bool,
    /// The file of probabilities, if they are wanted: see [`CaseRequest`](crate::CaseRequest).
    pub probabilities: Option<&'a Path>,
}

/// The memory of an image during its prediction.
#[derive(Clone, Debug)]
pub struct ArrayPlan {
    /// The plan.
    pub plan: PredictPlan,
    /// The copies of the channels, which the plan counts with its windows.
    pub image: Bytes,
}

/// The reason why an image in memory cannot be predicted.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// The image has another number of channels than the model.
    #[error("the model takes {expected} channels, but {found} are given")]
    Channels {
        /// The channels of the model.
        expected: usize,
        /// The channels of the image.
        found: usize,
    },
    /// Labels of the model do not fit the buffer's type.
    #[error("labels go up to {largest}, which does not fit 8 bits")]
    NarrowLabels {
        /// The largest label.
        largest: u16,
    },
    /// The image does not fit the address space.
    #[error("{channels} channels of {shape:?} voxels do not fit the address space")]
    TooLarge {
        /// The number of channels.
        channels: usize,
        /// Depth, height, width.
        shape: [usize; 3],
    },
    /// The image cannot be copied.
    #[error("{0}")]
    Copy(#[from] MemoryVolumeError),
    /// The budget has no room for a copy.
    #[error("{0}")]
    Memory(#[from] OverBudget),
    /// The prediction failed.
    #[error("{text}")]
    // The text has the causes in it already, with names of channels in the places of paths.
    Infer {
        /// The error and its causes, in one line.
        text: String,
        /// The error.
        cause: Box<InferError>,
    },
}

impl ArrayError {
    /// An error that names no file.
    fn from_infer(source: InferError) -> ArrayError {
        ArrayError::Infer { text: one_line(&source), cause: Box::new(source) }
    }
}

/// A predictor of images in memory.
pub struct ArrayPredictor {
    predictor: Predictor,
    budget: Budget,
}

impl ArrayPredictor {
    /// Predicts images in memory with a predictor, within its budget.
    pub fn new(predictor: Predictor) -> ArrayPredictor {
        ArrayPredictor { budget: predictor.network.budget.clone(), predictor }
    }

    /// The model.
    pub fn model(&self) -> &SegmentationModel {
        self.predictor.model()
    }

    /// The memory limit.
    pub fn limit(&self) -> Bytes {
        self.budget.limit()
    }

    /// The budget of predictions.
    pub fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// The predictor, for cases in files.
    pub fn predictor(&mut self) -> &mut Predictor {
        &mut self.predictor
    }

    /// Plans the memory of an image of a grid.
    ///
    /// # Errors
    /// Returns an error if the limit is too low for it, or its spacing is implausible.
    pub fn plan(&mut self, geometry: Geometry, element: ElementType) -> Result<ArrayPlan, ArrayError> {
        let image = copies(&geometry, element, self.model().channels.len())?;
        // Reserved as the copies will be, so that the plan is the one that the image will have.
        let _held = self.hold(image)?;
        let planned = CaseGrid { name: NAME, geometry, element };
        let plan = self.predictor.plan_grid(&planned).map_err(ArrayError::from_infer)?;
        Ok(ArrayPlan { plan, image })
    }

    /// Finds the lowest limit for an image of a grid, and the time that predicting it takes.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Self::plan).
    pub fn estimate(&mut self, geometry: Geometry, element: ElementType) -> Result<CaseEstimate, ArrayError> {
        // Reserved as the copies will be, so that the estimate counts them.
        let _held = self.hold(copies(&geometry, element, self.model().channels.len())?)?;
        let planned = CaseGrid { name: NAME, geometry, element };
        self.predictor.estimate_grid(&planned).map_err(ArrayError::from_infer)
    }

    /// Reserves memory for copies of an image. An engine of an earlier image that leaves them no room is freed first.
    fn hold(&mut self, image: Bytes) -> Result<Reservation, OverBudget> {
        self.predictor.make_room(image);
        self.budget.reserve("image", image)
    }

    /// Predicts an image and fills the labels of its voxels.
    ///
    /// # Errors
    /// Returns an error if the image does not have the channels of the model, labels do not fit the buffer, the limit is too low, or `stop`
    /// is set. The labels have no meaning then.
    pub fn predict(
        &mut self,
        image: &ArrayImage<'_>,
        output: ArrayOutput<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<ArrayPlan, ArrayError> {
        let ArrayImage { geometry, element, channels } = image;
        let ArrayOutput { labels, is_wide, probabilities } = output;
        let (model, found) = (self.model(), channels.len());
        let (expected, largest) = (model.channels.len(), model.answers.largest());
        if found != expected {
            return Err(ArrayError::Channels { expected, found });
        }
        if !is_wide && largest > u16::from(u8::MAX) {
            return Err(ArrayError::NarrowLabels { largest });
        }
        let copied = copies(geometry, *element, found)?;
        // All of them at once first: an image that is too large is refused as a whole, before any of it is copied.
        drop(self.hold(copied)?);
        let case = MemoryCase::copy(geometry, *element, channels, &self.budget)?;
        let input = CaseInput { case: &case.case, earlier: None, within: None };
        let mut sink = MemoryLabels::new(labels, is_wide);
        match self.predictor.predict_to(input, CaseOutput { labels: &mut sink, probabilities }, stop, observe)
        {
            Ok(predicted) => Ok(ArrayPlan { plan: predicted.plan, image: copied }),
            Err(source) => {
                Err(ArrayError::Infer { text: case.named(one_line(&source)), cause: Box::new(source) })
            }
        }
    }
}

/// Bytes of copies of the channels of an image.
fn copies(geometry: &Geometry, element: ElementType, channels: usize) -> Result<Bytes, ArrayError> {
    let one = MemoryVolume::reserves(geometry, element);
    let all = one.and_then(|one| one.0.checked_mul(u64::try_from(channels).ok()?));
    all.map(Bytes).ok_or(ArrayError::TooLarge { channels, shape: geometry.shape() })
}
