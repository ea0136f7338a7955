//! Images in two dimensions: decoding, processing, encoding.
//!
//! 1. [`ImageFile`] reads PNG, JPEG, TIFF and BMP files within limits: the header is checked, memory is reserved, then the
//!    image is decoded. [`LabelImage`] reads those whose pixels are classes, and [`write_label_png`] writes them.
//! 2. Each [`process`] crops, equalises, resizes, changes or normalises an image with the numbers of the program that others have their
//!    results from.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod decode;
mod encode;
mod error;
pub mod process;
mod raster;

pub use decode::{DecodeOptions, Decoded, Header, ImageFile, LabelImage, Levels, Orientation, SampleRange};
pub use encode::write_label_png;
pub use error::ImageError;
pub use raster::{Extent, Image, Image8, Image16, Raster};
