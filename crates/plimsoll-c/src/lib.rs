//! Prediction and evaluation from C, and from whatever calls C: labels of an image in memory, and their scores, within a memory limit.
//!
//! `include/plimsoll.h` is this interface as C sees it; it is made of the functions and comments of [`interface`], [`session`], [`evaluation`] and [`types`], and a test fails where
//! the two differ. [`Model`](model::Model) is what a handle holds, without anything unsafe.
//!
//! * Nothing unwinds into C: a panic ends the call with a status, and the handle says what happened.
//! * A handle may be used from several threads; calls that compute wait for each other.
//! * Each handle has its own memory limit. Images and labels of the caller are not counted, the copy of an image is.
#![allow(unsafe_code, reason = "arguments are pointers of C")]

mod arguments;
mod error;
mod evaluation;
mod interface;
mod model;
mod session;
mod types;
mod wording;

pub use error::PlimsollStatus;
pub use evaluation::*;
pub use interface::*;
pub use session::*;
pub use types::*;

#[cfg(test)]
#[path = "../tests/unit/evaluation.rs"]
mod evaluation_tests;
#[cfg(test)]
#[path = "../tests/unit/prediction.rs"]
mod prediction_tests;
#[cfg(test)]
#[path = "../tests/unit/session.rs"]
mod session_tests;
