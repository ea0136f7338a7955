//! The search over small programs: every candidate is measured at every step, and the result is shaken for a faster one.

use super::{Search, Tried};

/// The number of values that are tried in pairs, because they only help together.
const PAIRED: usize = 24;
/// The number of times a choice is perturbed to find a faster one.
const SHAKES: usize = 8;

impl Search {
    /// Frees more until the target is met, holds again what is needless, and shakes the result for a faster one.
    pub(super) fn fit_thoroughly(&self, from: &Tried, target: usize) -> Option<Tried> {
        let mut best = self.hold_again(self.descend(from.clone(), target)?, target);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ target as u64;
        for shake in 0..SHAKES {
            if best.choice.releases.is_empty() {
                break;
            }
            let mut releases = best.choice.releases.clone();
            for _ in 0..=shake % 3 {
                // Knuth's MMIX generator: any spread of choices will do.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if !releases.is_empty() {
                    releases.remove((random >> 33) as usize % releases.len());
                }
            }
            let shaken = self
                .measure(releases)
                .and_then(|tried| self.descend(tried, target))
                .map(|tried| self.hold_again(tried, target));
            if let Some(shaken) = shaken
                && shaken.choice.seconds < best.choice.seconds
            {
                best = shaken;
            }
        }
        Some(best)
    }

    /// Frees values, one after the other, until at most `target` bytes are live at any time; none if no value helps any
    /// more.
    fn descend(&self, mut from: Tried, target: usize) -> Option<Tried> {
        while from.choice.lower_bound > target {
            let candidates = self.candidates(&from, target);
            from = self.best_alone_or_paired(&from, target, &candidates, PAIRED)?;
        }
        Some(from)
    }

    /// Holds again what need not be freed, the most expensive first.
    fn hold_again(&self, mut from: Tried, target: usize) -> Tried {
        for release in self.most_expensive_first(&from.choice.releases) {
            let mut releases = from.choice.releases.clone();
            releases.retain(|other| *other != release);
            if let Some(tried) = self.measure(releases)
                && tried.choice.lower_bound <= target
                && tried.choice.seconds <= from.choice.seconds
            {
                from = tried;
            }
        }
        from
    }
}
