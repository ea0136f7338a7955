//! MetaImage, the format of ITK's: `.mha` with its voxels behind the header, `.mhd` with them in another file, plain or as a stream of zlib.
//!
//! Format: <https://itk.org/Wiki/ITK/MetaIO/Documentation>, and where that is silent MetaIO itself. Axes run fastest first; the world is
//! LPS.

mod open;
mod write;

pub(crate) use open::{begins, open};
pub(crate) use write::{header, header_apart, is_name, length, voxels_of};
