//! All tests of this crate: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod classification;
mod classifiers;
mod comparison;
mod evaluate;
mod ignored;
mod missing;
mod references;
mod table;
