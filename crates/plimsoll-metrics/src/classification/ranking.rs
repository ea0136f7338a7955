//! Scores of the ranking of cases by the probability of one class: AUROC and average precision.

use plimsoll_memory::{Budget, MapError, Mapped};

use super::table::Table;

/// The cases, from the most to the least probable, for one class against the rest.
pub(crate) struct Ranking {
    /// The case number shifted left by two bits; bit 0 is set if the next case is less probable, bit 1 if the case is
    /// of the class.
    order: Mapped<u64>,
}

const ENDS_TIE: u64 = 1;
const POSITIVE: u64 = 2;

impl Ranking {
    pub(crate) fn new(table: &Table, class: usize, budget: &Budget) -> Result<Ranking, MapError> {
        let mut probabilities = Mapped::<f64>::zeroed(budget, "ranking of cases", table.cases())?;
        for (to, probability) in probabilities.iter_mut().zip(table.column(class)) {
            *to = probability;
        }
        let mut order = Mapped::<u64>::zeroed(budget, "ranking of cases", table.cases())?;
        for (case, entry) in order.iter_mut().enumerate() {
            *entry = (case as u64) << 2 | if table.is_of(case, class) { POSITIVE } else { 0 };
        }
        let probability = |entry: u64| probabilities[(entry >> 2) as usize];
        order.sort_unstable_by(|a, b| probability(*b).total_cmp(&probability(*a)));
        for at in 0..order.len() {
            let next = order.get(at + 1).copied();
            // Compared as floats, because zero has two bit patterns.
            if next.is_none_or(|next| probability(next) != probability(order[at])) {
                order[at] |= ENDS_TIE;
            }
        }
        Ok(Ranking { order })
    }

    /// Each case, from the most to the least probable: its number, whether it is of the class, and whether the next is less
    /// probable.
    pub(crate) fn cases(&self) -> impl Iterator<Item = (usize, bool, bool)> {
        let cases = self.order.iter();
        cases.map(|entry| ((entry >> 2) as usize, entry & POSITIVE != 0, entry & ENDS_TIE != 0))
    }

    /// Adds the contribution of each case to the area under the ROC curve to `to`: of a case of the class the share of others that are less probable, of others the
    /// share of cases of the class that are more probable; ties count one half (DeLong et al. 1988, V₁₀ and V₀₁). Adds nothing
    /// if either side has no case.
    pub(crate) fn add_components(&self, to: &mut [f64]) {
        let count = |bit: u64| self.order.iter().filter(|entry| *entry & POSITIVE == bit).count();
        let (all_positives, all_negatives) = (count(POSITIVE), count(0));
        if all_positives == 0 || all_negatives == 0 {
            return;
        }
        let [mut positives, mut negatives, mut first] = [0; 3];
        for at in 0..self.order.len() {
            if self.order[at] & ENDS_TIE == 0 {
                continue;
            }
            let tied = &self.order[first..=at];
            let tied_positives = tied.iter().filter(|entry| *entry & POSITIVE != 0).count();
            let tied_negatives = tied.len() - tied_positives;
            // Twice the number of others on the right side, so that ties count as integers.
            let below = 2 * (all_negatives - negatives) - tied_negatives;
            let above = 2 * positives + tied_positives;
            for entry in tied {
                to[(entry >> 2) as usize] += match entry & POSITIVE {
                    0 => above as f64 / (2 * all_positives) as f64,
                    _ => below as f64 / (2 * all_negatives) as f64,
                };
            }
            positives += tied_positives;
            negatives += tied_negatives;
            first = at + 1;
        }
    }

    /// The area under the ROC curve: the share of pairs of a case of the class and one of another class in which the
    /// first is more probable; ties count one half (Hanley and McNeil 1982). As `roc_auc_score`; NaN if either side has
    /// no case.
    ///
    /// And the average precision: Σ (recall − recall before) · precision over the distinct probabilities, as
    /// `average_precision_score`; NaN without a case of the class.
    pub(crate) fn scores(&self, weights: &[u32]) -> (f64, f64) {
        let weight = |entry: u64| u64::from(weights[(entry >> 2) as usize]);
        // Weights of the cases ranked above, and of those tied with the current one.
        let [mut positives, mut negatives, mut tied_positives, mut tied_negatives] = [0u64; 4];
        // Twice the number of discordant pairs, so that ties count as integers.
        let mut wrong = 0u128;
        let mut precisions = 0.0;
        for entry in self.order.iter() {
            match entry & POSITIVE {
                0 => tied_negatives += weight(*entry),
                _ => tied_positives += weight(*entry),
            }
            if entry & ENDS_TIE != 0 {
                wrong += u128::from(tied_positives) * u128::from(2 * negatives + tied_negatives);
                positives += tied_positives;
                negatives += tied_negatives;
                if tied_positives > 0 {
                    precisions += tied_positives as f64 * positives as f64 / (positives + negatives) as f64;
                }
                (tied_positives, tied_negatives) = (0, 0);
            }
        }
        let pairs = 2.0 * positives as f64 * negatives as f64;
        let area = if pairs > 0.0 { 1.0 - wrong as f64 / pairs } else { f64::NAN };
        (area, precisions / positives as f64)
    }
}
