//! All tests of this crate, but for those that measure memory, which have a process each: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod decode;
mod process;
