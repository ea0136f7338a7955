//! Wilcoxon's signed-rank test.

use serde::Serialize;

use crate::normal::above;

/// Up to so many pairs without ties and zeros the distribution is enumerated, as SciPy's `method="auto"` does.
const EXACT_UP_TO: usize = 50;
/// The same with ties or zeros.
const EXACT_WITH_TIES_UP_TO: usize = 13;

/// The distribution from which a p value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All assignments of signs to the ranks, counted.
    Exact,
    /// The normal approximation, corrected for ties.
    Normal,
}

/// The test that differences are symmetric about zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SignedRank {
    /// The sum of ranks of differences above zero.
    pub positive_ranks: f64,
    /// The same below zero.
    pub negative_ranks: f64,
    /// Differences of zero, which have no rank.
    pub zeros: usize,
    /// The two-sided p value; 1 if no difference is left.
    pub p: f64,
    /// The distribution from which it is computed.
    pub distribution: Distribution,
}

/// Tests differences of pairs (Wilcoxon 1945), as SciPy's `wilcoxon(d, zero_method="wilcox", correction=False, method="auto")`: zeros are
/// removed, ties have mean ranks. All differences must be numbers.
pub fn signed_rank(differences: &[f64]) -> SignedRank {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    sorted.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    let zeros = differences.len() - sorted.len();
    // Twice the mean rank, which is whole.
    let mut doubled_ranks = Vec::with_capacity(sorted.len());
    let mut tie_correction = 0.0;
    for tied in sorted.chunk_by(|one, other| one.abs() == other.abs()) {
        let (first, count) = (doubled_ranks.len() + 1, tied.len());
        doubled_ranks.extend(std::iter::repeat_n(2 * first + count - 1, count));
        let ties = count as f64;
        tie_correction += ties * ties * ties - ties;
    }
    let signed = || sorted.iter().zip(&doubled_ranks);
    let sum = |positive: bool| -> usize {
        signed().filter(|(d, _)| (**d > 0.0) == positive).map(|(_, rank)| rank).sum()
    };
    let (positive, negative) = (sum(true), sum(false));
    let is_exact = match tie_correction > 0.0 || zeros > 0 {
        true => differences.len() <= EXACT_WITH_TIES_UP_TO || sorted.is_empty(),
        false => differences.len() <= EXACT_UP_TO,
    };
    let (p, distribution) = match is_exact {
        true => (exact(&doubled_ranks, positive.min(negative)), Distribution::Exact),
        false => {
            let n = sorted.len() as f64;
            let variance = (n * (n + 1.0) * (2.0 * n + 1.0) - tie_correction / 2.0) / 24.0;
            let z = (positive as f64 / 2.0 - n * (n + 1.0) / 4.0) / variance.sqrt();
            ((2.0 * above(z.abs())).min(1.0), Distribution::Normal)
        }
    };
    let [positive_ranks, negative_ranks] = [positive, negative].map(|doubled| doubled as f64 / 2.0);
    SignedRank { positive_ranks, negative_ranks, zeros, p, distribution }
}

/// Twice the share of all assignments of signs whose sum of positive ranks is at most `smaller`, the smaller of both sums: by symmetry the
/// p value of both sides. Counts of at most 2⁵⁰ are exact in f64.
fn exact(doubled_ranks: &[usize], smaller: usize) -> f64 {
    let all: usize = doubled_ranks.iter().sum();
    let mut counts = vec![0.0; all + 1];
    counts[0] = 1.0;
    for rank in doubled_ranks {
        for sum in (*rank..=all).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    let below: f64 = counts[..=smaller].iter().sum();
    let assignments: f64 = counts.iter().sum();
    (2.0 * below / assignments).min(1.0)
}
