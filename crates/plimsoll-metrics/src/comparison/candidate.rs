//! The candidates of a comparison.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_volume::image_endings;

use super::error::ComparisonError;
use crate::{CaseScore, CaseScores, Group, Metric, Missing, Scores, Settings, Summary};

/// A candidate: one choice of settings, trained once or several times.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The same with other seeds: at least one.
    pub repeats: Vec<Repeat>,
}

/// Returns the name of the ensemble of two candidates.
pub fn ensemble_name(one: &str, other: &str) -> String {
    format!("{one} + {other}")
}

/// Checks that two candidates of an ensemble were trained equally often, since their repeats are averaged in order.
///
/// # Errors
/// Returns an error if they were not.
pub fn expect_same_repeats(one: &str, own: usize, other: &str, others: usize) -> Result<(), ComparisonError> {
    match own == others {
        true => Ok(()),
        false => {
            let (one, other) = (one.to_string(), other.to_string());
            Err(ComparisonError::Repeats { one, other, repeats: [own, others] })
        }
    }
}

/// One training of a candidate, with the cases that it was scored on.
#[derive(Clone, Debug)]
pub struct Repeat {
    name: String,
    settings: Settings,
    cases: BTreeMap<String, ScoredCase>,
}

/// The scores of a case.
#[derive(Clone, Debug)]
struct ScoredCase {
    /// By class.
    metrics: BTreeMap<u8, Scores>,
    counted_voxels: Option<f64>,
    diagonal_mm: Option<f64>,
}

impl ScoredCase {
    fn new(case: CaseScores) -> ScoredCase {
        // nnU-Net's files have the four counts instead.
        let in_counts = |scores: &Scores| {
            let counts = [Metric::TP, Metric::FP, Metric::FN, Metric::TN].map(|count| scores.get(count));
            counts.into_iter().sum::<Option<f64>>()
        };
        let counted = case.counted_voxels.map(|voxels| voxels as f64);
        let counted_voxels = counted.or_else(|| case.metrics.values().find_map(in_counts));
        ScoredCase { metrics: case.metrics, counted_voxels, diagonal_mm: case.diagonal_mm }
    }
}

/// A score of a case as it takes part in a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Valued {
    /// Its value by the convention for missing scores.
    pub number: Option<f64>,
    /// `true` if it is missing: exactly one of prediction and reference has the class.
    pub is_missing: bool,
    /// `true` if neither prediction nor reference has the class, so that the prediction is right.
    pub is_in_neither: bool,
}

impl Valued {
    /// The same scores of several candidates, in which a class that a candidate and the reference both lack counts as perfect if another
    /// candidate has a value: a false alarm is worse than none. Under [`Missing::Ignore`] such scores stay undefined.
    pub(super) fn together<const N: usize>(
        all: [Valued; N],
        metric: Metric,
        missing: Missing,
    ) -> [Valued; N] {
        let mut all = all;
        Valued::complete(&mut all, metric, missing);
        all
    }

    /// The same in place.
    pub(super) fn complete(all: &mut [Valued], metric: Metric, missing: Missing) {
        let has_value = all.iter().any(|valued| valued.number.is_some());
        if missing == Missing::Ignore || !has_value {
            return;
        }
        let perfect = if metric.is_share() { 1.0 } else { 0.0 };
        for valued in all.iter_mut().filter(|valued| valued.number.is_none() && valued.is_in_neither) {
            valued.number = Some(perfect);
        }
    }
}

impl Repeat {
    /// Combines the scores of its folds, or takes the scores of all its cases, each with its name in messages.
    ///
    /// # Errors
    /// Returns an error if a case is there twice, or folds were scored otherwise.
    pub fn new(
        name: impl Into<String>,
        first_name: String,
        first: Summary,
        others: impl IntoIterator<Item = (String, Summary)>,
    ) -> Result<Repeat, ComparisonError> {
        let settings = first.settings.clone();
        let mut all = Repeat { name: name.into(), settings, cases: BTreeMap::new() };
        all.add(first)?;
        for (fold, summary) in others {
            expect_alike(&first_name, &all.settings, &fold, &summary.settings)?;
            all.add(summary)?;
        }
        Ok(all)
    }

