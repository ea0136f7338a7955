//! All scores of a table, for given weights of its cases.

use plimsoll_memory::{Budget, Mapped};

use super::counts::Counts;
use super::ranking::Ranking;
use super::table::{Table, TableError};

/// The number of bins of the calibration error.
pub(crate) const BINS: usize = 15;

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

/// Scores of each class against the rest, in the order in which they are computed.
pub(crate) const OF_CLASS: [&str; 6] =
    ["sensitivity", "specificity", "precision", "f1", "auroc", "average_precision"];

/// A prepared table, so that the scores for given weights need a single pass.
pub(crate) struct Scorer<'a> {
    table: &'a Table,
    /// The most probable class of each case; ties go to the first.
    predicted: Mapped<u32>,
    confidence: Mapped<f64>,
    rankings: Vec<Ranking>,
    pub(crate) counts: Counts,
}

impl<'a> Scorer<'a> {
    pub(crate) fn new(table: &'a Table, budget: &Budget) -> Result<Scorer<'a>, TableError> {
        let cases = table.labels().len();
        let mut predicted = Mapped::<u32>::zeroed(budget, "table of cases", cases)?;
        let mut confidence = Mapped::<f64>::zeroed(budget, "table of cases", cases)?;
        for ((predicted, confidence), row) in
            predicted.iter_mut().zip(confidence.iter_mut()).zip(table.rows())
        {
            for (class, probability) in row.iter().enumerate() {
                if class == 0 || probability > confidence {
                    (*predicted, *confidence) = (class as u32, *probability);
                }
            }
        }
        let classes = table.classes().len();
        let counts = Counts::new(classes, budget)?;
        let rankings: Result<_, _> = (0..classes).map(|class| Ranking::new(table, class, budget)).collect();
        Ok(Scorer { table, predicted, confidence, rankings: rankings?, counts })
    }

    /// The number of scores.
    pub(crate) fn len(&self) -> usize {
        OVERALL.len() + OF_CLASS.len() * self.rankings.len()
    }

    /// Computes the scores: [`OVERALL`], then [`OF_CLASS`] for each class. Undefined scores are NaN.
    pub(crate) fn score(&mut self, weights: &[u32], to: &mut [f64]) {
        self.counts.clear();
        for ((label, predicted), weight) in self.table.labels().iter().zip(self.predicted.iter()).zip(weights)
        {
            self.counts.add(*label, *predicted, *weight);
        }
        let counts = &self.counts;
        let (overall, by_class) = to.split_at_mut(OVERALL.len());
        for (class, (ranking, to)) in
            self.rankings.iter().zip(by_class.chunks_exact_mut(OF_CLASS.len())).enumerate()
        {
            let (auroc, average_precision) = ranking.scores(weights);
            let scores = [
                counts.sensitivity(class),
                counts.specificity(class),
                counts.precision(class),
                counts.f1(class),
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
                let support = counts.labelled(class);
                if support > 0 && !score.is_nan() {
                    sum += support as f64 * score;
                    all += support;
                }
            }
            sum / all as f64
        };
        let ece = self.calibration_error(weights);
        overall.copy_from_slice(&[
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
        ]);
    }

    /// The expected calibration error (Guo et al. 2017): the mean absolute difference between confidence (the
    /// probability of the most probable class) and accuracy, over 15 bins of equal width, open below and closed above,
    /// weighted by their cases.
    fn calibration_error(&self, weights: &[u32]) -> f64 {
        let mut bins = [[0.0; 2]; BINS];
        let mut all = 0.0;
        let cases = self.table.labels().iter().zip(self.predicted.iter()).zip(self.confidence.iter());
        for (((label, predicted), confidence), weight) in cases.zip(weights) {
            let weight = f64::from(*weight);
            let bin = ((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
            bins[bin][0] += weight * confidence;
            bins[bin][1] += if label == predicted { weight } else { 0.0 };
            all += weight;
        }
        bins.iter().map(|[confidence, right]| (confidence - right).abs()).sum::<f64>() / all
    }
}
