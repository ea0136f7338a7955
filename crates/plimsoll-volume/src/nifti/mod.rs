//! Headers of NIfTI-1 and NIfTI-2.
//!
//! A header is read in three steps, each in its own file: its fields as stored ([`fields`]), the layout of the voxels
//! ([`layout`]) and their position in the world ([`position`]). No value of a header is used before it is validated.

mod datatype;
mod error;
mod fields;
mod header;
mod label_table;
mod layout;
mod position;
mod version;

pub use error::HeaderError;
pub use header::NiftiHeader;
pub use label_table::{LabelTable, colour};
pub use version::NiftiVersion;
