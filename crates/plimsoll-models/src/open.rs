//! Opening a model of any kind, in one place.

use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_run::{CheckpointKind, FoldName, RunConfig, RunFolder};

use crate::deepbet::DeepbetModel;
use crate::hd_bet::HdBetModel;
use crate::model_file::ModelFile;
use crate::monai::MonaiModel;
use crate::nnunet::{NnUnetChoice, NnUnetModel, find_model};
use crate::{Model, ModelError, ModelSource, SegmentationModel};

/// Options of opening a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The checkpoint of runs; models of other kinds have one.
    pub checkpoint: CheckpointKind,
    /// The only fold that is opened; none for all folds, or those that `nnunet` names.
    pub fold: Option<FoldName>,
    /// The options of models of nnU-Net; its folds also choose those of HD-BET.
    pub nnunet: NnUnetChoice,
}

/// A model of any kind.
#[derive(Clone, Debug)]
pub enum OpenedModel {
    /// A run, or one fold of it.
    Run {
        /// The folder of the run or of the fold.
        folder: PathBuf,
        /// The model.
        model: Box<Model>,
    },
    /// Folds of a run in one file.
    File {
        /// The file.
        file: Box<ModelFile>,
        /// The model, with the folds that are opened.
        model: Box<Model>,
    },
    /// A run for each pair of classes.
    Pairs {
        /// The folder.
        folder: PathBuf,
        /// The pairs of labels with their models, in order: one at least.
        models: Vec<((u32, u32), Model)>,
    },
    /// A configuration of nnU-Net.
    NnUnet {
        /// The folder of the configuration.
        folder: PathBuf,
        /// The model.
        model: Box<NnUnetModel>,
    },
    /// A model of MONAI.
    Monai {
        /// The bundle's folder, or the description's file.
        path: PathBuf,
        /// The model.
        model: Box<MonaiModel>,
    },
    /// A model of HD-BET.
    HdBet {
        /// The description's file.
        path: PathBuf,
        /// The model.
        model: Box<HdBetModel>,
    },
    /// A model of deepbet.
    Deepbet {
        /// The description's file.
        path: PathBuf,
        /// The model.
        model: Box<DeepbetModel>,
    },
}

