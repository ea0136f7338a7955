//! Comparisons as a table.

use std::io::{self, Write};

use super::difference::Undefined;
use super::report::Comparison;
use crate::csv::TableWriter;

/// The columns of the table.
const COLUMNS: [&str; 25] = [
    "score",
    "class",
    "first",
    "second",
    "cases",
    "undefined_first",
    "undefined_second",
    "undefined_both",
    "mean",
    "mean_low",
    "mean_high",
    "median",
    "median_low",
    "median_high",
    "positive_ranks",
    "negative_ranks",
    "zeros",
    "p",
    "p_holm",
    "outcome",
    "better",
    "cases_needed",
    "missing_first",
    "missing_second",
    "missing_both",
];

impl Comparison {
    /// Writes a row for each pair, class and score. Undefined values are left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut table = TableWriter::new(to, COLUMNS)?;
        for score in &self.scores {
            for difference in &score.differences {
                let class = &difference.class.name;
                for name in [score.metric.name(), class, &difference.first, &difference.second] {
                    table.text(name)?;
                }
                let Undefined { first, second, both } = difference.undefined;
                for count in [difference.cases, first, second, both] {
                    table.count(count)?;
                }
                let (mean, median) = (difference.mean_interval, difference.median_interval);
                let test = difference.test;
                let numbers = [
                    difference.mean.filter(|mean| mean.is_finite()),
                    mean.map(|[low, _]| low),
                    mean.map(|[_, high]| high),
                    difference.median.filter(|median| median.is_finite()),
                    median.map(|[low, _]| low),
                    median.map(|[_, high]| high),
                    test.map(|test| test.positive_ranks),
                    test.map(|test| test.negative_ranks),
                    test.map(|test| test.zeros as f64),
                    test.map(|test| test.p),
                    difference.p_holm,
                ];
                for value in numbers {
                    table.number(value)?;
                }
                let verdict = &difference.verdict;
                table.text(verdict.outcome.name())?;
                table.text(verdict.better.as_deref().unwrap_or_default())?;
                table.number(verdict.cases_needed.map(|needed| needed as f64))?;
                let Undefined { first, second, both } = difference.missing;
                for count in [first, second, both] {
                    table.count(count)?;
                }
                table.end_row()?;
            }
        }
        table.finish()
    }
}
