//! Operations on images: each a function of an image and parameters, with the numbers of the program that it is named after.

pub mod affine;
pub mod clahe;
pub mod crop;
pub mod flip;
pub mod gaussian;
pub mod jitter;
pub mod lab;
pub mod resize;
pub mod tensor;
