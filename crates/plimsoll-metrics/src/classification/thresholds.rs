//! Thresholds that meet a wanted sensitivity, with what they come to.

use plimsoll_memory::Budget;
use serde::{Deserialize, Serialize};

use super::binomial::wilson;
use super::bootstrap::Interval;
use super::operating::threshold_for_sensitivity;
use super::report::ClassificationReport;
use super::table::{Table, TableError};

/// The highest threshold of a class with at least a wanted sensitivity on the cases of a table. Both shares are of the cases that the
/// threshold was chosen on, so that on others the sensitivity may be lower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SensitivityThreshold {
    /// The sensitivity that was asked for.
    pub wanted: f64,
    /// A case is positive if its probability is at least this; none without a case of the class.
    pub threshold: Option<f64>,
    /// TP / (TP + FN), with the interval of Wilson.
    pub sensitivity: Interval,
    /// TN / (TN + FP), with the interval of Wilson.
    pub specificity: Interval,
}

impl ClassificationReport {
    /// Adds to each class of a table that was scored its threshold for each wanted sensitivity, from above 0 to 1. Uses 16 bytes per
    /// case from `budget`.
    ///
    /// # Errors
    /// Returns an error if the memory is not available.
    pub fn add_thresholds(
        &mut self,
        table: &Table,
        wanted: &[f64],
        budget: &Budget,
    ) -> Result<(), TableError> {
        let confidence = self.bootstrap.confidence;
        for (class, report) in self.classes.iter_mut().enumerate() {
            for wanted in wanted {
                let point = threshold_for_sensitivity(table, class, *wanted, budget)?;
                let threshold = point.map(|point| point.threshold);
                // Cases of the class and of others: how many of them are on their side of the threshold, and how many there are.
                let [mut own, mut others] = [(0, 0); 2];
                for (case, probability) in table.column(class).enumerate() {
                    let is_own = table.is_of(case, class);
                    let is_positive = threshold.is_some_and(|threshold| probability >= threshold);
                    let (right, all) = if is_own { &mut own } else { &mut others };
                    *right += u64::from(is_own == is_positive);
                    *all += 1;
                }
                let share = |(right, all)| match threshold {
                    Some(_) => wilson(right, all, confidence),
                    None => Interval::default(),
                };
                report.thresholds.push(SensitivityThreshold {
                    wanted: *wanted,
                    threshold,
                    sensitivity: share(own),
                    specificity: share(others),
                });
            }
        }
        Ok(())
    }
}
