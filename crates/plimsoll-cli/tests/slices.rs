//! Segmentation in two dimensions: slices of volumes, and plain images, from files to scores.

mod discs;
mod losses;
mod pictures;
mod volumes;
