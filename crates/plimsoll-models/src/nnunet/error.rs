//! Why a model of nnU-Net cannot be used.

use std::path::PathBuf;

use plimsoll_memory::OverBudget;
use plimsoll_nn::ConfigError;
use plimsoll_run::FoldName;

/// Why a model of nnU-Net cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NnUnetError {
    /// An entry of a file is not what it can be.
    #[error("{}: `{key}` is {found}, but {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The entry, with those that it stands in before it.
        key: String,
        /// The found value.
        found: String,
        /// The possible values.
        expected: String,
    },
    /// An entry is not there.
    #[error("{}: there is no `{key}`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The entry.
        key: String,
    },
    /// Something has a name that nothing is known of.
    #[error("{}: unknown {what} `{name}`; known: {known}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The kind of name.
        what: &'static str,
        /// Its name.
        name: String,
        /// Names that are known.
        known: String,
    },
    /// The network that a file describes is impossible here.
    #[error("{}: `{key}`: {source}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// The entry that describes it.
        key: String,
        /// Why.
        source: Box<ConfigError>,
    },
    /// No fold has the checkpoint, or a requested fold lacks it.
    #[error("{} has no {checkpoint} in {folds}", folder.display())]
    NoFold {
        /// The folder of the model.
        folder: PathBuf,
        /// The name of the file.
        checkpoint: String,
        /// The folders that were searched.
        folds: String,
    },
    /// Several folds have the checkpoint where one is needed.
    #[error("{} has several folds: {}", folder.display(), listed(folds))]
    SeveralFolds {
        /// The folder of the model.
        folder: PathBuf,
        /// Its folds.
        folds: Vec<FoldName>,
    },
    /// A folder has no description of prompts.
    #[error("{} is no model of nnInteractive: it has no inference_info.json", folder.display())]
    NotInteractive {
        /// The folder.
        folder: PathBuf,
    },
    /// A model of prompts takes images of several channels.
    #[error("{} takes images of {found} channels, but prompts need images of one", folder.display())]
    ImageChannels {
        /// The folder of the model.
        folder: PathBuf,
        /// The number of channels.
        found: usize,
    },
    /// A folder is one of nnU-Net 1.
    #[error("{} is a model of nnU-Net 1: it has plans.pkl instead of plans.json", folder.display())]
    FirstVersion {
        /// The folder.
        folder: PathBuf,
    },
    /// Several models are in a folder, or none.
    #[error("{} has {} models of nnU-Net in it{}", folder.display(), found.len(), first_found(found))]
    NotOne {
        /// The folder.
        folder: PathBuf,
        /// Their folders.
        found: Vec<PathBuf>,
    },
    /// An archive or a folder cannot be imported.
    #[error("{}: {why}", path.display())]
    Import {
        /// The archive or folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no room to read a file.
    #[error("{}: {source}", path.display())]
    OverBudget {
        /// The file.
        path: PathBuf,
        /// The holders of the memory.
        source: OverBudget,
    },
}

fn listed(folds: &[FoldName]) -> String {
    folds.iter().map(|fold| format!("fold_{fold}")).collect::<Vec<_>>().join(", ")
}

fn first_found(found: &[PathBuf]) -> String {
    match found.first() {
        None => String::new(),
        Some(first) => format!(", the first {}", first.display()),
    }
}

impl NnUnetError {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            NnUnetError::Value { .. } | NnUnetError::Missing { .. } | NnUnetError::Network { .. } => {
                "docs/models.md lists the supported parts of nnU-Net's files".into()
            }
            NnUnetError::Unknown { what: "trainer", .. } => {
                "if it only trains differently and uses the network of the plans, add ‹trainer_as=nnUNetTrainer›; its weights must then \
                 fit that network"
                    .into()
            }
            NnUnetError::Unknown { what: "pre-trained network", .. } => {
                "start from a checkpoint of one of these; weights of nnU-Net's trainers of Primus in versions 2 and 3 are a file without a plan, \
                 for which the settings describe the network: ‹start=checkpoint_final.pth›"
                    .into()
            }
            NnUnetError::Unknown { .. } => {
                "predict with nnU-Net itself, or train again with plans that use a known one".into()
            }
            NnUnetError::NoFold { .. } => "choose folds and a name of the checkpoint that the folder has".into(),
            NnUnetError::SeveralFolds { folds, .. } => {
                let first = folds.first().map_or_else(|| "0".into(), FoldName::to_string);
                format!("choose one of them with ‹fold={first}›")
            }
            NnUnetError::NotInteractive { .. } => {
                "name the folder of a model of nnInteractive; ‹job predict› runs other models of nnU-Net".into()
            }
            NnUnetError::ImageChannels { .. } => "use a model that was trained on images of one channel".into(),
            NnUnetError::FirstVersion { .. } => "only models of nnU-Net 2 are supported; train it again with nnU-Net 2".into(),
            NnUnetError::NotOne { .. } => {
                "name the folder of one of them".into()
            }
            NnUnetError::Import { .. } => {
                "import what nnUNetv2_export_model_to_zip wrote, or a folder of nnUNet_results, to a place with ‹output›".into()
            }
            NnUnetError::OverBudget { source, .. } => source.remedy(),
        }
    }
}
