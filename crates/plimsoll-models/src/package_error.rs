//! Reasons for which the weights of a package cannot be used.

use std::path::{Path, PathBuf};

use plimsoll_memory::OverBudget;
use plimsoll_run::printable;

/// A package with trained networks, as errors name it.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The program that it is.
    pub(crate) program: &'static str,
    /// Its files of weights.
    pub(crate) weights: &'static str,
    /// The remedy for a missing file.
    pub(crate) unpack: &'static str,
    /// The remedy for a file of another network.
    pub(crate) known: &'static str,
}

/// The reason for which a model of a package cannot be imported or opened.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A file of weights is not there.
    #[error("{} is missing: {} has {}", path.display(), package.program, package.weights)]
    Missing {
        /// The file.
        path: PathBuf,
        /// The package.
        package: &'static Package,
    },
    /// A file is of another network: its graph, a tensor or a shape is not of the package's.
    #[error("{}: {why}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
        /// The package.
        package: &'static Package,
    },
    /// Files are of different networks.
    #[error("{} has {found} features in its first layer, but {} has {expected}", path.display(), first.display())]
    NetworksDiffer {
        /// The file.
        path: PathBuf,
        /// Its features.
        found: usize,
        /// The first file.
        first: PathBuf,
        /// Its features.
        expected: usize,
        /// The package.
        package: &'static Package,
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

impl PackageError {
    /// A fault of a description, whose text may be of the file.
    pub(crate) fn description(path: &Path, why: &str) -> PackageError {
        PackageError::Description { path: path.into(), why: printable(why) }
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            PackageError::Missing { package, .. } => package.unpack.into(),
            PackageError::Topology { package, .. } | PackageError::NetworksDiffer { package, .. } => {
                package.known.into()
            }
            PackageError::Description { .. } => "import the model again".into(),
            PackageError::Exists { .. } => "choose another folder".into(),
            PackageError::OverBudget { source, .. } => source.remedy(),
        }
    }
}
