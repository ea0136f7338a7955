//! The kernels.

mod chunk;
pub(crate) mod cross_group;
pub(crate) mod dropout;
pub(crate) mod geometry;
pub(crate) mod head;
pub(crate) mod loss;
pub(crate) mod morphology;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod patch;
pub(crate) mod pointwise;

pub(crate) mod structure;
mod sum_parts;
pub(crate) mod tap_conv;
pub(crate) mod transpose_weights;
pub(crate) mod voxel_loss;
pub(crate) mod voxels;
pub(crate) mod weight_grad;
pub(crate) mod winograd;
