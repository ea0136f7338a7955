//! Scores of the confusion matrix.

use plimsoll_memory::{Budget, MapError, Mapped};

use crate::overlap::quotient;

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

    pub(crate) fn labelled(&self, class: usize) -> u64 {
        self.counts[class * self.classes..][..self.classes].iter().sum()
    }

    fn predicted(&self, class: usize) -> u64 {
        self.counts.iter().skip(class).step_by(self.classes).sum()
    }

    /// The share of cases whose predicted class is their label.
    pub(crate) fn accuracy(&self) -> f64 {
        quotient((0..self.classes).map(|class| self.correct(class)).sum(), self.all())
    }

    /// TP and TP + FN, TN and TN + FP.
    pub(crate) fn shares(&self, class: usize) -> [[u64; 2]; 2] {
        let (correct, labelled) = (self.correct(class), self.labelled(class));
        let others = self.all() - labelled;
        [[correct, labelled], [others + correct - self.predicted(class), others]]
    }

    /// TP / (TP + FN).
    pub(crate) fn sensitivity(&self, class: usize) -> f64 {
        let [[correct, labelled], _] = self.shares(class);
        quotient(correct, labelled)
    }

    /// TN / (TN + FP).
    pub(crate) fn specificity(&self, class: usize) -> f64 {
        let [_, [correct, others]] = self.shares(class);
        quotient(correct, others)
    }

    /// TP / (TP + FP).
    pub(crate) fn precision(&self, class: usize) -> f64 {
        quotient(self.correct(class), self.predicted(class))
    }

    /// 2 TP / (2 TP + FP + FN).
    pub(crate) fn f1(&self, class: usize) -> f64 {
        quotient(2 * self.correct(class), self.labelled(class) + self.predicted(class))
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
