//! One classifier for each pair of classes (one-vs-one), and how their probabilities become a decision.
//!
//! With K classes there are K (K − 1) / 2 pairs (a, b) with a < b, in the order 01, 02, …, 12, 13, …. The classifier of a pair
//! gives p, the probability of b if the case is one of the two; r_ab = 1 − p and r_ba = p. Several classifiers of each pair, as
//! of several networks, all count the same.

use serde::{Deserialize, Serialize};

/// Probabilities of 0 and 1 are moved inwards by this before they are coupled, as in LIBSVM: otherwise the solution may not be
/// unique.
const CERTAIN: f64 = 1e-7;

/// Scores that differ by less are equal but for rounding, which must not decide.
const ROUNDING: f64 = 1e-12;

/// The rule by which votes for pairs become scores of classes. The class with the largest score wins; ties go to the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The share of pairs that a class wins; p = ½ is won by a. Ties are broken by the sum of r_ab, of which less than what a vote
    /// is worth is added to the score.
    Majority,
    /// 2 / (K (K − 1)) · Σ_b r_ab, which sum to 1.
    #[default]
    ProbabilitySum,
    /// Σ_b w_ab r_ab / Σ_b w_ab with the confidence of the pair, w_ab = accuracy² · |2p − 1|, one half more for accuracies above
    /// 0.95; then softmax over classes. Used for ensembles that grade retinopathy.
    Weighted,
    /// The probabilities π that minimise Σ_a Σ_{b ≠ a} (r_ba π_a − r_ab π_b)² (Wu, Lin and Weng 2004, the second method).
    Coupling,
}

/// Why votes cannot be counted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VotesError {
    /// There are fewer than two classes.
    #[error("{classes} classes have no pairs: at least 2 are needed")]
    Classes {
        /// The number of classes.
        classes: usize,
    },
    /// The numbers do not belong to all pairs, once or several times.
    #[error("{found} {what} do not match {pairs} pairs, or a multiple of them")]
    Length {
        /// `probabilities` or `accuracies`.
        what: &'static str,
        /// The number of pairs found.
        found: usize,
        /// K (K − 1) / 2.
        pairs: usize,
    },
    /// A number is not between 0 and 1.
    #[error("{what} {at} is {value}, which is not between 0 and 1")]
    Range {
        /// `probability` or `accuracy`.
        what: &'static str,
        /// Its place, from 0.
        at: usize,
        /// The value.
        value: f64,
    },
}

/// The pairs of classes, in order.
pub fn pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |a| (a + 1..classes).map(move |b| (a, b)))
}

/// K (K − 1) / 2.
pub fn pair_count(classes: usize) -> usize {
    classes * classes.saturating_sub(1) / 2
}

/// Counts the votes on cases of a fixed number of classes by a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Votes {
    classes: usize,
    rule: Rule,
    /// For each pair of each classifier: the square of its accuracy, and the half more for high ones.
    weights: Vec<f64>,
}

impl Votes {
    /// A rule for this many classes. `accuracies` has the accuracy of each pair's classifier on cases of the two classes, from 0 to 1,
    /// for [`Rule::Weighted`]; empty for accuracies of 1.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two classes, or the accuracies are out of range or do not match all pairs.
    pub fn new(classes: usize, rule: Rule, accuracies: &[f64]) -> Result<Votes, VotesError> {
        if classes < 2 {
            return Err(VotesError::Classes { classes });
        }
        if !accuracies.is_empty() {
            check(classes, ["accuracies", "accuracy"], accuracies)?;
        }
        let weight = |accuracy: &f64| accuracy * accuracy * if *accuracy > 0.95 { 1.5 } else { 1.0 };
        Ok(Votes { classes, rule, weights: accuracies.iter().map(weight).collect() })
    }

    /// The scores of the classes. `probabilities` has p for each pair in order, once for each classifier.
    ///
    /// # Errors
    /// Returns an error if probabilities are out of range or do not match all pairs, or there are accuracies for other classifiers.
    pub fn scores(&self, probabilities: &[f64]) -> Result<Vec<f64>, VotesError> {
        let pairs = pair_count(self.classes);
        check(self.classes, ["probabilities", "probability"], probabilities)?;
        if !self.weights.is_empty() && self.weights.len() != probabilities.len() {
            return Err(VotesError::Length { what: "probabilities", found: probabilities.len(), pairs });
        }
        Ok(match self.rule {
            Rule::Majority => self.majority(probabilities),
            Rule::ProbabilitySum => {
                let pairs = probabilities.len() as f64;
                self.sums(probabilities).into_iter().map(|sum| sum / pairs).collect()
            }
            Rule::Weighted => self.weighted(probabilities),
            Rule::Coupling => self.coupled(probabilities),
        })
    }

    /// The class that wins, and the scores.
    ///
    /// # Errors
    /// Returns the errors of [`scores`](Self::scores).
    pub fn decide(&self, probabilities: &[f64]) -> Result<(usize, Vec<f64>), VotesError> {
        let scores = self.scores(probabilities)?;
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for (class, score) in scores.iter().enumerate() {
            if *score > most + ROUNDING {
                (best, most) = (class, *score);
            }
        }
        Ok((best, scores))
    }

