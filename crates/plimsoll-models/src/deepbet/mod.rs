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
mod error;
mod import;
mod network;
mod topology;

pub use description::DeepbetModel;
pub use error::DeepbetError;
pub use import::{ImportedDeepbet, find, import};

/// The program, as a `model.toml` names it.
pub(crate) const PROGRAM: &str = "deepbet";
/// The file of a description.
const DESCRIPTION: &str = "model.toml";
/// The files of the two networks in the package, and in an imported model.
const NETWORKS: [[&str; 2]; 2] = [["bbox_model.pt", "box.safetensors"], ["model.pt", "mask.safetensors"]];
