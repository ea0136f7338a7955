//! Kernels of losses that see shapes: on probabilities of the foreground classes, `[N][C−1][voxels]`.

pub(crate) mod boundary_l1;
pub(crate) mod distance;
pub(crate) mod distance_loss;
pub(crate) mod mean_pool;
pub(crate) mod probabilities;
