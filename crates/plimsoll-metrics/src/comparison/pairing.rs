//! The cases of several candidates, side by side.

use std::collections::BTreeSet;

use super::candidate::{Candidate, Repeat, Valued};
use super::error::ComparisonError;
use crate::{Better, CaseScore, Metric, Missing, Settings};

/// Candidates with the cases that all of them have.
#[derive(Debug)]
pub struct Paired {
    candidates: Vec<Candidate>,
    cases: Vec<String>,
    left_out: Vec<String>,
    classes: BTreeSet<u8>,
    settings: Settings,
}

impl Paired {
    /// Pairs the cases of candidates. With `common`, cases that not all repeats of all candidates have are left out.
    ///
    /// # Errors
    /// Returns an error if there are not two candidates of different names, they were scored otherwise or against other references, or cases are missing
    /// and may not be left out.
    pub fn new(candidates: Vec<Candidate>, common: bool) -> Result<Paired, ComparisonError> {
        let repeats = || candidates.iter().flat_map(|candidate| &candidate.repeats);
        let found = candidates.iter().filter(|candidate| !candidate.repeats.is_empty()).count();
        let Some(first) = repeats().next().filter(|_| found == candidates.len() && found > 1) else {
            return Err(ComparisonError::TooFew { found });
        };
        let mut names = BTreeSet::new();
        if let Some(twice) = candidates.iter().find(|candidate| !names.insert(&candidate.name)) {
            return Err(ComparisonError::SameName { name: twice.name.clone() });
        }
        for other in repeats().skip(1) {
            first.expect_scored_alike(other)?;
        }
        let all: BTreeSet<&str> = repeats().flat_map(Repeat::cases).collect();
        let lacks = |case: &str| repeats().find(|repeat| !repeat.has(case));
        let (cases, left_out): (Vec<&str>, Vec<&str>) = all.iter().partition(|case| lacks(case).is_none());
        let missing = || {
            let named = |case: &&str| Some((case.to_string(), lacks(case)?.name().to_string()));
            left_out.iter().filter_map(named).collect()
        };
        if cases.is_empty() {
            return Err(ComparisonError::NoCommonCases { missing: missing() });
        }
        if !left_out.is_empty() && !common {
            return Err(ComparisonError::MissingCases { all: all.len(), missing: missing() });
        }
        let classes = first.classes();
        for other in repeats().skip(1) {
            expect_same_references(first, other, &cases, &classes)?;
        }
        let settings = first.settings().clone();
        let own = |names: Vec<&str>| names.into_iter().map(String::from).collect();
        let (cases, left_out) = (own(cases), own(left_out));
        Ok(Paired { candidates, cases, left_out, classes, settings })
    }

    /// The candidates.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The names of the cases that all have.
    pub fn cases(&self) -> &[String] {
        &self.cases
    }

    /// Those that not all have.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Returns the settings of the scores. Groups of scores are taken from the first candidate.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The classes that are scored.
    pub fn classes(&self) -> &BTreeSet<u8> {
        &self.classes
    }

    /// The scores that all candidates have and of which high or low ones are better.
    pub fn metrics(&self) -> Vec<Metric> {
        let all = |metric: &Metric| self.repeats().all(|repeat| repeat.metrics(&self.cases).contains(metric));
        let scores = Metric::ALL.into_iter().filter(|metric| metric.better().is_some());
        scores.filter(all).collect()
    }

    /// Checks that all candidates have a score, and returns the direction in which it is better.
    pub(super) fn expect_score(&self, metric: Metric) -> Result<Better, ComparisonError> {
        let better = metric.better().ok_or(ComparisonError::Count { metric })?;
        match self.repeats().find(|repeat| !repeat.metrics(&self.cases).contains(&metric)) {
            None => Ok(better),
            Some(repeat) => {
                let known = repeat.metrics(&self.cases).into_iter();
                let known = known.filter(|metric| metric.better().is_some()).collect();
                let candidate = repeat.name().to_string();
                Err(ComparisonError::NoScore { candidate, metric, known })
            }
        }
    }

    /// Checks that the diagonal is known of every image in which a distance is missing, where it takes the place of the distance.
    pub(super) fn expect_diagonals(&self, metric: Metric, missing: Missing) -> Result<(), ComparisonError> {
        if missing != Missing::Diagonal || metric.is_share() {
            return Ok(());
        }
        for repeat in self.repeats() {
            let is_missing = |case: &str| {
                self.classes.iter().any(|class| repeat.state(case, *class, metric) == CaseScore::Missing)
            };
            let lacks = |case: &&String| repeat.diagonal_mm(case).is_none() && is_missing(case);
            if let Some(case) = self.cases.iter().find(lacks) {
                let (candidate, case) = (repeat.name().to_string(), case.clone());
                return Err(ComparisonError::NoDiagonal { candidate, case, metric });
            }
        }
        Ok(())
    }

    fn repeats(&self) -> impl Iterator<Item = &Repeat> {
        self.candidates.iter().flat_map(|candidate| &candidate.repeats)
    }
}

impl Candidate {
    /// A score of a case: the mean over repeats, defined where it is in all of them. One that is undefined in one repeat only would else be
    /// the mean of the others, which is no score of the same thing.
    pub(super) fn valued(&self, case: &str, class: u8, metric: Metric, missing: Missing) -> Valued {
        let mut all: Vec<Valued> =
            self.repeats.iter().map(|repeat| repeat.valued(case, class, metric, missing)).collect();
        Valued::complete(&mut all, metric, missing);
        let sum = all.iter().map(|valued| valued.number).sum::<Option<f64>>();
        Valued {
            number: sum.map(|sum| sum / all.len() as f64),
            is_missing: all.iter().any(|valued| valued.is_missing),
            is_in_neither: all.iter().all(|valued| valued.is_in_neither),
        }
    }
}

/// Checks that both were scored against the same labels, by their numbers of voxels.
fn expect_same_references(
    one: &Repeat,
    other: &Repeat,
    cases: &[&str],
    classes: &BTreeSet<u8>,
) -> Result<(), ComparisonError> {
    for case in cases {
        if let [Some(own), Some(others)] = [one, other].map(|repeat| repeat.counted_voxels(case))
            && own != others
        {
            return Err(ComparisonError::OtherVoxels {
                case: case.to_string(),
                one: one.name().into(),
                other: other.name().into(),
                voxels: [own, others],
            });
        }
        for class in classes {
            let voxels = [one, other].map(|repeat| repeat.score(case, *class, Metric::Reference));
            if let [Some(own), Some(others)] = voxels
                && own != others
            {
                return Err(ComparisonError::OtherReference {
                    case: case.to_string(),
                    class: *class,
                    one: one.name().into(),
                    other: other.name().into(),
                    voxels: [own, others],
                });
            }
        }
    }
    Ok(())
}
