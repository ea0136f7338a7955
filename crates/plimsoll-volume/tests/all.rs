//! All tests of this crate, but for those that measure memory, which have a process each: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access_points;
mod chunked;
mod damage;
mod failing_disk;
mod formats;
mod pulling;
mod reading;
mod reference;
mod segments;
mod space;
mod stacks;
mod support;
mod writing;
