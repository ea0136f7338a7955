//! The NIfTI-1 and NIfTI-2 formats: one file (`.nii`, `.nii.gz`) or a pair (`.hdr` and `.img`, each possibly with
//! `.gz`).
//!
//! A header is read in three steps that each have a file here: its fields as they stand ([`fields`]), what they say
//! about the voxels ([`layout`]) and where they put them ([`position`]). Nothing in a header is believed before it
//! was checked.

mod error;
mod fields;
mod header;
mod layout;
pub(crate) mod names;
mod position;

pub use error::HeaderError;
pub use header::{NiftiHeader, NiftiVersion};
pub(crate) use layout::Layout;
