//! All scores of a table, for given weights of its cases.

use plimsoll_memory::{Budget, Mapped};

use super::counts::{ClassCounts, Counts, LabelCounts};
use super::operating::most_probable;
use super::ranking::Ranking;
use super::table::{Labels, Table, TableError};

/// The number of bins of the calibration error.
pub(crate) const BINS: usize = 15;

/// The probability from which on a case has a label, where it may have several.
const LABEL_THRESHOLD: f64 = 0.5;

/// Scores of the whole table, in the order in which they are computed.
pub(crate) const OVERALL: [&str; 11] = [
    "accuracy",
    "balanced_accuracy",
    "f1",
    "auroc",
    "average_precision",
    "quadratic_kappa",
    "ece",
    "weighted_precision",
    "weighted_sensitivity",
    "weighted_f1",
    "weighted_auroc",
];

/// The same where cases have several labels.
pub(crate) const OVERALL_OF_LABELS: [&str; 6] =
    ["accuracy", "f1", "auroc", "average_precision", "ece", "micro_f1"];

/// Scores of each class against the rest, in the order in which they are computed.
pub(crate) const OF_CLASS: [&str; 6] =
    ["sensitivity", "specificity", "precision", "f1", "auroc", "average_precision"];

/// The predictions of cases, and their counts.
enum Given<'a> {
    /// The most probable class of each, where it is of one; ties go to the first.
    OneClass { labels: &'a Mapped<u32>, classes: Mapped<u32>, counts: Counts },
    /// Each label from a threshold on.
    SeveralLabels { counts: LabelCounts },
}

/// A prepared table, so that the scores for given weights need a single pass.
pub(crate) struct Scorer<'a> {
    table: &'a Table,
    given: Given<'a>,
    rankings: Vec<Ranking>,
}

impl<'a> Scorer<'a> {
    pub(crate) fn new(table: &'a Table, budget: &Budget) -> Result<Scorer<'a>, TableError> {
        let classes = table.classes().len();
        let given = match table.labels() {
            Labels::One(labels) => {
                let mut given = Mapped::<u32>::zeroed(budget, "table of cases", table.cases())?;
                given.iter_mut().zip(table.rows()).for_each(|(to, row)| *to = most_probable(row) as u32);
                Given::OneClass { labels, classes: given, counts: Counts::new(classes, budget)? }
            }
            Labels::Several(_) => Given::SeveralLabels { counts: LabelCounts::new(classes) },
        };
        let rankings: Result<_, _> = (0..classes).map(|class| Ranking::new(table, class, budget)).collect();
        Ok(Scorer { table, given, rankings: rankings? })
    }

    /// The names of the scores of the whole table.
    pub(crate) fn overall(&self) -> &'static [&'static str] {
        match self.given {
            Given::OneClass { .. } => &OVERALL,
            Given::SeveralLabels { .. } => &OVERALL_OF_LABELS,
        }
    }

    /// Returns `true` if each case is given exactly the classes that it is of, or, of a class, whether it is given it rightly or withheld rightly.
    pub(crate) fn is_right(&self, case: usize, class: Option<usize>) -> bool {
        let is_given = |class: usize| match &self.given {
            Given::OneClass { classes, .. } => classes[case] as usize == class,
            Given::SeveralLabels { .. } => self.table.probability(case, class) >= LABEL_THRESHOLD,
        };
        let agrees = |class: usize| is_given(class) == self.table.is_of(case, class);
        match class {
            Some(class) => agrees(class),
            None => (0..self.table.classes().len()).all(agrees),
        }
    }

    /// The ranking of cases by the probability of a class.
    pub(crate) fn ranking(&self, class: usize) -> &Ranking {
        &self.rankings[class]
    }

    /// The number of scores.
    pub(crate) fn len(&self) -> usize {
        self.overall().len() + OF_CLASS.len() * self.rankings.len()
    }

    /// The counts of a class, for the weights that were scored last.
    pub(crate) fn counts(&self, class: usize) -> ClassCounts {
        match &self.given {
            Given::OneClass { counts, .. } => counts.for_class(class),
            Given::SeveralLabels { counts } => counts.classes[class],
        }
    }

