//! The search over larger programs: candidates are compared by estimates and freed in batches, and few choices are measured.

use super::{Search, Tried};

/// The most batches that are freed for one target.
const BATCHES: usize = 48;
/// The number of candidates of a larger program that are measured if no batch helps.
const SINGLES: usize = 12;
/// The share of the excess that a batch should take away.
const BATCH_SHARE: f64 = 0.2;
/// The number of largest values that are measured, and formed into pairs, if no estimate helps.
const LARGEST: [usize; 2] = [48, 8];

impl Search {
    /// Frees more until the target is met, and holds again what fits.
    pub(super) fn fit_in_batches(&self, from: &Tried, target: usize) -> Option<Tried> {
        let met = self.descend_in_batches(from.clone(), target)?;
        Some(self.hold_what_fits(met, target))
    }

    /// Frees values in batches, which are chosen by estimates, until at most `target` bytes are live at any time; none
    /// if no batch helps any more.
    fn descend_in_batches(&self, mut from: Tried, target: usize) -> Option<Tried> {
        for _ in 0..BATCHES {
            if from.choice.lower_bound <= target {
                return Some(from);
            }
            from = self.free_batch(&from, target)?;
        }
        (from.choice.lower_bound <= target).then_some(from)
    }

    /// Frees those with the greatest estimated gain per second that take away a share of the excess together; fewer where that
    /// does not help.
    fn free_batch(&self, from: &Tried, target: usize) -> Option<Tried> {
        let candidates = self.estimates(from, target);
        let excess = from.excess(target);
        let mut gained = 0.0;
        let enough = candidates.iter().position(|candidate| {
            gained += candidate.gain;
            gained >= BATCH_SHARE * excess
        });
        let mut count = enough.map_or(candidates.len(), |last| last + 1);
        while count > 1 {
            let batch = candidates[..count].iter().flat_map(|candidate| &candidate.releases);
            match self.measure_with(from, batch) {
                Some(tried) if tried.excess(target) < excess => return Some(tried),
                _ => count /= 4,
            }
        }
        let few = candidates.into_iter().take(SINGLES).map(|candidate| candidate.releases);
        self.best_of(from, target, few).or_else(|| self.free_one_of_the_largest(from, target))
    }

    /// Frees the one of the largest values, or the two, that take away the most excess per second, as measured.
    fn free_one_of_the_largest(&self, from: &Tried, target: usize) -> Option<Tried> {
        self.rescues.set(self.rescues.get().checked_sub(1)?);
        let mut candidates = self.candidates(from, target);
        candidates.truncate(LARGEST[0]);
        self.best_alone_or_paired(from, target, &candidates, LARGEST[1])
    }
}
