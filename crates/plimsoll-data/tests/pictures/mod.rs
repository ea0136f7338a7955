//! Plain pictures with classes.

#[path = "../../../plimsoll-image/tests/common/mod.rs"]
mod common;
mod dataset;
mod pipeline;
