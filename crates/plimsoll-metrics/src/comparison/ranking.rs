//! The order of candidates, and how stable it is.

use plimsoll_memory::{Budget, Bytes, Mapped};
use serde::Serialize;

use super::candidate::Valued;
use super::error::ComparisonError;
use super::interval::mean;
use super::pairing::Paired;
use crate::classification::Bootstrap;
use crate::quantile::quantile;
use crate::resample::draw;
use crate::{Better, Metric, Missing};

/// A candidate in its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The candidate.
    pub candidate: String,
    /// The mean over cases and classes of its rank among all candidates, from 1.
    pub mean_rank: f64,
    /// The share of resamples of cases in which it is first. Where several are, each has its part.
    pub first_share: f64,
}

/// The order of candidates by a score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// The best one first; of equal mean ranks the one with the better sum of scores.
    pub order: Vec<Ranked>,
    /// Scores, each of a case and a class, that all candidates have and are ranked by.
    pub ranked_scores: usize,
    /// Those that only some have.
    pub dropped_scores: usize,
    /// The mean of Kendall's τ between this order and the orders of resamples; `None` if ties leave none.
    pub mean_tau: Option<f64>,
    /// Its quantile of (1 − confidence) / 2.
    pub low_tau: Option<f64>,
}

/// The ranks of a case, summed over classes.
struct CaseRanks {
    sums: Vec<f64>,
    classes: u32,
}

impl Paired {
    /// Ranks all candidates by a score: in each case and class, then by the mean of ranks, as challenges do (Wiesenfarth et al. 2021). A missing
    /// score has the value of its convention. `None` if no case has the score for all.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the resamples.
    pub(super) fn ranking(
        &self,
        metric: Metric,
        better: Better,
        missing: Missing,
        classes: &[u8],
        settings: &Bootstrap,
        budget: &Budget,
    ) -> Result<Option<Ranking>, ComparisonError> {
        let count = self.candidates().len();
        let mut dropped_scores = 0;
        let bytes_of_case = size_of::<CaseRanks>() + count * size_of::<f64>();
        let _held = budget.reserve("ranks", Bytes::from_len(self.cases().len() * bytes_of_case))?;
        let mut cases = Vec::with_capacity(self.cases().len());
        let mut totals = vec![0.0; count];
        for case in self.cases() {
            let mut found = CaseRanks { sums: vec![0.0; count], classes: 0 };
            for class in classes {
                let candidates = self.candidates().iter();
                let mut scores: Vec<Valued> =
                    candidates.map(|candidate| candidate.valued(case, *class, metric, missing)).collect();
                Valued::complete(&mut scores, metric, missing);
                let defined: Vec<f64> = scores.iter().filter_map(|valued| valued.number).collect();
                if defined.len() < count {
                    // What no candidate has is no score that is dropped.
                    dropped_scores += usize::from(!defined.is_empty());
                    continue;
                }
                totals.iter_mut().zip(&defined).for_each(|(total, score)| *total += score);
                let ranks = ranks(&defined, better);
                found.sums.iter_mut().zip(ranks).for_each(|(sum, rank)| *sum += rank);
                found.classes += 1;
            }
            if found.classes > 0 {
                cases.push(found);
            }
        }
        if cases.is_empty() {
            return Ok(None);
        }
        let all = mean_ranks(&cases, &vec![1; cases.len()], count);
        let mut weights = Mapped::<u32>::zeroed(budget, "bootstrap", cases.len())?;
        let mut taus = Mapped::<f64>::zeroed(budget, "bootstrap", settings.resamples)?;
        let (mut first, mut defined) = (vec![0.0; count], 0);
        for resample in 0..settings.resamples {
            draw(settings.seed, resample as u64, &mut weights);
            let found = mean_ranks(&cases, &weights, count);
            let least = found.iter().copied().fold(f64::INFINITY, f64::min);
            let ties = found.iter().filter(|rank| **rank == least).count() as f64;
            for (share, _) in first.iter_mut().zip(&found).filter(|(_, rank)| **rank == least) {
                *share += 1.0 / ties;
            }
            if let Some(tau) = kendall_tau(&all, &found) {
                taus[defined] = tau;
                defined += 1;
            }
        }
        let taus = &mut taus[..defined];
        taus.sort_unstable_by(f64::total_cmp);
        let low_tau = quantile(defined, |at| taus[at], (1.0 - settings.confidence) / 2.0);
        let resamples = settings.resamples as f64;
        let mut places: Vec<usize> = (0..count).collect();
        // Who misses every second case wins as many ranks as it loses: of equal mean ranks the better sum of scores comes first.
        places.sort_by(|one, other| {
            let by_total = totals[*one].total_cmp(&totals[*other]);
            let by_total = if better == Better::Higher { by_total.reverse() } else { by_total };
            all[*one].total_cmp(&all[*other]).then(by_total)
        });
        let ranked = |place: usize| Ranked {
            candidate: self.candidates()[place].name.clone(),
            mean_rank: all[place],
            first_share: first[place] / resamples,
        };
        let order: Vec<Ranked> = places.into_iter().map(ranked).collect();
        let ranked_scores = cases.iter().map(|case| case.classes as usize).sum();
        Ok(Some(Ranking { order, ranked_scores, dropped_scores, mean_tau: mean(taus), low_tau }))
    }
}

