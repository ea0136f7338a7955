//! The classes of the labels of a table.

use std::collections::BTreeSet;
use std::path::Path;

use super::DatasetError;

/// More values than this are no classes.
const MOST_CLASSES: u64 = 1000;

/// A label as it is in the table: a whole number, also if it is written like 2.0, or a word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Number(i64),
    Word(String),
}

impl Label {
    pub(super) fn parse(text: &str) -> Label {
        let whole = text.parse().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64)
        });
        whole.map_or_else(|| Label::Word(text.into()), Label::Number)
    }

    pub(super) fn name(&self) -> String {
        match self {
            Label::Number(number) => number.to_string(),
            Label::Word(word) => word.clone(),
        }
    }
}

/// Distinct labels, and the facts needed to name the first that does not fit.
#[derive(Debug, Default)]
pub(super) struct Seen {
    values: BTreeSet<Label>,
    numbers: usize,
    first_word: Option<(u64, String)>,
}

impl Seen {
    pub(super) fn add(&mut self, line: u64, label: Label, path: &Path) -> Result<(), DatasetError> {
        match &label {
            Label::Number(_) => self.numbers += 1,
            Label::Word(word) => {
                self.first_word.get_or_insert_with(|| (line, word.clone()));
            }
        }
        self.values.insert(label);
        match self.values.len() as u64 {
            found if found > MOST_CLASSES => {
                Err(DatasetError::TooManyClasses { path: path.into(), found, most: MOST_CLASSES })
            }
            _ => Ok(()),
        }
    }

    /// The names of the classes, in order: words by their letters; whole numbers from the smallest (at most 0) to the largest,
    /// also those that no case has, so that a grade without images is noticed.
    pub(super) fn classes(self, path: &Path) -> Result<Vec<String>, DatasetError> {
        if let Some((line, label)) = self.first_word {
            if self.numbers > 0 {
                let (path, numbers) = (path.to_path_buf(), self.numbers);
                return Err(DatasetError::MixedLabels { path, line, label, numbers });
            }
            return Ok(self.values.iter().map(Label::name).collect());
        }
        let numbers = || {
            self.values.iter().filter_map(|label| match label {
                Label::Number(number) => Some(*number),
                Label::Word(_) => None,
            })
        };
        let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else { return Ok(Vec::new()) };
        // Grades begin with 0 or 1.
        let first = if first > 1 { 0 } else { first };
        let found = last.abs_diff(first).saturating_add(1);
        if found > MOST_CLASSES {
            return Err(DatasetError::TooManyClasses { path: path.into(), found, most: MOST_CLASSES });
        }
        Ok((first..=last).map(|number| number.to_string()).collect())
    }
}
