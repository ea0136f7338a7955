//! Cases before the network: their headers, their grids, and the windows that are pulled from their images.

pub(crate) mod ahead;
pub(crate) mod believable;
pub(crate) mod case_spacing;
pub(crate) mod case_windows;
pub(crate) mod headers;
pub(crate) mod request;
pub(crate) mod shared_image;
