//! Counts of cases by what they are and what they are given, and scores of them.

use plimsoll_memory::{Budget, MapError, Mapped};
use serde::{Deserialize, Serialize};

use crate::overlap::quotient;

/// The cases of one class against the rest, by whether they are given it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Cases of the class that were given it.
    pub true_positives: u64,
    /// Other cases that were given the class.
    pub false_positives: u64,
    /// Cases of the class that were not given it.
    pub false_negatives: u64,
    /// Other cases that were not given the class.
    pub true_negatives: u64,
}

impl ClassCounts {
    /// Returns the number of cases of the class.
    pub(crate) fn support(&self) -> u64 {
        self.true_positives + self.false_negatives
    }

    /// TP and TP + FN, TN and TN + FP.
    pub(crate) fn shares(&self) -> [[u64; 2]; 2] {
        let others = self.true_negatives + self.false_positives;
        [[self.true_positives, self.support()], [self.true_negatives, others]]
    }

    /// TP / (TP + FN).
    pub(crate) fn sensitivity(&self) -> f64 {
        quotient(self.true_positives, self.support())
    }

    /// TN / (TN + FP).
    pub(crate) fn specificity(&self) -> f64 {
        quotient(self.true_negatives, self.true_negatives + self.false_positives)
    }

    /// TP / (TP + FP).
    pub(crate) fn precision(&self) -> f64 {
        quotient(self.true_positives, self.true_positives + self.false_positives)
    }

    /// 2 TP / (2 TP + FP + FN).
    pub(crate) fn f1(&self) -> f64 {
        let twice = 2 * self.true_positives;
        quotient(twice, twice + self.false_positives + self.false_negatives)
    }
}

/// The counts of each class by itself, of cases that may be of several.
#[derive(Debug)]
pub(crate) struct LabelCounts {
    pub(crate) classes: Vec<ClassCounts>,
    /// Cases all of whose labels are right, and all cases.
    exact: u64,
    all: u64,
}

impl LabelCounts {
    pub(crate) fn new(classes: usize) -> LabelCounts {
        LabelCounts { classes: vec![ClassCounts::default(); classes], exact: 0, all: 0 }
    }

    pub(crate) fn clear(&mut self) {
        *self = LabelCounts::new(self.classes.len());
    }

    /// Adds a case by whether it is of each class, and whether it is given it.
    pub(crate) fn add(&mut self, labels: impl Iterator<Item = (bool, bool)>, weight: u32) {
        let weight = u64::from(weight);
        let mut is_exact = true;
        for (counts, (is_of, is_given)) in self.classes.iter_mut().zip(labels) {
            is_exact &= is_of == is_given;
            *match (is_of, is_given) {
                (true, true) => &mut counts.true_positives,
                (false, true) => &mut counts.false_positives,
                (true, false) => &mut counts.false_negatives,
                (false, false) => &mut counts.true_negatives,
            } += weight;
        }
        self.exact += if is_exact { weight } else { 0 };
        self.all += weight;
    }

    /// The share of cases all of whose labels are right.
    pub(crate) fn accuracy(&self) -> f64 {
        quotient(self.exact, self.all)
    }

    /// The F1 score of all pairs of a case and a class.
    pub(crate) fn micro_f1(&self) -> f64 {
        let sum = |of: fn(&ClassCounts) -> u64| self.classes.iter().map(of).sum();
        let all = ClassCounts {
            true_positives: sum(|counts| counts.true_positives),
            false_positives: sum(|counts| counts.false_positives),
            false_negatives: sum(|counts| counts.false_negatives),
            true_negatives: sum(|counts| counts.true_negatives),
        };
        all.f1()
    }
}

/// The confusion matrix of a table.
#[derive(Debug)]
pub(crate) struct Counts {
    classes: usize,
    /// `[label][prediction]`
    counts: Mapped<u64>,
}

impl Counts {
    pub(crate) fn new(classes: usize, budget: &Budget) -> Result<Counts, MapError> {
        let counts = Mapped::zeroed(budget, "confusion matrix", classes.saturating_mul(classes))?;
        Ok(Counts { classes, counts })
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
    }

    pub(crate) fn add(&mut self, label: u32, prediction: u32, weight: u32) {
        if let Some(count) = self.counts.get_mut(label as usize * self.classes + prediction as usize) {
            *count += u64::from(weight);
        }
    }

    /// `[label][prediction]`
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.classes.max(1))
    }

    fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn correct(&self, class: usize) -> u64 {
        self.counts[class * self.classes + class]
    }

    fn labelled(&self, class: usize) -> u64 {
        self.counts[class * self.classes..][..self.classes].iter().sum()
    }

    fn predicted(&self, class: usize) -> u64 {
        self.counts.iter().skip(class).step_by(self.classes).sum()
    }

    /// A class against the rest.
    pub(crate) fn for_class(&self, class: usize) -> ClassCounts {
        let (found, labelled, predicted) = (self.correct(class), self.labelled(class), self.predicted(class));
        ClassCounts {
            true_positives: found,
            false_positives: predicted - found,
            false_negatives: labelled - found,
            true_negatives: self.all() + found - labelled - predicted,
        }
    }

    /// The share of cases whose predicted class is their label.
    pub(crate) fn accuracy(&self) -> f64 {
        quotient((0..self.classes).map(|class| self.correct(class)).sum(), self.all())
    }

    /// Cohen's kappa with quadratic weights (Cohen 1968): 1 − Σ (i − j)² observed / Σ (i − j)² expected by chance,
    /// where i and j are the indices of classes.
    pub(crate) fn quadratic_kappa(&self) -> f64 {
        let [mut observed, mut expected] = [0.0; 2];
        let labelled: Vec<u64> = (0..self.classes).map(|class| self.labelled(class)).collect();
        let predicted: Vec<u64> = (0..self.classes).map(|class| self.predicted(class)).collect();
        for (label, row) in self.rows().enumerate() {
            for (prediction, count) in row.iter().enumerate() {
                let weight = label.abs_diff(prediction).pow(2) as f64;
                observed += weight * *count as f64;
                expected += weight * labelled[label] as f64 * predicted[prediction] as f64;
            }
        }
        1.0 - observed * self.all() as f64 / expected
    }
}