    /// The two classes of each probability, with it.
    fn voices<'a>(&self, probabilities: &'a [f64]) -> impl Iterator<Item = (usize, usize, f64)> + use<'a> {
        let classes = self.classes;
        let voices = probabilities.chunks(pair_count(classes));
        voices.flat_map(move |voices| pairs(classes).zip(voices).map(|((a, b), p)| (a, b, *p)))
    }

    /// Σ_b r_ab for each class a.
    fn sums(&self, probabilities: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.classes];
        for (a, b, p) in self.voices(probabilities) {
            sums[a] += 1.0 - p;
            sums[b] += p;
        }
        sums
    }

    fn majority(&self, probabilities: &[f64]) -> Vec<f64> {
        let pairs = probabilities.len() as f64;
        let mut votes = vec![0.0; self.classes];
        for (a, b, p) in self.voices(probabilities) {
            votes[if p > 0.5 { b } else { a }] += 1.0;
        }
        // The sums add up to the number of votes, so that half of their share is less than a vote and orders classes that tie.
        let broken = votes.iter().zip(self.sums(probabilities));
        broken.map(|(votes, sum)| (votes + 0.5 * sum / (pairs + 1.0)) / pairs).collect()
    }

    fn weighted(&self, probabilities: &[f64]) -> Vec<f64> {
        let (mut sums, mut totals) = (vec![0.0; self.classes], vec![0.0; self.classes]);
        for (at, (a, b, p)) in self.voices(probabilities).enumerate() {
            let weight = self.weights.get(at).copied().unwrap_or(1.5) * (2.0 * p - 1.0).abs();
            for (class, r) in [(a, 1.0 - p), (b, p)] {
                sums[class] += weight * r;
                totals[class] += weight;
            }
        }
        // Without any confidence all r are ½, and so is their mean.
        let means = sums.iter().zip(&totals).map(|(sum, total)| if *total > 0.0 { sum / total } else { 0.5 });
        let means: Vec<f64> = means.collect();
        let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = means.iter().map(|mean| (mean - most).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        exponentials.into_iter().map(|value| value / sum).collect()
    }

    /// The minimum is where Q π + λ = 0 and Σ π = 1, with Q_aa = Σ_b r_ba² and Q_ab = −r_ba r_ab: a linear system.
    fn coupled(&self, probabilities: &[f64]) -> Vec<f64> {
        let classes = self.classes;
        let share = pair_count(classes) as f64 / probabilities.len() as f64;
        let mut r = vec![vec![0.0; classes]; classes];
        for (a, b, p) in self.voices(probabilities) {
            r[b][a] += p * share;
        }
        for (a, b) in pairs(classes) {
            r[b][a] = r[b][a].clamp(CERTAIN, 1.0 - CERTAIN);
            r[a][b] = 1.0 - r[b][a];
        }
        let size = classes + 1;
        let mut system = vec![vec![0.0; size + 1]; size];
        for a in 0..classes {
            for b in (0..classes).filter(|b| *b != a) {
                system[a][a] += r[b][a] * r[b][a];
                system[a][b] = -r[b][a] * r[a][b];
            }
            system[a][classes] = 1.0;
            system[classes][a] = 1.0;
        }
        system[classes][size] = 1.0;
        let mut found = solve(system);
        found.truncate(classes);
        // None is negative but for rounding.
        found.iter_mut().for_each(|probability| *probability = probability.max(0.0));
        let sum: f64 = found.iter().sum();
        found.iter_mut().for_each(|probability| *probability /= sum);
        found
    }
}

/// Solves a linear system, each row with its right side last, by elimination with the largest pivot of each column.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let size = rows.len();
    for column in 0..size {
        let largest = (column..size).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()));
        rows.swap(column, largest.unwrap_or(column));
        let (done, below) = rows.split_at_mut(column + 1);
        let pivot = &done[column];
        for row in below {
            let factor = row[column] / pivot[column];
            row.iter_mut().zip(pivot).skip(column).for_each(|(to, from)| *to -= factor * from);
        }
    }
    let mut found = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|column| rows[at][column] * found[column]).sum();
        found[at] = (rows[at][size] - known) / rows[at][at];
    }
    found
}

/// Checks that there are numbers from 0 to 1 for all pairs, once or several times.
fn check(classes: usize, [what, one]: [&'static str; 2], numbers: &[f64]) -> Result<(), VotesError> {
    let (found, pairs) = (numbers.len(), pair_count(classes));
    if found == 0 || found % pairs != 0 {
        return Err(VotesError::Length { what, found, pairs });
    }
    match numbers.iter().enumerate().find(|(_, value)| !(0.0..=1.0).contains(*value)) {
        Some((at, value)) => Err(VotesError::Range { what: one, at, value: *value }),
        None => Ok(()),
    }
}
