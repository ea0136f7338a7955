//! Segmentation in two dimensions: slices of volumes, and plain images, from files to scores.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod slices {
    pub mod discs;
    pub mod losses;
    pub mod pictures;
    pub mod volumes;
}
mod support;