/// The rank of each score, from 1 for the best; of equal ones the mean.
fn ranks(scores: &[f64], better: Better) -> Vec<f64> {
    let is_better = |one: f64, other: f64| match better {
        Better::Higher => one > other,
        Better::Lower => one < other,
    };
    let rank = |score: &f64| {
        let before = scores.iter().filter(|other| is_better(**other, *score)).count();
        let equal = scores.iter().filter(|other| **other == *score).count();
        before as f64 + (equal + 1) as f64 / 2.0
    };
    scores.iter().map(rank).collect()
}

/// The mean rank of each candidate over cases with weights. A case counts once for each of its classes.
fn mean_ranks(cases: &[CaseRanks], weights: &[u32], candidates: usize) -> Vec<f64> {
    let mut sums = vec![0.0; candidates];
    let mut all = 0.0;
    for (case, weight) in cases.iter().zip(weights) {
        let weight = f64::from(*weight);
        sums.iter_mut().zip(&case.sums).for_each(|(sum, rank)| *sum += weight * rank);
        all += weight * f64::from(case.classes);
    }
    sums.iter_mut().for_each(|sum| *sum /= all);
    sums
}

/// The share of resamples in which each candidate is the best, from the scores of all resamples of each; where several are, each has its part. None
/// of a candidate, and of all others, where no resample has the score of all.
pub(crate) fn standing(resampled: Vec<&[f64]>, better: Better) -> Vec<Option<f64>> {
    let mut first = vec![0.0; resampled.len()];
    let mut defined = 0u32;
    for resample in 0..resampled.iter().map(|own| own.len()).min().into_iter().sum() {
        let scores: Vec<f64> = resampled.iter().map(|own| own[resample]).collect();
        if scores.iter().any(|score| score.is_nan()) {
            continue;
        }
        defined += 1;
        let best = scores.iter().copied().reduce(match better {
            Better::Higher => f64::max,
            Better::Lower => f64::min,
        });
        let ties = scores.iter().filter(|score| Some(**score) == best).count() as f64;
        for (share, _) in first.iter_mut().zip(&scores).filter(|(_, score)| Some(**score) == best) {
            *share += 1.0 / ties;
        }
    }
    first.into_iter().map(|share| (defined > 0).then(|| share / f64::from(defined))).collect()
}

/// Kendall's τ-b of two lists of the same items (Kendall 1945), as `scipy.stats.kendalltau`; `None` if all of a list are equal.
pub fn kendall_tau(one: &[f64], other: &[f64]) -> Option<f64> {
    let (mut agreeing, mut of_one, mut of_other) = (0i64, 0i64, 0i64);
    let order = |values: &[f64], i: usize, j: usize| values[i].total_cmp(&values[j]) as i64;
    for j in 0..one.len().min(other.len()) {
        for i in 0..j {
            let (a, b) = (order(one, i, j), order(other, i, j));
            agreeing += a * b;
            of_one += a * a;
            of_other += b * b;
        }
    }
    (of_one > 0 && of_other > 0).then(|| agreeing as f64 / ((of_one as f64) * (of_other as f64)).sqrt())
}
