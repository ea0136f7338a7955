//! All tests of this crate: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod basics;
mod common;
mod conversions;
mod cute;
mod exchange;
mod floats;
mod integers;
mod library;
mod memory;
mod mistakes;
mod parsing;
mod product;
mod tensor;
mod warpgroup;