impl OpenedModel {
    /// Opens the model at a path, of whichever kind it is.
    ///
    /// # Errors
    /// Returns an error if there is no model at the path, it lacks the fold or the checkpoint, one of its files is damaged or describes
    /// something that this program does not compute, or the budget has no room to read it.
    pub fn open(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<OpenedModel, ModelError> {
        let OpenOptions { checkpoint, fold, nnunet } = options;
        match ModelSource::detect(path)? {
            ModelSource::Run(folder) => {
                let chosen = fold.map(|fold| RunFolder::new(&folder).fold(fold).path().to_path_buf());
                let folder = chosen.unwrap_or(folder);
                let model = Box::new(Model::open(&folder, *checkpoint)?);
                Ok(OpenedModel::Run { folder, model })
            }
            ModelSource::File(path) => {
                let file = Box::new(ModelFile::open(&path)?);
                let mut model = file.model();
                if let Some(fold) = fold {
                    model.weights = file.weights_of(*fold).into_iter().collect();
                    if model.weights.is_empty() {
                        return Err(ModelError::NoFold { path, fold: *fold });
                    }
                }
                Ok(OpenedModel::File { file, model: Box::new(model) })
            }
            ModelSource::Pairs { folder, pairs } => {
                if fold.is_some() {
                    return Err(ModelError::pairs_refused(&folder, &pairs));
                }
                let open = |pair| -> Result<_, ModelError> {
                    Ok((pair, Model::open(RunFolder::for_pair(&folder, pair).path(), *checkpoint)?))
                };
                let models = pairs.into_iter().map(open).collect::<Result<_, _>>()?;
                Ok(OpenedModel::Pairs { folder, models })
            }
            ModelSource::NnUnet(folder) => {
                let folder = find_model(&folder)?;
                let mut choice = nnunet.clone();
                if let Some(fold) = fold {
                    choice.folds = vec![*fold];
                }
                let model = Box::new(NnUnetModel::open(&folder, &choice, budget)?);
                Ok(OpenedModel::NnUnet { folder, model })
            }
            ModelSource::MonaiBundle(folder) => {
                expect_no_fold(path, *fold)?;
                let model = Box::new(MonaiModel::open_bundle(&folder, budget)?);
                Ok(OpenedModel::Monai { path: folder, model })
            }
            ModelSource::MonaiConfig(file) if HdBetModel::is_one(&file) => {
                let folds = fold.map_or_else(|| nnunet.folds.clone(), |fold| vec![fold]);
                let model = Box::new(HdBetModel::open(&file, &folds, budget)?);
                Ok(OpenedModel::HdBet { path: file, model })
            }
            ModelSource::MonaiConfig(file) if DeepbetModel::is_one(&file) => {
                expect_no_fold(path, *fold)?;
                let model = Box::new(DeepbetModel::open(&file, budget)?);
                Ok(OpenedModel::Deepbet { path: file, model })
            }
            ModelSource::MonaiConfig(file) => {
                expect_no_fold(path, *fold)?;
                let model = Box::new(MonaiModel::open_config(&file, budget)?);
                Ok(OpenedModel::Monai { path: file, model })
            }
        }
    }

    /// The folder or file of the model itself: of nnU-Net the configuration's folder, of a single fold the fold's.
    pub fn path(&self) -> &Path {
        match self {
            OpenedModel::Run { folder, .. }
            | OpenedModel::Pairs { folder, .. }
            | OpenedModel::NnUnet { folder, .. } => folder,
            OpenedModel::File { file, .. } => &file.path,
            OpenedModel::Monai { path, .. }
            | OpenedModel::HdBet { path, .. }
            | OpenedModel::Deepbet { path, .. } => path,
        }
    }

    /// The earlier configuration of nnU-Net whose labels the model takes beside the image, if it takes any.
    pub fn previous(&self) -> Option<&str> {
        match self {
            OpenedModel::NnUnet { model, .. } => model.previous.as_deref(),
            _ => None,
        }
    }

    /// A description of the model, in lines.
    pub fn lines(&self) -> Vec<String> {
        match self {
            OpenedModel::Run { model, .. } => lines_of_run(&model.config),
            OpenedModel::File { file, .. } => file.lines(),
            OpenedModel::Pairs { models, .. } => {
                pair_lines(models.len(), models.first().map(|(_, model)| &model.config))
            }
            OpenedModel::NnUnet { model, .. } => model.lines(),
            OpenedModel::Monai { model, .. } => model.lines(),
            OpenedModel::HdBet { model, .. } => model.lines(),
            OpenedModel::Deepbet { model, .. } => model.lines(),
        }
    }

    /// The model as one that labels voxels.
    ///
    /// # Errors
    /// Returns an error if it gives each image a class as a whole.
    pub fn into_segmentation(self) -> Result<SegmentationModel, ModelError> {
        match self {
            OpenedModel::Run { model, .. } | OpenedModel::File { model, .. } => (*model).try_into(),
            OpenedModel::NnUnet { model, .. } => Ok(model.model),
            OpenedModel::Monai { model, .. } => Ok(model.model),
            OpenedModel::HdBet { model, .. } => Ok(model.model),
            OpenedModel::Deepbet { model, .. } => Ok(model.model),
            OpenedModel::Pairs { folder, .. } => Err(ModelError::OfImages { path: folder }),
        }
    }

    /// The model as a run of this program.
    ///
    /// # Errors
    /// Returns an error if another program made it, or it has a run for each pair of classes.
    pub fn into_run(self) -> Result<Model, ModelError> {
        match self {
            OpenedModel::Run { model, .. } | OpenedModel::File { model, .. } => Ok(*model),
            OpenedModel::Pairs { folder, models } => {
                let pairs: Vec<(u32, u32)> = models.iter().map(|(pair, _)| *pair).collect();
                Err(ModelError::pairs_refused(&folder, &pairs))
            }
            OpenedModel::NnUnet { folder: path, .. }
            | OpenedModel::Monai { path, .. }
            | OpenedModel::HdBet { path, .. }
            | OpenedModel::Deepbet { path, .. } => Err(ModelError::NotARun { path }),
        }
    }
}

fn expect_no_fold(path: &Path, fold: Option<FoldName>) -> Result<(), ModelError> {
    match fold {
        None => Ok(()),
        Some(fold) => Err(ModelError::WithoutFolds { path: path.into(), fold }),
    }
}

/// Describes the model of a run, in lines.
pub(crate) fn lines_of_run(config: &RunConfig) -> Vec<String> {
    let [depth, height, width] = config.training.patch;
    vec![
        format!("network   {}", config.training.net.describe()),
        format!("windows   {depth} × {height} × {width}"),
    ]
}

/// Describes classifiers of pairs by the first of them, in lines.
pub(crate) fn pair_lines(count: usize, first: Option<&RunConfig>) -> Vec<String> {
    let mut lines = vec![format!("classifiers of {count} pairs of classes, of which the first is:")];
    lines.extend(first.map(lines_of_run).into_iter().flatten());
    lines
}
