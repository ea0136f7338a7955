//! Resamples of images, scored by all candidates.

use plimsoll_memory::{Budget, Mapped};

use super::pairing::PairedClassifiers;
use crate::classification::Bootstrap;
use crate::classification::scores::Scorer;
use crate::comparison::ComparisonError;
use crate::resample::draw;

/// The two-sided p value of a difference of zero, from the differences of resamples: twice the smaller of the shares that are at most and at least
/// zero, the data themselves counted with them so that it is never 0 (Davison and Hinkley 1997, section 4.2). Differences that are no numbers
/// are left out; none without any other.
pub fn bootstrap_p(differences: &[f64]) -> Option<f64> {
    let count = |is: fn(&f64) -> bool| differences.iter().filter(|d| is(d)).count();
    let all = count(|d| d.is_finite());
    let least = count(|d| *d <= 0.0).min(count(|d| *d >= 0.0));
    (all > 0).then(|| (2.0 * (least + 1) as f64 / (all + 1) as f64).min(1.0))
}

/// The scores of each candidate: of all images, and of each resample.
pub(super) struct Resamples {
    scores: usize,
    resamples: usize,
    /// `[candidate][score]`, the mean over repeats; NaN where it is undefined for one of them.
    values: Vec<Vec<f64>>,
    /// The same of each repeat: `[candidate][repeat][score]`.
    pub repeats: Vec<Vec<Vec<f64>>>,
    /// `[candidate][score][resample]`.
    resampled: Mapped<f64>,
}

impl Resamples {
    /// Scores these places of what a [`Scorer`] computes. Takes 8 bytes for each candidate, score and resample of `budget`.
    pub(super) fn new(
        scorers: &mut [Vec<Scorer<'_>>],
        paired: &PairedClassifiers,
        places: &[usize],
        settings: &Bootstrap,
        budget: &Budget,
    ) -> Result<Resamples, ComparisonError> {
        let (scores, resamples) = (places.len(), settings.resamples);
        let all = scorers.len().saturating_mul(scores).saturating_mul(resamples);
        let mut resampled = Mapped::<f64>::zeroed(budget, "bootstrap", all)?;
        let mut weights = Mapped::<u32>::zeroed(budget, "bootstrap", paired.images().len())?;
        let mut found = vec![0.0; scorers.iter().flatten().map(Scorer::len).max().into_iter().sum()];
        let mut score = |scorer: &mut Scorer<'_>, weights: &[u32]| -> Vec<f64> {
            let found = &mut found[..scorer.len()];
            scorer.score(weights, found);
            places.iter().map(|place| found[*place]).collect()
        };
        let mean = |repeats: &[Vec<f64>]| -> Vec<f64> {
            let sum = |at: usize| repeats.iter().map(|scores| scores[at]).sum::<f64>();
            (0..scores).map(|at| sum(at) / repeats.len() as f64).collect()
        };
        for resample in 0..resamples {
            draw(settings.seed, resample as u64, &mut weights);
            for (candidate, own) in scorers.iter_mut().enumerate() {
                let repeats: Vec<Vec<f64>> = own.iter_mut().map(|scorer| score(scorer, &weights)).collect();
                for (at, value) in mean(&repeats).into_iter().enumerate() {
                    resampled[(candidate * scores + at) * resamples + resample] = value;
                }
            }
        }
        // Last, so that what scorers counted last is of the images themselves.
        weights.fill(1);
        let repeats: Vec<Vec<Vec<f64>>> = scorers
            .iter_mut()
            .map(|own| own.iter_mut().map(|scorer| score(scorer, &weights)).collect())
            .collect();
        let values = repeats.iter().map(|own| mean(own)).collect();
        Ok(Resamples { scores, resamples, values, repeats, resampled })
    }

    /// A score of a candidate; NaN where it is undefined.
    pub(super) fn value(&self, candidate: usize, score: usize) -> f64 {
        self.values[candidate][score]
    }

    /// The same of each resample.
    pub(super) fn resampled(&self, candidate: usize, score: usize) -> &[f64] {
        &self.resampled[(candidate * self.scores + score) * self.resamples..][..self.resamples]
    }
}
