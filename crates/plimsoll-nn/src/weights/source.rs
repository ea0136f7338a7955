//! The location of the weights of one network.

use std::fmt;
use std::path::{Path, PathBuf};

/// The weights of one network: a file of its own, or the tensors of a safetensors file whose names begin with a prefix, as a file that
/// holds all folds of a run has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSource {
    /// The file.
    pub path: PathBuf,
    /// The prefix of the names of its tensors, such as `fold_0.`; empty if the file is of this network alone.
    pub prefix: String,
}

impl From<PathBuf> for WeightSource {
    /// A file of its own.
    fn from(path: PathBuf) -> WeightSource {
        WeightSource { path, prefix: String::new() }
    }
}

impl From<&Path> for WeightSource {
    /// A file of its own.
    fn from(path: &Path) -> WeightSource {
        WeightSource::from(path.to_path_buf())
    }
}

impl fmt::Display for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.trim_end_matches('.') {
            "" => write!(f, "{}", self.path.display()),
            part => write!(f, "{} ({part})", self.path.display()),
        }
    }
}
