//! Windows on their way through the network, and the sums of their logits, plane by plane.

pub(crate) mod buffers;
pub(crate) mod case_sums;
pub(crate) mod device_sums;
pub(crate) mod export;
pub(crate) mod forward;
pub(crate) mod head_planes;
pub(crate) mod lines;
pub(crate) mod means;
pub(crate) mod mirror;
pub(crate) mod passes;
pub(crate) mod places;
pub(crate) mod ring;
pub(crate) mod ring_shape;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod shares;
pub(crate) mod sliding_window;
pub(crate) mod stream;
pub(crate) mod summands;
pub(crate) mod sums;
pub(crate) mod windows;
pub(crate) mod work;
pub(crate) mod workers;
