//! Arguments of `predict`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll::{PredictRequest, StepChoice, VolumeOptions};
use plimsoll_data::{LengthUnit, SpacingSetting};
use plimsoll_infer::{CaseSpacing, PredictOptions, WindowWeights};
use plimsoll_metrics::votes::Rule;
use plimsoll_models::ModelSource;
use plimsoll_plan::Backend;

use super::{Inference, NnUnetFlags, WhichCheckpoint, target_spacing};
use crate::failure::{Failure, Outcome};

/// Images to segment.
#[derive(Debug, ClapArgs)]
pub struct Predict {
    /// The folder of a run (all its folds are averaged), of one fold, or of one-vs-one classifiers; or of a model of nnU-Net; or a
    /// .plimsoll file.
    #[arg(value_name = "MODEL", required_unless_present_any = ["model_named", "dataset"], conflicts_with = "dataset")]
    model: Option<PathBuf>,
    /// The same; given several times, models that label voxels by the mean of their probabilities.
    #[arg(id = "model_named", short = 'm', long = "model", value_name = "MODEL", conflicts_with_all = ["model", "dataset"])]
    model_named: Vec<PathBuf>,
    /// A folder of images named as in imagesTr, or one image. Of classifiers: images, folders of classes, or a .csv file.
    #[arg(short, long, value_name = "IN")]
    pub input: PathBuf,
    /// The folder of label maps, other than the folder of images; for classifiers the .csv file of probabilities.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// For volumes: the unit of lengths in headers, whatever they state: um, mm or m.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<LengthUnit>,
    /// The checkpoint; of models of nnU-Net, -chk names its file [default: final].
    #[arg(long, value_enum)]
    pub checkpoint: Option<WhichCheckpoint>,
    /// For volumes: the overlap of neighbouring windows as a share of a window, from 0 to less than 1 [default: 0.5].
    #[arg(long, value_name = "SHARE")]
    pub overlap: Option<f64>,
    /// For volumes: the weights of the voxels of a window where windows overlap [default: gaussian].
    #[arg(long, value_enum, value_name = "HOW")]
    pub window_weights: Option<WhichWeights>,
    /// For volumes: predict cases with far more windows than the others at the spacing of their images, or at a coarser one in mm along
    /// the axes of the network, instead of the training spacing.
    #[arg(long, value_name = "native|Z,Y,X", value_parser = case_spacing)]
    pub outlier_spacing: Option<CaseSpacing>,
    /// Also predict each window mirrored, in all eight ways, or four for slices.
    #[arg(long)]
    pub mirror: bool,
    /// For volumes: also predict each window mirrored along these axes of the network, which must be axes that it was trained mirrored
    /// along: 0 is depth, 1 height, 2 width [default for models of nnU-Net: all of these].
    #[arg(
        long,
        value_name = "AXES",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(0..3),
        conflicts_with_all = ["mirror", "disable_tta"]
    )]
    pub mirror_axes: Vec<u8>,
    /// The voting rule of classifiers of pairs [default: sum].
    #[arg(long, value_enum)]
    pub votes: Option<WhichVotes>,
    /// For classifiers of pairs: also write the probabilities of each pair, in columns after `predicted`.
    #[arg(long)]
    pub pair_columns: bool,
    /// For classifiers and images with known labels: draw the N images with the largest errors, and the regions that the network bases its
    /// answer on (Grad-CAM), into an .svg beside the table.
    #[arg(long, value_name = "N")]
    pub mistakes: Option<NonZeroUsize>,
    /// For volumes: draw three slices of each case with its labels, CASE.preview.png beside them.
    #[arg(long)]
    pub preview: bool,
    /// For volumes: -i is a BIDS data set, and -o its derivative, like IN/derivatives/plimsoll. Images whose names end in these suffixes,
    /// one for each channel, like T1w, are predicted [default: the names of the channels].
    #[arg(long, value_name = "SUFFIXES", value_delimiter = ',', num_args = 0.., require_equals = true)]
    pub bids: Option<Vec<String>>,
    /// Skip the post-processing steps of the model.
    #[arg(long, conflicts_with = "postprocessing")]
    pub no_postprocessing: bool,
    #[command(flatten)]
    pub inference: Inference,
    #[command(flatten)]
    pub nnunet: NnUnetFlags,
}

/// nnU-Net's share of a window from one to the next.
const USUAL_STEP: f64 = 0.5;

impl Predict {
    /// The folder of the model, and the folders of further models whose probabilities are averaged.
    pub fn models(&self) -> Outcome<(PathBuf, Vec<PathBuf>)> {
        let mut named = self.model.iter().chain(&self.model_named).cloned();
        let first = match named.next() {
            Some(model) => Some(model),
            None => self.nnunet.folder()?,
        };
        let first = first.ok_or_else(|| Failure::new("no model is named", "name its folder"))?;
        let others: Vec<PathBuf> = named.collect();
        let is_archive = |path: &Path| {
            path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip")) && path.is_file()
        };
        match std::iter::once(&first).chain(&others).find(|path| is_archive(path)) {
            None => Ok((first, others)),
            Some(archive) => {
                let message = format!("{} is an archive, not the folder of a model", archive.display());
                let hint = format!("unpack it with `plimsoll models import {}`", archive.display());
                Err(Failure::new(message, hint))
            }
        }
    }

