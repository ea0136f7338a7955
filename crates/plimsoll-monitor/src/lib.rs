//! Runs as they go on, for people and for programs of others.
//!
//! The files of a run are the only source: `metrics.jsonl` and `events.jsonl` of each fold. [`FoldFollower`]
//! reads them as they grow, from any process. Beside them, [`tensorboard::EventFile`] writes the same numbers
//! for TensorBoard, and [`openmetrics::OpenMetrics`] for Prometheus.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod curve;
mod follow;
pub mod openmetrics;
pub mod tensorboard;

pub use curve::Curve;
pub use follow::{FoldFollower, LoggedEvent, Point, SCORES_OF_IMAGES, SCORES_OF_VOLUMES};
