//! Comparisons of classifiers as a table.

use std::io::{self, Write};

use super::report::ClassifierComparison;
use crate::csv::{number, quoted};

impl ClassifierComparison {
    /// Writes a row for each pair, class and score, `all` for all classes together; what is undefined is left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(
            to,
            "score,class,first,second,images,first_score,second_score,difference,low,high,standard_error,test,first_alone,second_alone,p,\
             p_holm,outcome,better,images_needed"
        )?;
        for score in &self.scores {
            for found in &score.differences {
                let class = found.class.as_deref().unwrap_or("all");
                for name in [score.score.name(), class, &found.first, &found.second] {
                    write!(to, "{},", quoted(name))?;
                }
                write!(to, "{},", found.images)?;
                let [first, second] = found.scores;
                let [low, high] = [0, 1].map(|end| found.interval.map(|interval| interval[end]));
                for value in [first, second, found.difference, low, high, found.standard_error] {
                    write!(to, "{},", number(value))?;
                }
                let alone = found.test.and_then(|test| test.right_in_one_alone);
                let [first, second] = [0, 1].map(|which| alone.map(|alone| alone[which] as f64));
                let test = found.test.map_or("", |test| test.test.name());
                write!(to, "{test},{},{},", number(first), number(second))?;
                write!(to, "{},{},", number(found.test.map(|test| test.p)), number(found.p_holm))?;
                let verdict = &found.verdict;
                let better = verdict.better.iter().map(|name| quoted(name).into_owned()).collect::<String>();
                let needed = number(verdict.cases_needed.map(|needed| needed as f64));
                writeln!(to, "{},{better},{needed}", verdict.outcome.name())?;
            }
        }
        Ok(())
    }
}
