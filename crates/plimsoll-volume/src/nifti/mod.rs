//! The NIfTI-1 and NIfTI-2 formats: one file (`.nii`, `.nii.gz`) or a pair (`.hdr` and `.img`, each possibly with
//! `.gz`).
//!
//! A header is read in three steps, each in its own file: its fields as stored ([`fields`]), the layout of the voxels
//! ([`layout`]) and their position in the world ([`position`]). No value of a header is used before it is validated.

mod datatype;
mod error;
mod fields;
mod header;
mod label_table;
mod layout;
pub(crate) mod names;
mod open;
mod position;
mod version;

pub use error::HeaderError;
pub use header::NiftiHeader;
pub use label_table::{LabelTable, colour};
pub(crate) use layout::{Layout, bytes_of};
pub(crate) use open::{begins, open};
pub use version::NiftiVersion;
