//! The parts of a job whose cases are divided among processes.
//!
//! Every part computes the same division from the same list of cases, so that processes need not talk to each other. Cases go, the one with
//! the most planned work first, to the part that has the least work so far (longest processing time first; Graham 1969): no part has more
//! than 4/3 of the work of the best division.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;
use std::str::FromStr;

use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};

use crate::context::Context;

/// The most parts of a job.
const MOST: u32 = 100_000;

/// One of the parts of a job, written as `2/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    number: u32,
    count: u32,
}

/// A text or two numbers that name no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no part: write I/N with I from 1 to N and N at most {MOST}, like 2/4")]
pub struct PartError {
    text: String,
}

impl Part {
    /// The part of a number, from 1, of a number of parts.
    ///
    /// # Errors
    /// Returns an error if there is no such part, or there are more than 100,000.
    pub fn new(number: usize, count: usize) -> Result<Part, PartError> {
        let no_part = || PartError { text: format!("{number}/{count}") };
        let [number, count] = [number, count].map(u32::try_from).map(Result::ok);
        let (number, count) = number.zip(count).ok_or_else(no_part)?;
        match (1..=count).contains(&number) && count <= MOST {
            true => Ok(Part { number, count }),
            false => Err(no_part()),
        }
    }

    /// The number of this part, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of parts.
    pub fn count(self) -> u32 {
        self.count
    }

    /// All parts of the job, in order.
    pub fn all(self) -> impl Iterator<Item = Part> {
        (1..=self.count).map(move |number| Part { number, count: self.count })
    }

    /// The name of a file of this part, without its ending.
    pub(crate) fn file_stem(self) -> String {
        format!("{}-of-{}", self.number, self.count)
    }

    /// The part that a file name begins with, as [`file_stem`](Self::file_stem) writes it.
    pub(crate) fn from_file_name(name: &str) -> Option<Part> {
        let (number, rest) = name.split_once("-of-")?;
        let count = rest.split('.').next()?;
        Part::new(number.parse().ok()?, count.parse().ok()?).ok()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Part, PartError> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        let (number, count) = numbers.ok_or_else(|| PartError { text: text.into() })?;
        Part::new(number, count)
    }
}

impl TryFrom<String> for Part {
    type Error = PartError;

    fn try_from(text: String) -> Result<Part, PartError> {
        text.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> String {
        part.to_string()
    }
}

/// A case of a job that is divided, and its planned work in any unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseWork<'a> {
    pub(crate) name: &'a str,
    pub(crate) work: u64,
}

/// The cases of one part.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) part: Part,
    /// The digest of the list that was divided: of the names and the work of all cases.
    pub(crate) list: Digest,
    cases: BTreeSet<String>,
}

/// The part of a job in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// The part.
    pub part: Part,
    /// The digest of the names and the planned work of all cases. Parts of one job agree on it.
    pub list: Digest,
}

impl Share {
    /// Divides a list of cases, and returns the cases of one part.
    pub(crate) fn new(part: Part, list: &[CaseWork<'_>]) -> Share {
        let mut digest = Digester::default();
        for CaseWork { name, work } in list {
            digest.update(&(name.len() as u64).to_le_bytes());
            digest.update(name.as_bytes());
            digest.update(&work.to_le_bytes());
        }
        let parts = parts_of_cases(list, part.count);
        let own = list.iter().zip(parts).filter(|(_, own)| *own == part.number);
        Share { part, list: digest.finish(), cases: own.map(|(case, _)| case.name.to_string()).collect() }
    }

    /// Returns `true` if a case belongs to the part.
    pub(crate) fn has(&self, case: &str) -> bool {
        self.cases.contains(case)
    }

    /// The entry of a record.
    pub(crate) fn record(&self) -> PartRecord {
        PartRecord { part: self.part, list: self.list }
    }

    /// Reports the number of cases.
    pub(crate) fn note(&self, list: &[CaseWork<'_>], context: &Context) {
        let all: u64 = list.iter().fold(0, |all, case| all.saturating_add(case.work));
        let own = list.iter().filter(|case| self.has(case.name)).map(|case| case.work);
        let share = own.fold(0, u64::saturating_add) as f64 / all.max(1) as f64;
        context.note(format_args!(
            "part {}: {} of {} cases, {:.0} % of the planned work",
            self.part,
            self.cases.len(),
            list.len(),
            100.0 * share
        ));
    }
}

/// The number of the part of each case, from 1.
fn parts_of_cases(list: &[CaseWork<'_>], count: u32) -> Vec<u32> {
    let mut order: Vec<(usize, &CaseWork<'_>)> = list.iter().enumerate().collect();
    // The sort is stable: cases of the same work keep the order of the list.
    order.sort_by_key(|(_, case)| Reverse(case.work));
    // The part with the least work first; of these the one with the fewest cases, then the first.
    let mut parts: BinaryHeap<Reverse<(u64, usize, u32)>> =
        (1..=count).map(|number| Reverse((0, 0, number))).collect();
    let mut found = vec![1; list.len()];
    for (place, case) in order {
        if let (Some(Reverse((work, cases, number))), Some(found)) = (parts.pop(), found.get_mut(place)) {
            *found = number;
            parts.push(Reverse((work.saturating_add(case.work), cases + 1, number)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_is_read_as_it_is_written_and_nothing_else_is_a_part() {
        for text in ["1/1", "2/4", "100000/100000"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for text in ["", "2", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1/100001", "1/99999999999"] {
            let error = text.parse::<Part>().unwrap_err();
            assert!(error.to_string().contains("is no part: write I/N"), "{error}");
        }
        assert_eq!(Part::from_file_name("2-of-4.json"), Part::new(2, 4).ok());
        assert_eq!(Part::from_file_name("2-of-4.cases.jsonl"), Part::new(2, 4).ok());
        assert_eq!(Part::from_file_name("lock"), None);
    }

    #[test]
    fn the_largest_cases_are_apart_and_cases_without_work_are_spread() {
        let list = [("a", 3), ("b", 9), ("c", 5), ("d", 5)].map(|(name, work)| CaseWork { name, work });
        assert_eq!(parts_of_cases(&list, 2), [1, 1, 2, 2]);
        let empty = ["a", "b", "c", "d"].map(|name| CaseWork { name, work: 0 });
        assert_eq!(parts_of_cases(&empty, 4), [1, 2, 3, 4]);
        assert!(Share::new(Part::new(3, 3).unwrap(), &list[..2]).cases.is_empty(), "more parts than cases");
    }

    proptest! {
        #[test]
        fn each_case_is_in_one_part_and_no_part_has_much_more_work_than_its_share(
            works in proptest::collection::vec(0u64..1000, 0..60),
            count in 1usize..9,
        ) {
            let names: Vec<String> = (0..works.len()).map(|number| format!("case_{number:02}")).collect();
            let list: Vec<CaseWork<'_>> =
                names.iter().zip(&works).map(|(name, work)| CaseWork { name, work: *work }).collect();
            let shares: Vec<Share> =
                (1..=count).map(|number| Share::new(Part::new(number, count).unwrap(), &list)).collect();
            for case in &list {
                prop_assert_eq!(shares.iter().filter(|share| share.has(case.name)).count(), 1);
            }
            let loads = shares.iter().map(|share| {
                list.iter().filter(|case| share.has(case.name)).map(|case| case.work).sum::<u64>()
            });
            // List scheduling: the mean, and at most one case more.
            let bound = works.iter().sum::<u64>() / count as u64 + works.iter().copied().max().unwrap_or(0);
            prop_assert!(loads.max().unwrap_or(0) <= bound);
        }
    }
}
