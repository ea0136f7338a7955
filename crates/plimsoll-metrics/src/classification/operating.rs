//! Thresholds of one class against the rest: the ROC curve, points that meet a demand, and how reliable probabilities are.

use plimsoll_memory::Budget;
use serde::{Deserialize, Serialize};

use super::ranking::Ranking;
use super::table::{Labels, Table, TableError};

/// The scores of calling a case positive from a threshold on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatingPoint {
    /// A case is positive if its probability is at least this. Above 1 for the point where none is.
    pub threshold: f64,
    /// TP / (TP + FN); undefined without a case of the class.
    pub sensitivity: Option<f64>,
    /// TN / (TN + FP); undefined without a case of another class.
    pub specificity: Option<f64>,
}

/// Runs `visit` for each point of the ROC curve of a class, from the highest threshold, with which no case is positive, to the
/// lowest, with which all are: one for each distinct probability. As scikit-learn's `roc_curve` with all points. Uses 16 bytes per
/// case from `budget`.
///
/// # Errors
/// Returns an error if there is no such class, or the memory is not available.
pub fn roc(
    table: &Table,
    class: usize,
    budget: &Budget,
    mut visit: impl FnMut(OperatingPoint),
) -> Result<(), TableError> {
    if class >= table.classes().len() {
        return Err(TableError::NoClass { class, classes: table.classes().len() });
    }
    let ranking = Ranking::new(table, class, budget)?;
    let positives = (0..table.cases()).filter(|case| table.is_of(*case, class)).count();
    let negatives = table.cases() - positives;
    let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
    let mut emit = |threshold, true_positives, false_positives| {
        visit(OperatingPoint {
            threshold,
            sensitivity: share(true_positives, positives),
            specificity: share(negatives - false_positives, negatives),
        });
    };
    emit(f64::INFINITY, 0, 0);
    let [mut true_positives, mut false_positives] = [0; 2];
    for (case, is_positive, ends_tie) in ranking.cases() {
        *(if is_positive { &mut true_positives } else { &mut false_positives }) += 1;
        if ends_tie {
            emit(table.probability(case, class), true_positives, false_positives);
        }
    }
    Ok(())
}

/// The highest threshold with at least this sensitivity, which has the best specificity of all that meet it. `None` without a case
/// of the class.
///
/// # Errors
/// Returns the errors of [`roc`].
pub fn threshold_for_sensitivity(
    table: &Table,
    class: usize,
    wanted: f64,
    budget: &Budget,
) -> Result<Option<OperatingPoint>, TableError> {
    let mut found = None;
    roc(table, class, budget, |point| {
        if found.is_none() && point.sensitivity.is_some_and(|sensitivity| sensitivity >= wanted) {
            found = Some(point);
        }
    })?;
    Ok(found)
}

/// Cases whose probability is in a range, and how often they are right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Probabilities in the bin are above this (or 0),
    pub above: f64,
    /// and at most this.
    pub up_to: f64,
    /// Cases in the bin.
    pub cases: u64,
    /// Their mean probability; undefined without cases.
    pub confidence: Option<f64>,
    /// The share of them that is of the class; undefined without cases.
    pub frequency: Option<f64>,
}

/// Bins of equal width over the probability of `class`. For `None` those whose differences the expected calibration error weighs:
/// over the probability of the most probable class, or of each, where cases have several labels.
///
/// # Errors
/// Returns an error if there is no such class.
pub fn reliability(
    table: &Table,
    class: Option<usize>,
    bins: usize,
) -> Result<Vec<ReliabilityBin>, TableError> {
    let classes = table.classes().len();
    if let Some(class) = class.filter(|class| *class >= classes) {
        return Err(TableError::NoClass { class, classes });
    }
    let mut sums = vec![(0u64, 0.0, 0u64); bins];
    let mut add = |probability: f64, is_right: bool| {
        let bin = ((probability * bins as f64).ceil() as usize).clamp(1, bins.max(1)) - 1;
        if let Some((cases, confidence, right)) = sums.get_mut(bin) {
            *cases += 1;
            *confidence += probability;
            *right += u64::from(is_right);
        }
    };
    for (case, row) in table.rows().enumerate() {
        match (class, table.labels()) {
            (Some(class), _) => add(row[class], table.is_of(case, class)),
            (None, Labels::One(_)) => {
                let most = most_probable(row);
                add(row[most], table.is_of(case, most));
            }
            (None, Labels::Several(_)) => {
                let each = row.iter().enumerate();
                each.for_each(|(class, probability)| add(*probability, table.is_of(case, class)));
            }
        }
    }
    let edge = |bin: usize| bin as f64 / bins as f64;
    let bins = sums.into_iter().enumerate().map(|(bin, (cases, confidence, right))| ReliabilityBin {
        above: edge(bin),
        up_to: edge(bin + 1),
        cases,
        confidence: (cases > 0).then(|| confidence / cases as f64),
        frequency: (cases > 0).then(|| right as f64 / cases as f64),
    });
    Ok(bins.collect())
}

/// The most probable class; ties go to the first.
pub(super) fn most_probable(row: &[f64]) -> usize {
    let mut most = 0;
    for (class, probability) in row.iter().enumerate() {
        if *probability > row[most] {
            most = class;
        }
    }
    most
}
