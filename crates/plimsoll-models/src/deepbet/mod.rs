//! Brain extraction by deepbet (Fisch et al. 2024, doi:10.1016/j.compbiomed.2024.108845), as the package deepbet 1.0.2 computes it.
//!
//! ```text
//! data/models/bbox_model.pt, model.pt      networks as TorchScript
//! deepbet-1.0.2.dist-info/LICENSE
//! ```
//!
//! [`import`] makes a `model.toml` of them, with a file of weights for each network. The first network marks the brain in the image at
//! 128 × 128 × 128 voxels, whatever its shape; the second marks it in the box around that mark, grown by a tenth to each side, at
//! 256 × 256 × 256. Both see the nearest voxels, between two quantiles of the first image. Of the mark, the largest component is
//! kept, and its holes are filled.

mod description;
mod import;
mod network;
mod topology;

pub use description::DeepbetModel;
pub use import::{ImportedDeepbet, find, import};

use crate::Package;

/// The program, as a `model.toml` names it.
pub(crate) const PROGRAM: &str = "deepbet";
/// The package, as errors name it.
static PACKAGE: Package = Package {
    program: "deepbet",
    weights: "the networks bbox_model.pt and model.pt",
    unpack: "unpack the package deepbet again; its folder data/models has both of them",
    known: "only the networks of deepbet can be imported, as the package deepbet 1.0.2 has them; nothing of the file was executed",
};
/// The file of a description.
const DESCRIPTION: &str = "model.toml";
/// The files of the two networks in the package, and in an imported model.
const NETWORKS: [[&str; 2]; 2] = [["bbox_model.pt", "box.safetensors"], ["model.pt", "mask.safetensors"]];
