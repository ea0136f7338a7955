//! Why a model of TensorFlow.js cannot be imported.

use std::path::PathBuf;

use plimsoll_memory::OverBudget;

/// Why a model of TensorFlow.js cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum TensorFlowError {
    /// A description is damaged, or of what is not a MeshNet.
    #[error("{}: {why}", path.display())]
    Refused {
        /// The description.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The files of the weights are not as long as the description says.
    #[error("{}: {found} bytes of weights, but its description says {expected}", path.display())]
    Length {
        /// The folder, or the file.
        path: PathBuf,
        /// The bytes of all tensors.
        expected: u64,
        /// The bytes of all files.
        found: u64,
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

impl TensorFlowError {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            TensorFlowError::Refused { .. } => {
                "only MeshNets can be imported from TensorFlow.js; docs/models.md says which layers they have"
                    .into()
            }
            TensorFlowError::Length { .. } => "download the files of the weights again".into(),
            TensorFlowError::Exists { .. } => "choose another folder".into(),
            TensorFlowError::OverBudget { source, .. } => source.remedy(),
        }
    }
}
