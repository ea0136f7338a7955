//! Series of DICOM slices as volumes.
//!
//! [`Series::find`] reads the headers of a folder's files, and makes one volume of them or says why it is none: several series, slices that
//! are missing, doubled, turned or of other sizes. [`Series::write`] decodes slice by slice, and writes a NIfTI image.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod error;
mod header;
mod layout;
mod pixels;
mod series;
mod write;

pub use error::DicomError;
pub use series::{Series, has_dicom};
