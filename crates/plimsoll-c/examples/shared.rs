//! The shared library, built where the tests of the crate find it.
#![allow(unsafe_code, reason = "arguments are pointers of C")]

#[path = "../src/arguments.rs"]
mod arguments;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/evaluation.rs"]
mod evaluation;
#[path = "../src/interface.rs"]
mod interface;
#[path = "../src/model.rs"]
mod model;
#[path = "../src/session.rs"]
mod session;
#[path = "../src/types.rs"]
mod types;
#[path = "../src/wording.rs"]
mod wording;

pub use error::PlimsollStatus;
pub use evaluation::*;
pub use interface::*;
pub use session::*;
pub use types::*;