    fn add(&mut self, summary: Summary) -> Result<(), ComparisonError> {
        for case in summary.metric_per_case {
            let candidate = || self.name.clone();
            let name = case_name(&case).ok_or_else(|| ComparisonError::NoName { candidate: candidate() })?;
            if self.cases.contains_key(&name) {
                return Err(ComparisonError::CaseTwice { candidate: candidate(), case: name });
            }
            self.cases.insert(name, ScoredCase::new(case));
        }
        Ok(())
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its cases.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn has(&self, case: &str) -> bool {
        self.cases.contains_key(case)
    }

    /// The classes that are scored.
    pub(super) fn classes(&self) -> BTreeSet<u8> {
        classes(&self.settings)
    }

    /// The scores that were asked for in all of these cases. One of some folds alone would look undefined in the others.
    pub(super) fn metrics(&self, cases: &[String]) -> BTreeSet<Metric> {
        let classes =
            cases.iter().filter_map(|case| self.cases.get(case)).flat_map(|case| case.metrics.values());
        let metrics = classes.map(|scores| scores.metrics().collect::<BTreeSet<Metric>>());
        metrics.reduce(|all, own| &all & &own).into_iter().flatten().collect()
    }

    /// A score of a case, if it is defined.
    pub(super) fn score(&self, case: &str, class: u8, metric: Metric) -> Option<f64> {
        self.cases.get(case)?.metrics.get(&class)?.get(metric)
    }

    /// The state of a score of a case.
    pub(super) fn state(&self, case: &str, class: u8, metric: Metric) -> CaseScore {
        let scores = self.cases.get(case).and_then(|case| case.metrics.get(&class));
        scores.map_or(CaseScore::Undefined, |scores| scores.state(metric))
    }

    /// A score of a case as it takes part in a comparison.
    pub(super) fn valued(&self, case: &str, class: u8, metric: Metric, missing: Missing) -> Valued {
        let state = self.state(case, class, metric);
        let number = match state {
            CaseScore::Defined(score) => Some(score),
            CaseScore::Missing => missing.value(metric, self.diagonal_mm(case)),
            CaseScore::InNeither | CaseScore::Undefined => None,
        };
        let (is_missing, is_in_neither) = (state == CaseScore::Missing, state == CaseScore::InNeither);
        Valued { number, is_missing, is_in_neither }
    }

    /// The diagonal of the image of a case, if it is known.
    pub(super) fn diagonal_mm(&self, case: &str) -> Option<f64> {
        self.cases.get(case)?.diagonal_mm
    }

    /// The voxels of a case that are counted, if they are known.
    pub(super) fn counted_voxels(&self, case: &str) -> Option<f64> {
        self.cases.get(case)?.counted_voxels
    }

    /// Checks that both were scored with the same settings.
    pub(super) fn expect_scored_alike(&self, other: &Repeat) -> Result<(), ComparisonError> {
        expect_alike(&self.name, &self.settings, &other.name, &other.settings)
    }
}

/// Checks that two candidates were scored with the same settings.
fn expect_alike(one: &str, own: &Settings, other: &str, theirs: &Settings) -> Result<(), ComparisonError> {
    let (one, other) = (one.to_string(), other.to_string());
    let [classes, others] = [own, theirs].map(classes);
    if classes != others {
        let [classes, others] = [classes, others].map(|classes| classes.into_iter().collect());
        return Err(ComparisonError::Classes { one, other, classes, others });
    }
    let both = |group| own.groups.contains(&group) && theirs.groups.contains(&group);
    let has_lengths =
        own.groups.iter().any(|group| *group != Group::Overlap && theirs.groups.contains(group));
    let differs = [
        ("surface", both(Group::Surface) && own.surface != theirs.surface),
        ("tolerance of the NSD", both(Group::Surface) && own.tolerance != theirs.tolerance),
        ("overlap of lesions", both(Group::Lesion) && own.lesion_overlap != theirs.lesion_overlap),
        ("labels of regions", own.regions != theirs.regions),
        ("unit of lengths", has_lengths && own.millimetres_per_unit != theirs.millimetres_per_unit),
    ];
    match differs.into_iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => Err(ComparisonError::Parameters { one, other, what }),
    }
}

fn classes(settings: &Settings) -> BTreeSet<u8> {
    settings.classes.iter().copied().collect()
}

/// The name of a case: the name of its prediction without the ending of images. Predictions have names of their own, where references may all
/// be called the same, each in the folder of its case.
fn case_name(case: &CaseScores) -> Option<String> {
    let name = case.prediction_file.file_name()?.to_str()?;
    let lower = name.to_ascii_lowercase();
    // Of several endings, like .nii and .nii.gz, the longest.
    let ending = image_endings().filter(|ending| lower.ends_with(*ending)).max_by_key(|ending| ending.len());
    let stem = ending.map_or(name, |ending| &name[..name.len() - ending.len()]);
    (!stem.is_empty()).then(|| stem.to_string())
}
