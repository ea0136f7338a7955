//! Which candidate to take.

use serde::Serialize;

use super::difference::Difference;
use super::ranking::Ranking;
use super::verdict::Outcome;

/// The candidate that is first, and how sure that is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The candidate.
    pub candidate: String,
    /// The share of resamples of cases in which it is first.
    pub first_share: f64,
    /// Those that the cases do not separate from it: any of them may be as good.
    pub not_separated_from: Vec<String>,
    /// The same in a sentence.
    pub words: String,
}

impl Choice {
    /// From the order of candidates, and the differences of all pairs in the mean over classes, or in the only class.
    pub(super) fn of(ranking: &Ranking, differences: &[Difference]) -> Option<Choice> {
        let [first, rest @ ..] = &ranking.order[..] else { return None };
        let is_separated = |other: &str| {
            differences.iter().any(|difference| {
                let pair = [difference.first.as_str(), difference.second.as_str()];
                let is_pair = pair.contains(&other) && pair.contains(&first.candidate.as_str());
                is_pair && difference.verdict.outcome == Outcome::Separated
            })
        };
        let not_separated_from: Vec<String> =
            rest.iter().map(|ranked| ranked.candidate.clone()).filter(|other| !is_separated(other)).collect();
        let others = match &not_separated_from[..] {
            [] => "it is separated from all others".to_string(),
            others => format!("not separated from it: {}", others.join(", ")),
        };
        let words = format!(
            "{} is first: mean rank {:.2} of {}, first in {:.0} % of resamples; {others}",
            first.candidate,
            first.mean_rank,
            ranking.order.len(),
            100.0 * first.first_share
        );
        let (candidate, first_share) = (first.candidate.clone(), first.first_share);
        Some(Choice { candidate, first_share, not_separated_from, words })
    }
}
