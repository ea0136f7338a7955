//! All tests of this crate, but for those that measure memory, which have a process each: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod compressed;
mod label_maps;
mod rt_structures;
mod segmentation;
mod segmentations;
mod segmented_series;
mod series;
