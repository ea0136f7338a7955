//! Reasons for which a model of deepbet cannot be used.

use std::path::PathBuf;

use plimsoll_memory::OverBudget;

/// The reason for which a model of deepbet cannot be imported or opened.
#[derive(Debug, thiserror::Error)]
pub enum DeepbetError {
    /// A network is not there.
    #[error("{} is missing: deepbet has the networks bbox_model.pt and model.pt", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file is of another network: its graph, a tensor or a shape is not of deepbet's.
    #[error("{}: {why}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// The networks are of two sizes.
    #[error("{} has {found} features in its stem, but {} has {expected}", path.display(), first.display())]
    NetworksDiffer {
        /// The file.
        path: PathBuf,
        /// Its features.
        found: usize,
        /// The first network.
        first: PathBuf,
        /// Its features.
        expected: usize,
    },
    /// A description is not written as it should be.
    #[error("{}: {why}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A file of the imported model exists already.
    #[error("{} already exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
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

impl DeepbetError {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            DeepbetError::Missing { .. } => {
                "unpack the package deepbet again; its folder data/models has both of them".into()
            }
            DeepbetError::Topology { .. } | DeepbetError::NetworksDiffer { .. } => {
                "only the networks of deepbet can be imported, as the package deepbet 1.0.2 has them; nothing of the file was executed".into()
            }
            DeepbetError::Description { .. } => "import the model again".into(),
            DeepbetError::Exists { .. } => "choose another folder".into(),
            DeepbetError::OverBudget { source, .. } => source.remedy(),
        }
    }
}
