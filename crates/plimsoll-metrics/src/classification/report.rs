//! The report of a classification.

use std::collections::BTreeMap;
use std::io::{self, Write};

use plimsoll_memory::Budget;
use serde::{Deserialize, Serialize};

use super::binomial::wilson;
use super::bootstrap::{Bootstrap, Interval, intervals};
use super::counts::ClassCounts;
use super::scores::{OF_CLASS, Scorer};
use super::table::{Table, TableError};
use super::thresholds::SensitivityThreshold;
use crate::csv::TableWriter;

/// The scores of a classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassificationReport {
    /// The number of cases.
    pub cases: usize,
    /// The scores of all classes together. Where cases have several labels, `accuracy` is the share of cases all of whose labels are
    /// right, and `micro_f1` the F1 over all pairs of a case and a class. `balanced_accuracy` is the mean sensitivity; `f1`, `auroc` and
    /// `average_precision` are means over classes (macro averages), too, of the defined ones; those that begin with `weighted` are
    /// weighted by the cases of each class.
    pub overall: BTreeMap<String, Interval>,
    /// The scores of each class against the rest, in the order of the table.
    pub classes: Vec<ClassReport>,
    /// The number of cases by label, then by most probable class; ties go to the first class. `None` if cases have several labels.
    pub confusion_matrix: Option<Vec<Vec<u64>>>,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

/// The scores of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// The class.
    pub name: String,
    /// Its cases and the rest, by whether they are given the class: the most probable, or any of a probability of 0.5 or more where
    /// cases have several labels.
    pub counts: ClassCounts,
    /// Its scores against the rest.
    pub scores: BTreeMap<String, Interval>,
    /// The sensitivity with the interval of Wilson.
    pub sensitivity: Interval,
    /// The specificity with the interval of Wilson.
    pub specificity: Interval,
    /// Thresholds for wanted sensitivities, in the order in which these were asked for.
    pub thresholds: Vec<SensitivityThreshold>,
}

/// Scores a table: accuracy, balanced accuracy, F1, AUROC, average precision, Cohen's kappa with quadratic weights and
/// the expected calibration error; sensitivity, specificity, precision, F1, AUROC and average precision of each class.
/// Scores a classification with the definitions and names of scikit-learn, except that a division by zero gives an undefined score.
///
/// # Errors
/// Returns an error if the memory is not available.
pub fn classify(
    table: &Table,
    bootstrap: &Bootstrap,
    budget: &Budget,
) -> Result<ClassificationReport, TableError> {
    let cases = table.cases();
    let mut scorer = Scorer::new(table, budget)?;
    let intervals = intervals(&mut scorer, cases, bootstrap, budget)?;
    let (overall, by_class) = intervals.split_at(scorer.overall().len());
    let named = |names: &[&str], scores: &[Interval]| {
        names.iter().map(|name| name.to_string()).zip(scores.iter().copied()).collect()
    };
    let classes = table.classes().iter().zip(by_class.chunks_exact(OF_CLASS.len()));
    Ok(ClassificationReport {
        cases,
        overall: named(scorer.overall(), overall),
        classes: classes
            .enumerate()
            .map(|(class, (name, scores))| {
                let wilson = |[part, whole]: [u64; 2]| wilson(part, whole, bootstrap.confidence);
                // The last weights counted are the weights of the table itself.
                let counts = scorer.counts(class);
                let [sensitivity, specificity] = counts.shares().map(wilson);
                ClassReport {
                    name: name.clone(),
                    counts,
                    scores: named(&OF_CLASS, scores),
                    sensitivity,
                    specificity,
                    thresholds: Vec::new(),
                }
            })
            .collect(),
        confusion_matrix: scorer.confusion_matrix(),
        bootstrap: *bootstrap,
    })
}

impl ClassificationReport {
    /// Writes a row for each score and class, `all` for all classes together; undefined scores are left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut table = TableWriter::new(to, ["class", "score", "value", "low", "high"])?;
        let overall = self.overall.iter().map(|(score, found)| ("all", score, found));
        let by_class = self
            .classes
            .iter()
            .flat_map(|class| class.scores.iter().map(|(score, found)| (class.name.as_str(), score, found)));
        for (class, score, Interval { value, low, high }) in overall.chain(by_class) {
            table.text(class)?;
            table.text(score)?;
            for number in [value, low, high] {
                table.number(*number)?;
            }
            table.end_row()?;
        }
        table.finish()
    }
}
