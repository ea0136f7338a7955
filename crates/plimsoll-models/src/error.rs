//! Errors of opening, importing and exporting models.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_memory::MapError;
use plimsoll_nn::ConfigError;
use plimsoll_nn::weights::WeightError;
use plimsoll_run::{FoldName, FolderUse, RunError, RunFolder};

use crate::monai::MonaiError;
use crate::nnunet::NnUnetError;
use crate::package_error::PackageError;
use crate::tensorflow_js::TensorFlowError;

/// An error of opening, importing or exporting a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A run or one of its files cannot be read.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The configuration is impossible.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A weight file cannot be used.
    #[error("{0}")]
    Weights(#[from] WeightError),
    /// Memory cannot be mapped.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// A model of nnU-Net cannot be used.
    #[error("{0}")]
    NnUnet(#[source] Box<NnUnetError>),
    /// A model cannot be exported in the requested format.
    #[error("{what}")]
    NotExported {
        /// The obstacle.
        what: String,
        /// The remedy.
        hint: &'static str,
    },
    /// A model of MONAI cannot be used.
    #[error("{0}")]
    Monai(#[source] Box<MonaiError>),
    /// A model of HD-BET or deepbet cannot be used.
    #[error("{0}")]
    Package(#[source] Box<PackageError>),
    /// A model of TensorFlow.js cannot be imported.
    #[error("{0}")]
    TensorFlow(#[source] Box<TensorFlowError>),
    /// The files of a folder show two uses.
    #[error("{} is ambiguous: it holds {} and {}", folder.display(), found.0, found.1)]
    SeveralUses {
        /// The folder.
        folder: PathBuf,
        /// Two of its uses.
        found: (FolderUse, FolderUse),
    },
    /// Folds of one run are of different networks.
    #[error("{} and {} were trained with different settings", one.display(), other.display())]
    FoldsDiffer {
        /// A fold.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
    },
    /// A folder holds no run.
    #[error("{} holds no run: no fold in it was started", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A name that TotalSegmentator knows is no task that can be run.
    #[error("{found} cannot be run: {why}")]
    UnavailableTask {
        /// The name.
        found: String,
        /// The reason.
        why: &'static str,
    },
    /// The weights of a task of TotalSegmentator need a licence, so that nothing is known of them here.
    #[error("the weights of {found} need a licence from TotalSegmentator")]
    LicensedTask {
        /// The name.
        found: String,
    },
    /// TotalSegmentator has no such task, or not one that can be run here.
    #[error("`{found}` is not a supported task of TotalSegmentator")]
    NoTask {
        /// The name.
        found: String,
    },
    /// A task has no models that coarse.
    #[error("{task} has no fast models")]
    NoMode {
        /// The task.
        task: String,
    },
    /// The weights of a task are not there.
    #[error("the weights of data set {dataset} are not in {}: there is no Dataset{dataset:03}_*/{model}", folder.display())]
    NoTaskWeights {
        /// The number of the data set.
        dataset: u32,
        /// The place that was searched.
        folder: PathBuf,
        /// The folder of the model.
        model: String,
    },
    /// The checkpoints of a network hold its tensors otherwise than its authors do.
    #[error("{network} stores some tensors in parts, which its authors' program does not load")]
    OwnNames {
        /// The network.
        network: String,
    },
    /// A model's file is not as it was written.
    #[error("{}: {why}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// Tensors of a model's file are not as they were written.
    #[error("{} is damaged: {} of its {of} tensors, {}", path.display(), faults.len(), first_of(faults))]
    DamagedModel {
        /// The file.
        path: PathBuf,
        /// The fault of each, beginning with its name.
        faults: Vec<String>,
        /// The number of tensors.
        of: usize,
    },
    /// A model lacks a fold.
    #[error("{} has no fold {fold}", path.display())]
    NoFold {
        /// The model.
        path: PathBuf,
        /// The fold.
        fold: FoldName,
    },
    /// A fold is chosen of a model that has none.
    #[error("{} has no folds, but fold {fold} was chosen", path.display())]
    WithoutFolds {
        /// The model.
        path: PathBuf,
        /// The fold.
        fold: FoldName,
    },
    /// A model does not label voxels.
    #[error("{} classifies whole images", path.display())]
    OfImages {
        /// The model.
        path: PathBuf,
    },
    /// Classifiers of pairs of classes are no single model.
    #[error("{} has classifiers of {count} pairs, and each is its own model", folder.display())]
    OfPairs {
        /// Their folder.
        folder: PathBuf,
        /// The number of pairs.
        count: usize,
        /// The run of the first pair.
        first: PathBuf,
    },
    /// A model of another program is no run.
    #[error("{} is not a run of this program", path.display())]
    NotARun {
        /// The model.
        path: PathBuf,
    },
    /// Nothing at a path is a model.
    #[error("{} holds no model: {why}", path.display())]
    NotAModel {
        /// The file or folder.
        path: PathBuf,
        /// The assumed kind.
        why: String,
    },
    /// A run cannot start from a file or folder.
    #[error("{} cannot be started from: {why}", path.display())]
    NoStart {
        /// The file or folder.
        path: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// Something cannot be adopted from a start.
    #[error("{what} cannot be adopted from {}: {why}", path.display())]
    NotAdopted {
        /// The file or folder.
        path: PathBuf,
        /// The parts of the settings.
        what: &'static str,
        /// The obstacle.
        why: String,
    },
    /// A folder holds no model.
    #[error("{} holds no model: there is no {file} in it or in folders fold_0, fold_1, …", folder.display())]
    NoModel {
        /// The folder.
        folder: PathBuf,
        /// The name that was searched.
        file: &'static str,
    },
}

impl From<NnUnetError> for ModelError {
    fn from(error: NnUnetError) -> ModelError {
        ModelError::NnUnet(Box::new(error))
    }
}

impl From<MonaiError> for ModelError {
    fn from(error: MonaiError) -> ModelError {
        ModelError::Monai(Box::new(error))
    }
}

impl From<PackageError> for ModelError {
    fn from(error: PackageError) -> ModelError {
        ModelError::Package(Box::new(error))
    }
}

impl From<TensorFlowError> for ModelError {
    fn from(error: TensorFlowError) -> ModelError {
        ModelError::TensorFlow(Box::new(error))
    }
}

impl ModelError {
    /// The system's error about a file or a folder.
    pub(crate) fn io(path: &Path, source: io::Error) -> ModelError {
        ModelError::Run(RunError::Io { path: path.into(), source })
    }

    /// The error of classifiers of pairs where a single model is needed.
    pub(crate) fn pairs_refused(folder: &Path, pairs: &[(u32, u32)]) -> ModelError {
        let first = pairs.first().map(|pair| RunFolder::for_pair(folder, *pair).path().to_path_buf());
        let first = first.unwrap_or_else(|| folder.into());
        ModelError::OfPairs { folder: folder.into(), count: pairs.len(), first }
    }

    /// The remedy, in which parameters are marked: see `plimsoll-remedy`.
    pub fn remedy(&self) -> Option<String> {
        match self {
            ModelError::Run(error) => error.remedy(),
            ModelError::Config(error) => error.remedy(),
            ModelError::Weights(error) => error.remedy(),
            ModelError::Memory(error) => Some(error.remedy()),
            ModelError::NnUnet(error) => Some(error.remedy()),
            ModelError::NotExported { hint, .. } => Some((*hint).into()),
            ModelError::Monai(error) => Some(error.remedy()),
            ModelError::Package(error) => Some(error.remedy()),
            ModelError::TensorFlow(error) => Some(error.remedy()),
            ModelError::SeveralUses { .. } => Some(
                "move one of them to another folder, or name the folder of one fold or of one pair itself".into(),
            ),
            ModelError::FoldsDiffer { .. } => Some("name one fold's folder instead of the run's".into()),
            ModelError::OwnNames { .. } => {
                Some("‹job models export› writes it to a file that this program predicts with".into())
            }
            ModelError::ModelFile { .. } | ModelError::DamagedModel { .. } => Some(
                "copy the file again, or write it again with ‹job models export RUN FILE.plimsoll›".into(),
            ),
            ModelError::NoFold { .. } => Some("‹job models show› lists its folds".into()),
            ModelError::WithoutFolds { .. } => {
                Some("leave ‹fold› out: models of MONAI have no folds".into())
            }
            ModelError::OfImages { .. } => Some("name a model that labels voxels".into()),
            ModelError::OfPairs { first, .. } => Some(format!("name one of them, like {}", first.display())),
            ModelError::NotARun { .. } => Some("name the folder of a run, or a .plimsoll file".into()),
            ModelError::NotAModel { .. } => Some(
                "name the folder of a run, of a model of nnU-Net or of a MONAI bundle, a .plimsoll file, or a model.toml".into(),
            ),
            ModelError::NoModel { .. } | ModelError::NoRun { .. } => {
                Some("name the folder that ‹job train +out› wrote, or one of its folds".into())
            }
            ModelError::NoStart { .. } => Some(
                "name a file of weights, a folder with adaptation_plan.json and checkpoint_final.pth, the folder of a run or of one of its \
                 folds, or a model of nnU-Net with one fold"
                    .into(),
            ),
            ModelError::NotAdopted { .. } => {
                Some("leave it out of ‹adopt›, and set it yourself".into())
            }
            ModelError::NoTask { .. } | ModelError::UnavailableTask { .. } => {
                Some("‹job segment +list› names the tasks".into())
            }
            ModelError::LicensedTask { .. } => Some(
                "run it with TotalSegmentator itself; ‹job segment +list› names the tasks whose weights are open".into(),
            ),
            ModelError::NoMode { .. } => Some("leave ‹fast› and ‹fastest› out".into()),
            ModelError::NoTaskWeights { .. } => Some(
                "download them with TotalSegmentator's own `totalseg_download_weights`, or from its releases, or name the folder that \
                 has them with ‹weights›"
                    .into(),
            ),
        }
    }
}

/// The first few of what is wrong.
fn first_of(faults: &[String]) -> String {
    const MOST: usize = 3;
    let mut text = faults.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    if faults.len() > MOST {
        text.push_str("; …");
    }
    text
}