    /// The number of cases by label, then by the class that they are given, for the weights that were scored last; `None` if cases
    /// have several labels.
    pub(crate) fn confusion_matrix(&self) -> Option<Vec<Vec<u64>>> {
        match &self.given {
            Given::OneClass { counts, .. } => Some(counts.rows().map(<[u64]>::to_vec).collect()),
            Given::SeveralLabels { .. } => None,
        }
    }

    /// Computes the scores: the scores of the whole table, then [`OF_CLASS`] for each class. Undefined scores are NaN.
    pub(crate) fn score(&mut self, weights: &[u32], to: &mut [f64]) {
        self.count(weights);
        let (overall, by_class) = to.split_at_mut(self.overall().len());
        for (class, (ranking, to)) in
            self.rankings.iter().zip(by_class.chunks_exact_mut(OF_CLASS.len())).enumerate()
        {
            let (auroc, average_precision) = ranking.scores(weights);
            let counts = self.counts(class);
            let scores = [
                counts.sensitivity(),
                counts.specificity(),
                counts.precision(),
                counts.f1(),
                auroc,
                average_precision,
            ];
            to.copy_from_slice(&scores);
        }
        let mean = |score: usize| {
            let found = by_class.iter().skip(score).step_by(OF_CLASS.len()).filter(|score| !score.is_nan());
            let (sum, count) = found.fold((0.0, 0u32), |(sum, count), score| (sum + score, count + 1));
            sum / f64::from(count)
        };
        // By the number of cases of each class, of those in which the score is defined.
        let weighted = |score: usize| {
            let (mut sum, mut all) = (0.0, 0);
            for (class, score) in by_class.iter().skip(score).step_by(OF_CLASS.len()).enumerate() {
                let support = self.counts(class).support();
                if support > 0 && !score.is_nan() {
                    sum += support as f64 * score;
                    all += support;
                }
            }
            sum / all as f64
        };
        let ece = self.calibration_error(weights);
        match &self.given {
            Given::OneClass { counts, .. } => overall.copy_from_slice(&[
                counts.accuracy(),
                mean(0),
                mean(3),
                mean(4),
                mean(5),
                counts.quadratic_kappa(),
                ece,
                weighted(2),
                weighted(0),
                weighted(3),
                weighted(4),
            ]),
            Given::SeveralLabels { counts } => {
                overall.copy_from_slice(&[
                    counts.accuracy(),
                    mean(3),
                    mean(4),
                    mean(5),
                    ece,
                    counts.micro_f1(),
                ]);
            }
        }
    }

    /// Counts the cases anew.
    fn count(&mut self, weights: &[u32]) {
        let table = self.table;
        match &mut self.given {
            Given::OneClass { labels, classes, counts } => {
                counts.clear();
                for ((label, given), weight) in labels.iter().zip(classes.iter()).zip(weights) {
                    counts.add(*label, *given, *weight);
                }
            }
            Given::SeveralLabels { counts } => {
                counts.clear();
                for (case, (row, weight)) in table.rows().zip(weights).enumerate() {
                    let each = row.iter().enumerate();
                    let each =
                        each.map(|(class, share)| (table.is_of(case, class), *share >= LABEL_THRESHOLD));
                    counts.add(each, *weight);
                }
            }
        }
    }

    /// The expected calibration error (Guo et al. 2017): the mean absolute difference between confidence (the
    /// probability of the most probable class) and accuracy, over 15 bins of equal width, open below and closed above,
    /// weighted by their cases. Where cases have several labels, of the probabilities of all of them.
    fn calibration_error(&self, weights: &[u32]) -> f64 {
        let mut bins = [[0.0; 2]; BINS];
        let mut all = 0.0;
        let mut add = |probability: f64, is_right: bool, weight: u32| {
            let weight = f64::from(weight);
            let bin = ((probability * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
            bins[bin][0] += weight * probability;
            bins[bin][1] += if is_right { weight } else { 0.0 };
            all += weight;
        };
        for (case, (row, weight)) in self.table.rows().zip(weights).enumerate() {
            match &self.given {
                Given::OneClass { classes, .. } => {
                    let class = classes[case] as usize;
                    add(row[class], self.table.is_of(case, class), *weight);
                }
                Given::SeveralLabels { .. } => {
                    let each = row.iter().enumerate();
                    each.for_each(|(class, share)| add(*share, self.table.is_of(case, class), *weight));
                }
            }
        }
        bins.iter().map(|[confidence, right]| (confidence - right).abs()).sum::<f64>() / all
    }
}
