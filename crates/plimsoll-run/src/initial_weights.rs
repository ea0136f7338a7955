//! The origin of initial parameters: the seed, or a file of weights with its digest.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};

use crate::RunError;

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
        /// `true` if tensors that the network does not have were ignored.
        allow_extra: bool,
        /// `true` if heads of other shapes were initialised at random.
        new_head: bool,
        /// `true` if weights of three image channels were summed for one.
        #[serde(default)]
        sum_stem: bool,
        /// `true` if kernels of another extent were resampled.
        #[serde(default)]
        upkern: bool,
    },
}

impl InitialWeights {
    /// The weights of a file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn from_file(
        path: &Path,
        allow_extra: bool,
        new_head: bool,
        sum_stem: bool,
        upkern: bool,
    ) -> Result<InitialWeights, RunError> {
        let content = digest_of(path)?;
        Ok(InitialWeights::File { path: path.into(), content, allow_extra, new_head, sum_stem, upkern })
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
