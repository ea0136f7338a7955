//! Classes of plain images, and the maps that explain them.

pub(crate) mod grad_cam;
pub(crate) mod image_network;
pub(crate) mod images;
