//! Morphology, topology and distances of masks.
//!
//! Masks are slices of [`Label`]s in the order depth, height, width; spacing is in millimetres in the same order. Distances also take
//! [`Voxels`], which have any layout.

mod bits;
mod carve;
mod cells;
mod components;
mod connectivity;
mod cube;
mod edt;
mod erode;
mod error;
mod euler;
mod fill;
mod forest;
mod grid;
mod label;
mod rows;
mod runs;
mod simd;
mod slabs;
mod surface;
mod thin;
mod tube;
mod voxels;

pub use cells::{cell_shape, contour_codes, surface_codes};
pub use components::{Region, component_sizes, components, largest_component};
pub use connectivity::Connectivity;
pub use edt::{
    Distance, EdtOptions, NO_FEATURE, edt, edt_of_voxels, edt_with_features, scratch_bytes,
    scratch_bytes_with_features,
};
pub use erode::{dilate, erode};
pub use error::MorphologyError;
pub use euler::{Betti, Topology, betti_numbers, euler_number};
pub use fill::fill_holes;
pub use grid::check_spacing;
pub use label::Label;
pub use surface::{contour_lengths, surface_areas};
pub use thin::{Recheck, skeletonize};
pub use tube::{tube_scratch_bytes, tubed_skeleton};
pub use voxels::Voxels;
