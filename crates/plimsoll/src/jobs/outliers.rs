//! Cases with far more windows than the others: mostly a header that is wrong, and always hours.

use serde::Serialize;

use crate::duration::{duration, grouped};

/// A case with more windows than so many times the median is an outlier.
const TIMES_THE_MEDIAN: usize = 20;

/// So is one with more windows than this, whatever the others have.
const MANY: usize = 2000;

/// Windows of all cases that are to be predicted.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// By the name of a case.
    cases: Vec<(String, usize)>,
}

/// A case with far more windows than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Its windows, each fold counted.
    pub windows: usize,
    /// The median over all cases.
    pub median: usize,
}

impl Windows {
    /// Adds a case.
    pub fn add(&mut self, case: &str, windows: usize) {
        self.cases.push((case.into(), windows));
    }

    /// The windows of a case; none of one that is not known.
    fn of(&self, case: &str) -> Option<usize> {
        self.cases.iter().find(|(name, _)| name == case).map(|(_, windows)| *windows)
    }

    /// How many windows the cases behind one have, in units of the windows of all cases up to it and of their number: cases as long as
    /// these on average. None where the case is not known.
    pub fn behind(&self, case: &str) -> Option<f64> {
        let place = self.cases.iter().position(|(name, _)| name == case)?;
        let sum = |of: &[(String, usize)]| of.iter().map(|(_, windows)| *windows as f64).sum::<f64>();
        let (before, behind) = self.cases.split_at(place + 1);
        Some(sum(behind) / sum(before) * before.len() as f64).filter(|cases| cases.is_finite())
    }

    /// The lower of the middle two, or the middle one; none without a case.
    pub fn median(&self) -> Option<usize> {
        let mut all: Vec<usize> = self.cases.iter().map(|(_, windows)| *windows).collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied()
    }

    /// Whether a case has far more windows than the others.
    pub fn outlier(&self, case: &str) -> Option<Outlier> {
        let (windows, median) = (self.of(case)?, self.median()?);
        let is_far = windows > MANY || windows > median.saturating_mul(TIMES_THE_MEDIAN);
        is_far.then_some(Outlier { windows, median })
    }
}

impl Outlier {
    /// What is said of it before it begins, with what it is predicted to take if rates were measured. `can_overlap` is whether `--overlap`
    /// would make its windows fewer.
    pub fn line(self, case: &str, seconds: Option<f64>, can_overlap: bool) -> String {
        let Outlier { windows, median } = self;
        let of_others = match windows > median {
            true => format!(", where the median is {}", grouped(median as u64)),
            false => String::new(),
        };
        let takes = seconds.map(|seconds| format!(", about {}", duration(seconds))).unwrap_or_default();
        let way_out = match can_overlap {
            true => ", cut it to what is looked for, or look at fewer windows with --overlap 0.25",
            false => ", or cut it to what is looked for",
        };
        let windows = grouped(windows as u64);
        format!("{case} has {windows} windows{of_others}{takes}: check the spacing in its header{way_out}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[usize]) -> Windows {
        let mut windows = Windows::default();
        counts.iter().enumerate().for_each(|(number, count)| windows.add(&number.to_string(), *count));
        windows
    }

    #[test]
    fn a_case_is_called_out_by_the_median_or_by_its_number_of_windows() {
        let windows = of(&[8, 10, 12, 201, 200]);
        assert_eq!(windows.median(), Some(12));
        let windows = of(&[8, 10, 10, 12, 201, 9]);
        assert_eq!(windows.outlier("4"), Some(Outlier { windows: 201, median: 10 }));
        assert_eq!((windows.outlier("3"), windows.outlier("none")), (None, None));
        // Cases behind the third are as many as 22 times those before it on average.
        let behind = of(&[8, 10, 12, 201, 19]).behind("2");
        assert_eq!(behind, Some(22.0));
        assert_eq!((windows.behind("5"), windows.behind("none")), (Some(0.0), None));
        // Where all are large, each is said to be.
        let large = of(&[2001, 2001]);
        let line = large.outlier("0").map(|outlier| outlier.line("0", Some(7200.0), true));
        assert!(line.is_some_and(|line| {
            line.starts_with("0 has 2,001 windows, about 2 h: check") && line.ends_with("--overlap 0.25")
        }));
        let line = large.outlier("0").map(|outlier| outlier.line("0", None, false));
        assert!(line.is_some_and(|line| {
            line.starts_with("0 has 2,001 windows: check") && !line.contains("--overlap")
        }));
        assert_eq!(Windows::default().median(), None);
    }
}
