//! Random programs, right and wrong, for tests of planners and backends.

mod bytes;
mod hand_made;
mod programs;

pub use bytes::damaged;
pub use hand_made::{changed, options, run, valid};
pub use programs::{Random, complete, set, value};
