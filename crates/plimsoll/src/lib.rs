//! Trains and runs medical-image networks inside a memory limit, and never over it.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod backend;
mod context;
mod error;
mod events;
mod files;
pub mod jobs;
mod monitors;
mod watcher;

pub use context::{Context, Progress, StopToken, TimeLeft};
pub use error::{Error, Outcome};
pub use events::{Event, Observer, Unobserved, Work};
pub use monitors::Monitoring;
