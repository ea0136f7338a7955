//! All tests of this crate, but for those that measure memory, which have a process each: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod augmentation;
mod cache;
mod dataset;
mod fingerprint;
mod images;
mod inspect;
mod layouts;
mod loader;
mod masks;
mod phantom;
mod pictures;
mod prepared;
mod pulling;
mod sampling;
mod segments;
mod shared_images;
mod splits;
mod support;
mod targets;
