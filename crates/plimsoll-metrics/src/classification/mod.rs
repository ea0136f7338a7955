//! Scores of classifications: a table of probabilities against labels, with bootstrap confidence intervals.
//!
//! Every score is computed with a weight per case, a whole number. The table itself has weight 1 for every case; a
//! resample of the bootstrap only changes the weights, so cases are sorted once for all resamples.

mod binomial;
pub(crate) mod bootstrap;
mod counts;
mod curves;
mod fields;
pub(crate) mod operating;
pub(crate) mod ranking;
mod report;
pub(crate) mod scores;
mod table;
mod thresholds;

pub use binomial::wilson;
pub use bootstrap::{Bootstrap, Interval};
pub use counts::ClassCounts;
pub use curves::Curves;
pub use operating::{OperatingPoint, ReliabilityBin, reliability, roc, threshold_for_sensitivity};
pub use report::{ClassReport, ClassificationReport, classify};
pub use table::{Labelling, NamedTable, Table, TableError};
pub use thresholds::SensitivityThreshold;
