//! Why a model of MONAI cannot be used.

use std::path::{Path, PathBuf};

use plimsoll_memory::OverBudget;
use plimsoll_run::printable;

/// The most letters of a file's text in an error.
const MOST_SHOWN: usize = 300;

/// Why a model of MONAI cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MonaiError {
    /// A file is not written as it should be.
    #[error("{}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The reason and its place.
        why: String,
    },
    /// A `model.toml` says what is not done here.
    #[error("{}: {why}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A bundle says what is not done here.
    #[error("{}: {why}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The reason.
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

impl MonaiError {
    /// About a file, a `model.toml` or one of a bundle.
    pub(super) fn refuse(path: &Path, why: impl Into<String>) -> MonaiError {
        let why = shown(&why.into());
        match path.extension().is_some_and(|ending| ["json", "yaml", "yml"].iter().any(|one| ending == *one))
        {
            true => MonaiError::Bundle { path: path.into(), why },
            false => MonaiError::Config { path: path.into(), why },
        }
    }

    /// About how a file is written.
    pub(super) fn syntax(path: &Path, why: impl Into<String>) -> MonaiError {
        MonaiError::Syntax { path: path.into(), why: shown(&why.into()) }
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            MonaiError::Syntax { .. } => "correct the file; docs/models.md has an example of each".into(),
            MonaiError::Config { .. } => "docs/models.md lists the entries of a model.toml".into(),
            MonaiError::Bundle { .. } => {
                "write a model.toml beside the weights that describes the same model, as docs/models.md shows"
                    .into()
            }
            MonaiError::OverBudget { source, .. } => source.remedy(),
        }
    }
}

/// The beginning of a text of a file from elsewhere, in one line.
fn shown(text: &str) -> String {
    let mut beginning: String = text.chars().take(MOST_SHOWN).collect();
    if beginning.len() < text.len() {
        beginning.push('…');
    }
    printable(&beginning).replace(['\n', '\t'], " ")
}
