//! Comparisons of classifiers as a table.

use std::io::{self, Write};

use super::report::ClassifierComparison;
use crate::csv::TableWriter;

/// The columns of the table.
const COLUMNS: [&str; 19] = [
    "score",
    "class",
    "first",
    "second",
    "images",
    "first_score",
    "second_score",
    "difference",
    "low",
    "high",
    "standard_error",
    "test",
    "first_alone",
    "second_alone",
    "p",
    "p_holm",
    "outcome",
    "better",
    "images_needed",
];

impl ClassifierComparison {
    /// Writes a row for each pair, class and score, `all` for all classes together. Undefined values are left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut table = TableWriter::new(to, COLUMNS)?;
        for score in &self.scores {
            for found in &score.differences {
                let class = found.class.as_deref().unwrap_or("all");
                for name in [score.score.name(), class, &found.first, &found.second] {
                    table.text(name)?;
                }
                table.count(found.images)?;
                let [first, second] = found.scores;
                let [low, high] = [0, 1].map(|end| found.interval.map(|interval| interval[end]));
                for value in [first, second, found.difference, low, high, found.standard_error] {
                    table.number(value)?;
                }
                table.text(found.test.map_or("", |test| test.test.name()))?;
                let alone = found.test.and_then(|test| test.right_in_one_alone);
                let [first, second] = [0, 1].map(|which| alone.map(|alone| alone[which] as f64));
                for value in [first, second, found.test.map(|test| test.p), found.p_holm] {
                    table.number(value)?;
                }
                let verdict = &found.verdict;
                table.text(verdict.outcome.name())?;
                table.text(verdict.better.as_deref().unwrap_or_default())?;
                table.number(verdict.cases_needed.map(|needed| needed as f64))?;
                table.end_row()?;
            }
        }
        table.finish()
    }
}
