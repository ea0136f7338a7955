//! NRRD: `.nrrd` with its voxels behind the header, `.nhdr` with them in another file, and the segmentations of 3D Slicer's, `.seg.nrrd`.
//!
//! Format: <https://teem.sourceforge.net/nrrd/format.html>. Its axes run fastest first; its world is LPS, RAS or LAS, which each file says.

mod header;
mod layers;
mod open;
mod segments;
mod write;

pub(crate) use open::{begins, open};
pub use write::{Segment, is_segmentation};
pub(crate) use write::{header, is_name};