    /// The distance of neighbouring windows as a share of a window. A given step is used as it is: 1 − (1 − 0.2) is less than 0.2, and
    /// would give one window more.
    fn step(&self) -> Outcome<f64> {
        let (said, step) = match (self.nnunet.step_size, self.overlap) {
            (Some(step), _) => (format!("-step_size {step} is not more than 0 and at most 1"), step),
            (None, Some(overlap)) => {
                (format!("--overlap {overlap} is not at least 0 and less than 1"), 1.0 - overlap)
            }
            (None, None) => return Ok(USUAL_STEP),
        };
        match step > 0.0 && step <= 1.0 {
            true => Ok(step),
            false => Err(Failure::new(said, "half of a window, --overlap 0.5, is what most take")),
        }
    }

    /// The steps after a prediction. The steps of one model do not apply to the mean of several.
    fn steps(&self) -> StepChoice {
        let is_alone = self.model.iter().chain(&self.model_named).count() <= 1;
        match &self.nnunet.postprocessing {
            Some(path) => StepChoice::Of(path.clone()),
            None if self.no_postprocessing || !is_alone => StepChoice::None,
            None => StepChoice::OfModel,
        }
    }

    /// The request of a model.
    pub fn request(&self, model: PathBuf, backend: Arc<dyn Backend>) -> Outcome<PredictRequest> {
        let threads = self.inference.compute.threads.count();
        let source = ModelSource::detect(&model)?;
        let is_nnunet = matches!(source, ModelSource::NnUnet(_));
        // The defaults of nnU-Net and of this program.
        let mirror = self.mirror || !self.mirror_axes.is_empty() || (is_nnunet && !self.nnunet.disable_tta);
        Ok(PredictRequest {
            volumes: VolumeOptions {
                unit: self.unit,
                nnunet: (is_nnunet || source.is_hd_bet()).then(|| self.nnunet.choice()),
                earlier: self.nnunet.prev_stage_predictions.clone(),
                probabilities: self.nnunet.save_probabilities,
                postprocessing: self.steps(),
                outlier_spacing: self.outlier_spacing,
                mirror_axes: (!self.mirror_axes.is_empty())
                    .then(|| [0, 1, 2].map(|axis| self.mirror_axes.contains(&axis))),
                preview: self.preview,
                verbose: self.nnunet.verbose,
                bids: self.bids.clone(),
            },
            model,
            checkpoint: self.checkpoint.unwrap_or_default().into(),
            input: self.input.clone(),
            output: self.output.clone(),
            overwrite: self.inference.overwrite,
            options: PredictOptions {
                window_weights: self.window_weights.unwrap_or_default().into(),
                ..self.inference.held.options(self.step()?, mirror, threads)
            },
            part: self.inference.part.part,
            ram: self.inference.ram.ram,
            backend,
        })
    }
}

/// The weights of the voxels of a window where windows overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichWeights {
    /// Smaller towards the border, where the network sees less context: σ is an eighth of the window.
    #[default]
    Gaussian,
    /// Equal weights.
    Constant,
}

impl From<WhichWeights> for WindowWeights {
    fn from(weights: WhichWeights) -> WindowWeights {
        match weights {
            WhichWeights::Gaussian => WindowWeights::Gaussian,
            WhichWeights::Constant => WindowWeights::Constant,
        }
    }
}

/// Reads the spacing at which a single case is seen.
fn case_spacing(text: &str) -> Result<CaseSpacing, String> {
    let spacing = match target_spacing(text)? {
        SpacingSetting::Native => return Ok(CaseSpacing::Native),
        SpacingSetting::To(spacing) => spacing,
    };
    match spacing.lengths().iter().all(|length| length.is_finite() && *length > 0.0) {
        true => Ok(CaseSpacing::Of(spacing)),
        false => Err("a spacing must be above 0 mm along each axis".into()),
    }
}

/// The voting rule of classifiers of pairs of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichVotes {
    /// The mean probability of a class over its pairs.
    #[default]
    Sum,
    /// The most pairs that are won.
    Majority,
    /// Probabilities that best fit the probabilities of all pairs (Wu, Lin and Weng 2004).
    Coupling,
    /// Means weighted by accuracy and confidence, as published for retinopathy.
    Weighted,
}

impl From<WhichVotes> for Rule {
    fn from(votes: WhichVotes) -> Rule {
        match votes {
            WhichVotes::Sum => Rule::ProbabilitySum,
            WhichVotes::Majority => Rule::Majority,
            WhichVotes::Coupling => Rule::Coupling,
            WhichVotes::Weighted => Rule::Weighted,
        }
    }
}
