//! Comparisons of several candidates by their scores of the same cases.
//!
//! A [`Candidate`] is what is compared: a run, or an arm of a sweep, whose seeds are its [`Repeat`]s. [`Paired`] puts the cases of all
//! side by side; [`compare_candidates`] says of each pair, class and score how far they lie apart ([`Difference`]) and whether the cases can
//! tell ([`Verdict`]), and orders all candidates ([`Ranking`]). Cases are what is drawn at random and what results generalise
//! to: a repeat of training is no further case, and scores of repeats are averaged before anything else.
//!
//! The statistics are functions of their own: [`signed_rank`], [`holm`], [`percentile`], [`bca`], [`cases_needed`].

mod candidate;
mod choice;
mod difference;
mod error;
mod holm;
mod interval;
mod pairing;
mod power;
mod ranking;
mod report;
mod signed_rank;
mod table;
pub(crate) mod verdict;

pub use candidate::{Candidate, Repeat, ensemble_name, expect_same_repeats};
pub use choice::Choice;
pub use difference::{Difference, PairedScores, Undefined};
pub use error::ComparisonError;
pub use holm::holm;
pub use interval::{bca, percentile};
pub use pairing::Paired;
pub use power::cases_needed;
pub(crate) use ranking::standing;
pub use ranking::{Ranked, Ranking, kendall_tau};
pub use report::{
    CandidateName, CandidateScores, ClassName, Comparison, ComparisonSettings, OverRepeats, ScoreComparison,
    compare_candidates,
};
pub use signed_rank::{Distribution, SignedRank, signed_rank};
pub use verdict::{Outcome, Verdict};
