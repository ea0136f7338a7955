//! Scores of classifications: a table of probabilities against labels, with bootstrap confidence intervals.
//!
//! Every score is computed with a weight per case, a whole number. The table itself has weight 1 for every case; a
//! resample of the bootstrap only changes the weights, so cases are sorted once for all resamples.

mod bootstrap;
mod counts;
mod ranking;
mod report;
mod scores;
mod table;

pub use bootstrap::{Bootstrap, Interval};
pub use report::{ClassReport, Report, classify};
pub use table::{Table, TableError};
