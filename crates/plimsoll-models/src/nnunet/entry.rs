//! Entries of JSON files that know where they stand, so that every error names the file and the key.

use std::fmt::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::NnUnetError;

/// The most letters of a value in an error.
const MOST_SHOWN: usize = 60;
/// The most entries of a list that is looked into: more than stages, channels or labels that a network can have.
const MOST_LISTED: usize = 4096;

/// The first characters of a text, which may itself be longer than there is room for.
struct Beginning {
    text: String,
    left: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(character);
        }
        Ok(())
    }
}

/// A value of a JSON file.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    path: &'a Path,
    key: String,
    value: &'a Value,
}

impl<'a> Entry<'a> {
    /// A value of a file, by the keys that lead to it.
    pub(super) fn new(path: &'a Path, key: impl Into<String>, value: &'a Value) -> Entry<'a> {
        Entry { path, key: key.into(), value }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// An error about this value.
    pub(super) fn refuse(&self, expected: impl Into<String>) -> NnUnetError {
        let mut shown = Beginning { text: String::new(), left: MOST_SHOWN };
        let is_cut = write!(shown, "{}", self.value).is_err();
        let mut found = shown.text;
        if is_cut {
            found.push('…');
        }
        NnUnetError::Value { path: self.path.into(), key: self.key.clone(), found, expected: expected.into() }
    }

    /// The entry of a name, unless it is null.
    pub(super) fn get(&self, name: &str) -> Result<Option<Entry<'a>>, NnUnetError> {
        let Some(object) = self.value.as_object() else {
            return Err(self.refuse("it must have entries of names"));
        };
        let found = object.get(name).filter(|value| !value.is_null());
        Ok(found.map(|value| Entry { path: self.path, key: self.below(name), value }))
    }

    /// The required entry of a name.
    pub(super) fn need(&self, name: &str) -> Result<Entry<'a>, NnUnetError> {
        let missing = || NnUnetError::Missing { path: self.path.into(), key: self.below(name) };
        self.get(name)?.ok_or_else(missing)
    }

    fn below(&self, name: &str) -> String {
        if self.key.is_empty() { name.into() } else { format!("{}.{name}", self.key) }
    }

    pub(super) fn text(&self) -> Result<&'a str, NnUnetError> {
        self.value.as_str().ok_or_else(|| self.refuse("it must be a text"))
    }

    pub(super) fn truth(&self) -> Result<bool, NnUnetError> {
        self.value.as_bool().ok_or_else(|| self.refuse("it must be true or false"))
    }

    pub(super) fn number(&self) -> Result<f64, NnUnetError> {
        let number = self.value.as_f64().filter(|number| number.is_finite());
        number.ok_or_else(|| self.refuse("it must be a number"))
    }

    /// A whole number within bounds, which may be written as a fraction of nothing: `2.0`.
    pub(super) fn whole(&self, least: usize, most: usize) -> Result<usize, NnUnetError> {
        let number = self.value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
        let found = number.map(|number| number as u64).and_then(|number| usize::try_from(number).ok());
        found
            .filter(|found| (least..=most).contains(found))
            .ok_or_else(|| self.refuse(format!("it must be a whole number from {least} to {most}")))
    }

    /// The entries of a list.
    pub(super) fn list(&self) -> Result<Vec<Entry<'a>>, NnUnetError> {
        let list = self.value.as_array().ok_or_else(|| self.refuse("it must be a list"))?;
        if list.len() > MOST_LISTED {
            return Err(
                self.refuse(format!("it must be a list of at most {MOST_LISTED}, not of {}", list.len()))
            );
        }
        let item = |(place, value)| Entry { path: self.path, key: format!("{}[{place}]", self.key), value };
        Ok(list.iter().enumerate().map(item).collect())
    }

    /// A list of exactly `count` entries.
    pub(super) fn list_of(&self, count: usize) -> Result<Vec<Entry<'a>>, NnUnetError> {
        let list = self.list()?;
        if list.len() == count { Ok(list) } else { Err(self.refuse(format!("it must be a list of {count}"))) }
    }

    /// A list of `count` whole numbers, or one number for all.
    pub(super) fn wholes(&self, count: usize, least: usize, most: usize) -> Result<Vec<usize>, NnUnetError> {
        if self.value.is_number() {
            return Ok(vec![self.whole(least, most)?; count]);
        }
        self.list_of(count)?.iter().map(|item| item.whole(least, most)).collect()
    }
}
