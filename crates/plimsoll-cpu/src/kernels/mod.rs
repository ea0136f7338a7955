//! The kernels.

pub(crate) mod dropout;
pub(crate) mod geometry;
pub(crate) mod head;
pub(crate) mod loss;
pub(crate) mod morphology;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod patch;
pub(crate) mod pointwise;
pub(crate) mod strangers;
pub(crate) mod structure;
pub(crate) mod tap_conv;
pub(crate) mod transpose_weights;
pub(crate) mod voxel_loss;
pub(crate) mod weight_grad;
pub(crate) mod winograd;
