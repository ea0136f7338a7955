//! The origin of initial parameters: the seed, or a file of weights with its digest.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};

use crate::{RunError, StartRule};

/// Bytes of a weight file that are read at a time.
const PIECE: usize = 64 << 10;

/// The origin of initial parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "from")]
pub enum InitialWeights {
    /// The seed.
    Seed,
    /// A file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// Its contents.
        content: Digest,
        /// The rule by which its tensors became parameters.
        rule: StartRule,
    },
}

impl InitialWeights {
    /// The weights of a file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn from_file(path: &Path, rule: StartRule) -> Result<InitialWeights, RunError> {
        let content = digest_of(path)?;
        Ok(InitialWeights::File { path: path.into(), content, rule })
    }

    /// Checks that the file of initial weights, if there is one, has not changed since the run began.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or has other contents.
    pub fn check(&self) -> Result<(), RunError> {
        match self {
            InitialWeights::File { path, content, .. } if digest_of(path)? != *content => {
                Err(RunError::OtherWeights { path: path.clone() })
            }
            InitialWeights::Seed | InitialWeights::File { .. } => Ok(()),
        }
    }
}

/// The digest of a file, read in pieces.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn digest_of(path: &Path) -> Result<Digest, RunError> {
    let io = |source| RunError::io(path, source);
    let mut file = File::open(path).map_err(io)?;
    let mut digester = Digester::default();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece).map_err(io)? {
            0 => return Ok(digester.finish()),
            read => digester.update(&piece[..read]),
        }
    }
}

impl fmt::Display for InitialWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitialWeights::Seed => f.write_str("random"),
            InitialWeights::File { path, content, .. } => write!(f, "{} ({content})", path.display()),
        }
    }
}
