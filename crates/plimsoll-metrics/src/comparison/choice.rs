//! The choice of a candidate.

use serde::Serialize;

use super::difference::Difference;
use super::ranking::Ranking;
use super::verdict::{Outcome, Verdict};

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
    pub(super) fn new(ranking: &Ranking, differences: &[Difference]) -> Option<Choice> {
        let [first, rest @ ..] = &ranking.order[..] else { return None };
        let standing = format!("mean rank {:.2} of {}", first.mean_rank, ranking.order.len());
        let rest = rest.iter().map(|ranked| ranked.candidate.as_str()).collect();
        let verdicts = differences.iter().map(|found| ([&*found.first, &*found.second], &found.verdict));
        Some(Choice::among(&first.candidate, first.first_share, &standing, rest, verdicts.collect()))
    }

    /// The first of several, with what its place is and the verdicts of pairs.
    pub(crate) fn among(
        candidate: &str,
        first_share: f64,
        standing: &str,
        rest: Vec<&str>,
        verdicts: Vec<([&str; 2], &Verdict)>,
    ) -> Choice {
        let is_separated = |other: &str| {
            verdicts.iter().any(|(pair, verdict)| {
                pair.contains(&other) && pair.contains(&candidate) && verdict.outcome == Outcome::Separated
            })
        };
        let not_separated_from: Vec<String> =
            rest.into_iter().filter(|other| !is_separated(other)).map(String::from).collect();
        let others = match &not_separated_from[..] {
            [] => "it is separated from all others".to_string(),
            others => format!("not separated from it: {}", others.join(", ")),
        };
        let words = format!(
            "{candidate} is first: {standing}, first in {:.0} % of resamples; {others}",
            100.0 * first_share
        );
        Choice { candidate: candidate.to_string(), first_share, not_separated_from, words }
    }
}
