//! Scores of overlap, from the counts of true and false positives and negatives.

use serde::{Deserialize, Serialize};

/// Counts of voxels of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// In prediction and reference.
    pub true_positives: u64,
    /// Only in the prediction.
    pub false_positives: u64,
    /// Only in the reference.
    pub false_negatives: u64,
    /// In neither.
    pub true_negatives: u64,
}

/// A quotient; NaN where the denominator is zero, as in nnU-Net.
pub(crate) fn quotient(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { f64::NAN } else { numerator as f64 / denominator as f64 }
}

impl Overlap {
    /// The number of voxels of the prediction.
    pub fn predicted(&self) -> u64 {
        self.true_positives + self.false_positives
    }

    /// The number of voxels of the reference.
    pub fn reference(&self) -> u64 {
        self.true_positives + self.false_negatives
    }

    /// 2 TP / (2 TP + FP + FN) (Dice 1945); NaN if the class is in neither.
    pub fn dice(&self) -> f64 {
        quotient(2 * self.true_positives, self.predicted() + self.reference())
    }

    /// TP / (TP + FP + FN) (Jaccard 1912); NaN if the class is in neither.
    pub fn iou(&self) -> f64 {
        let union = self.true_positives + self.false_positives + self.false_negatives;
        quotient(self.true_positives, union)
    }

    /// TP / (TP + FN), also recall; NaN if the class is not in the reference.
    pub fn sensitivity(&self) -> f64 {
        quotient(self.true_positives, self.reference())
    }

    /// TP / (TP + FP); NaN if the class was not predicted.
    pub fn precision(&self) -> f64 {
        quotient(self.true_positives, self.predicted())
    }

    /// 1 − |FN − FP| / (2 TP + FP + FN) (Taha and Hanbury 2015, doi:10.1186/s12880-015-0068-x); NaN if the class is in
    /// neither.
    pub fn volume_similarity(&self) -> f64 {
        let difference = self.false_negatives.abs_diff(self.false_positives);
        1.0 - quotient(difference, self.predicted() + self.reference())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_match_their_definitions() {
        let overlap =
            Overlap { true_positives: 6, false_positives: 2, false_negatives: 4, true_negatives: 88 };
        assert_eq!(overlap.dice(), 12.0 / 18.0);
        assert_eq!(overlap.iou(), 0.5);
        assert_eq!((overlap.sensitivity(), overlap.precision()), (0.6, 0.75));
        assert_eq!(overlap.volume_similarity(), 1.0 - 2.0 / 18.0);
        assert_eq!((overlap.predicted(), overlap.reference()), (8, 10));
    }

    #[test]
    fn an_absent_class_has_no_score_and_a_missed_one_has_zero() {
        let absent = Overlap { true_negatives: 10, ..Overlap::default() };
        assert!(absent.dice().is_nan() && absent.iou().is_nan() && absent.volume_similarity().is_nan());
        let missed = Overlap { false_negatives: 3, true_negatives: 7, ..Overlap::default() };
        assert_eq!((missed.dice(), missed.iou(), missed.volume_similarity()), (0.0, 0.0, 0.0));
        assert!(missed.sensitivity() == 0.0 && missed.precision().is_nan());
    }
}
