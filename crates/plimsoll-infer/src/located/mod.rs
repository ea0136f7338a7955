//! Models of two networks, the first of which finds the box that the second sees.
//!
//! Each network sees one window of a fixed extent, whatever the shape of the image, so that the memory of both is known from its header: the
//! larger of the two is planned. The mark of the second network is brought to the stored grid, and what is not its largest component or a hole of that is removed.

mod boxes;
mod fault;
mod intensities;
mod mark;
mod plan;
mod predict;
mod sampling;

pub use fault::LocatedFault;
pub(crate) use plan::steps_of;
