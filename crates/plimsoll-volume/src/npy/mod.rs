//! Arrays of NumPy's: `.npy`.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. The axes of an array are (depth, height, width), with
//! channels before them if there are four. It has no place in the world: its spacing is in a file of JSON beside it, or else voxels are a
//! millimetre long.

mod header;
mod open;

pub(crate) use header::{Header, element_type};
pub(crate) use open::{begins, open, open_array};
