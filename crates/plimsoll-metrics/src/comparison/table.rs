//! Comparisons as a table.

use std::io::{self, Write};

use super::difference::Undefined;
use super::report::Comparison;
use crate::csv::{number, quoted};

impl Comparison {
    /// Writes a row for each pair, class and score; what is undefined is left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(
            to,
            "score,class,first,second,cases,undefined_first,undefined_second,undefined_both,mean,mean_low,mean_high,median,median_low,\
             median_high,positive_ranks,negative_ranks,zeros,p,p_holm,outcome,better,cases_needed,missing_first,missing_second,\
             missing_both"
        )?;
        for score in &self.scores {
            for difference in &score.differences {
                let names =
                    [score.metric.name(), &difference.class.name, &difference.first, &difference.second];
                for name in names {
                    write!(to, "{},", quoted(name))?;
                }
                write!(to, "{},", difference.cases)?;
                let Undefined { first, second, both } = difference.undefined;
                write!(to, "{first},{second},{both},")?;
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
                    write!(to, "{},", number(value))?;
                }
                let verdict = &difference.verdict;
                let better = verdict.better.iter().map(|name| quoted(name).into_owned()).collect::<String>();
                let needed = number(verdict.cases_needed.map(|needed| needed as f64));
                let Undefined { first, second, both } = difference.missing;
                writeln!(to, "{},{better},{needed},{first},{second},{both}", verdict.outcome.name())?;
            }
        }
        Ok(())
    }
}
