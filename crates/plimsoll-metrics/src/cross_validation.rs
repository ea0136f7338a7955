//! Scores over the folds of a cross-validation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{CaseCounts, CasesOf, MeanScore, Metric, Missing, Scores, Summary};

/// The mean over folds, and how far folds lie apart. Infinite numbers are null in files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OverFolds {
    /// The mean over the folds where the score is defined.
    pub mean: f64,
    /// The standard deviation of these, with n − 1 in the denominator; 0 for one fold.
    pub sd: f64,
    /// The number of folds with a defined score.
    pub folds: usize,
    /// The number of all folds.
    pub of: usize,
}

impl OverFolds {
    /// The mean as tables show it, with "n of N" folds behind it unless all have the score.
    pub fn shown(&self, shown: impl Fn(f64) -> String) -> String {
        CaseCounts { defined: self.folds, missing: 0, of: self.of }.beside(Some(self.mean), shown)
    }

    /// Returns the mean and spread of the scores of folds, or `None` without scores.
    pub fn new(scores: &[f64]) -> Option<OverFolds> {
        let folds = scores.len();
        if folds == 0 {
            return None;
        }
        let mean = scores.iter().sum::<f64>() / folds as f64;
        let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
        let sd = if folds > 1 { (squares / (folds - 1) as f64).sqrt() } else { 0.0 };
        Some(OverFolds { mean, sd, folds, of: folds })
    }
}

/// The scores of one fold: means over its validation cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoldScores {
    /// Its name.
    pub fold: String,
    /// Its validation cases.
    pub cases: usize,
    /// The mean over foreground classes.
    pub foreground_mean: Scores,
    /// The cases and classes behind it.
    pub foreground_cases: CasesOf,
    /// By class.
    pub mean: BTreeMap<u8, Scores>,
    /// The cases behind it, by class.
    pub mean_cases: BTreeMap<u8, CasesOf>,
}

impl FoldScores {
    /// The mean of a score over the cases of the fold, of a class or over the foreground classes, with the cases behind it.
    pub fn mean_of(&self, class: Option<u8>, metric: Metric) -> MeanScore {
        let (mean, cases) = match class {
            Some(class) => (self.mean.get(&class), self.mean_cases.get(&class)),
            None => (Some(&self.foreground_mean), Some(&self.foreground_cases)),
        };
        MeanScore::new(mean, cases, metric)
    }
}

/// The scores of all folds, and over them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CrossValidation {
    /// The treatment of cases in which only one of prediction and reference has a class.
    pub missing: Missing,
    /// Fold by fold.
    pub folds: Vec<FoldScores>,
    /// Over folds, of the means over foreground classes.
    pub foreground: BTreeMap<Metric, OverFolds>,
    /// Over folds, by class.
    pub classes: BTreeMap<u8, BTreeMap<Metric, OverFolds>>,
}

impl CrossValidation {
    /// Combines the summaries of folds with their names; `None` without a fold.
    pub fn new(summaries: &[(String, Summary)]) -> Option<CrossValidation> {
        let (_, first) = summaries.first()?;
        let folds: Vec<FoldScores> = summaries
            .iter()
            .map(|(fold, summary)| FoldScores {
                fold: fold.clone(),
                cases: summary.metric_per_case.len(),
                foreground_mean: summary.foreground_mean.clone(),
                foreground_cases: summary.foreground_cases.clone(),
                mean: summary.mean.clone(),
                mean_cases: summary.mean_cases.clone(),
            })
            .collect();
        let classes: BTreeSet<u8> = folds.iter().flat_map(|fold| fold.mean.keys().copied()).collect();
        Some(CrossValidation {
            missing: first.settings.missing,
            foreground: over(folds.iter().map(|fold| &fold.foreground_mean)),
            classes: classes
                .into_iter()
                .map(|class| (class, over(folds.iter().filter_map(move |fold| fold.mean.get(&class)))))
                .collect(),
            folds,
        })
    }
}

fn over<'a>(scores: impl Iterator<Item = &'a Scores> + Clone) -> BTreeMap<Metric, OverFolds> {
    let metrics: BTreeSet<Metric> = scores.clone().flat_map(Scores::metrics).collect();
    let of = |metric: Metric| {
        let defined: Vec<f64> = scores.clone().filter_map(|scores| scores.get(metric)).collect();
        Some((metric, OverFolds { of: scores.clone().count(), ..OverFolds::new(&defined)? }))
    };
    metrics.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{CaseScores, Settings};

    fn summary(dice: &[[f64; 2]]) -> Summary {
        let case = |dice: &[f64; 2]| {
            let of = |score: f64| {
                let mut scores = Scores::default();
                scores.set(Metric::Dice, score);
                scores
            };
            let metrics = BTreeMap::from([(1, of(dice[0])), (2, of(dice[1]))]);
            CaseScores {
                prediction_file: PathBuf::new(),
                reference_file: PathBuf::new(),
                metrics,
                counted_voxels: None,
                diagonal_mm: None,
            }
        };
        Summary::new(dice.iter().map(case).collect(), Settings::new(vec![1, 2]))
    }

    /// By hand: means of class 1 are 0.8 and 0.6, of class 2 0.5 where it is defined at all.
    #[test]
    fn means_and_deviations_are_over_folds_and_leave_out_what_is_undefined() {
        let folds = [
            ("0".to_string(), summary(&[[0.9, 0.5], [0.7, f64::NAN]])),
            ("1".to_string(), summary(&[[0.6, f64::NAN]])),
        ];
        let found = CrossValidation::new(&folds).unwrap();
        let class_1 = found.classes[&1][&Metric::Dice];
        assert!((class_1.mean - 0.7).abs() < 1e-12 && (class_1.sd - 0.02f64.sqrt()).abs() < 1e-12);
        assert_eq!(class_1.folds, 2);
        assert_eq!(found.classes[&2][&Metric::Dice], OverFolds { mean: 0.5, sd: 0.0, folds: 1, of: 2 });
        let foreground = found.foreground[&Metric::Dice];
        // (0.8 + 0.5) / 2 in the first fold, 0.6 in the second.
        assert!((foreground.mean - 0.625).abs() < 1e-12, "{foreground:?}");
        assert_eq!(found.folds[0].cases, 2);
    }
}
