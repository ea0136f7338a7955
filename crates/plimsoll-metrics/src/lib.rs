//! Scores of segmentations against their references.
//!
//! [`compare`] streams two label maps plane by plane and counts which class met which; [`Overlap`] makes scores of the counts;
//! [`Summary`] puts cases together in the shape of nnU-Net's `summary.json`.

mod compare;
mod error;
mod overlap;
mod summary;

pub use compare::{Confusion, compare};
pub use error::MetricError;
pub use overlap::Overlap;
pub use summary::{CaseScores, Scores, Summary, evaluate};
