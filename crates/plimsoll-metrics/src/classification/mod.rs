//! Scores of classifications: a table of probabilities against labels, with bootstrap confidence intervals.
//!
//! Every score is computed with a weight per case, a whole number. The table itself has weight 1 everywhere; a
//! resample of the bootstrap is nothing but other weights, so that what is sorted once serves all of them.

mod bootstrap;
mod counts;
mod ranking;
mod report;
mod scores;
mod table;

pub use bootstrap::{Bootstrap, Interval};
pub use report::{ClassReport, Report, classify};
pub use table::{Table, TableError};
