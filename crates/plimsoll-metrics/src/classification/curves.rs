//! The curves in the pictures of a classification.

use plimsoll_memory::{Budget, Bytes, Reservation};

use super::operating::{ReliabilityBin, reliability, roc};
use super::scores::BINS;
use super::table::{Table, TableError};

/// Points of an ROC curve that are closer to the one before, along both axes together, are left out: they would not be seen.
const STEP: f64 = 0.002;

/// The most points that are left of a curve, whose both axes rise from 0 to 1.
const MOST_POINTS: usize = (2.0 / STEP) as usize + 2;

/// The curves of a table: what a picture of it shows.
#[derive(Debug)]
pub struct Curves {
    /// The points (1 − specificity, sensitivity) of each class against the rest, from (0, 0) to (1, 1); `None` if one of the two is
    /// undefined.
    pub roc: Vec<Vec<[f64; 2]>>,
    /// The bins of the expected calibration error.
    pub reliability: Vec<ReliabilityBin>,
    _memory: Reservation,
}

impl Curves {
    /// Takes the curves of a table. Uses 16 bytes per case from `budget`, and as many for each of at most 1002 points of a class.
    ///
    /// # Errors
    /// Returns an error if the memory is not available.
    pub fn new(table: &Table, budget: &Budget) -> Result<Curves, TableError> {
        let classes = table.classes().len();
        let bytes = classes.saturating_mul(MOST_POINTS).saturating_mul(size_of::<[f64; 2]>());
        let memory =
            budget.reserve("curves", Bytes::from_len(bytes)).map_err(plimsoll_memory::MapError::from)?;
        let mut curves = Vec::new();
        for class in 0..classes {
            let mut points: Vec<[f64; 2]> = Vec::with_capacity(MOST_POINTS);
            let mut end = None;
            roc(table, class, budget, |point| {
                let (Some(sensitivity), Some(specificity)) = (point.sensitivity, point.specificity) else {
                    return;
                };
                let next = [1.0 - specificity, sensitivity];
                let far = |last: &[f64; 2]| (next[0] - last[0]).abs() + (next[1] - last[1]).abs() >= STEP;
                if points.last().is_none_or(far) {
                    points.push(next);
                }
                end = Some(next);
            })?;
            if let Some(end) = end.filter(|end| points.last() != Some(end)) {
                points.push(end);
            }
            curves.push(points);
        }
        Ok(Curves { roc: curves, reliability: reliability(table, None, BINS)?, _memory: memory })
    }
}
