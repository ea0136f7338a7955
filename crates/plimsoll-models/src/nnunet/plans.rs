//! `plans.json`: configurations, some of which take over what another one says.

use std::path::{Component, Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::NnUnetError;
use super::entry::Entry;
use crate::ModelError;

/// The most bytes of a JSON file of a model: a data set's description may list all of its cases.
const LARGEST: u64 = 8 << 20;
/// The memory for a byte of JSON. The worst text is `{"":{"":…}}`, where each object is a node of a tree with room for eleven entries, 632
/// bytes for five of the text; the text itself is reserved separately.
const BYTE: u64 = 136;
/// The most configurations that take over from each other, in a chain: nnU-Net's own are two or three.
const MOST_INHERITED: usize = 64;

/// A value that was read from a JSON file, and the room that it takes.
pub(super) struct Described<T> {
    pub(super) path: PathBuf,
    pub(super) value: T,
    _held: Reservation,
}

/// Reads a JSON file of a model; what it takes is reserved before.
pub(super) fn read<T: DeserializeOwned>(path: PathBuf, budget: &Budget) -> Result<Described<T>, ModelError> {
    let length = plimsoll_disk::metadata(&path).map_err(|source| ModelError::io(&path, source))?.len();
    let held = budget.reserve("the description of a model", Bytes(length.min(LARGEST).saturating_mul(BYTE)));
    let _held = held.map_err(|source| NnUnetError::OverBudget { path: path.clone(), source })?;
    let value = plimsoll_run::read_json(&path, LARGEST)?;
    Ok(Described { path, value, _held })
}

/// `plans.json`
pub(super) struct Plans(Described<Value>);

impl Plans {
    pub(super) const FILE: &str = "plans.json";

    pub(super) fn read(folder: &Path, budget: &Budget) -> Result<Plans, ModelError> {
        Ok(Plans(read(folder.join(Plans::FILE), budget)?))
    }

    /// The contents of the file.
    pub(super) fn root(&self) -> Entry<'_> {
        Entry::new(&self.0.path, "", &self.0.value)
    }

    /// A configuration, with all that it inherits.
    ///
    /// # Errors
    /// Returns an error if it is not there, inherits from itself, or is the first of more than [`MOST_INHERITED`] that inherit from each
    /// other.
    pub(super) fn configuration(&self, name: &str) -> Result<Configuration<'_>, NnUnetError> {
        let all = self.root().need("configurations")?;
        let mut of = Configuration { path: all.path(), name: name.into(), chain: Vec::new() };
        let (mut visited, mut next) = (Vec::new(), name.to_string());
        loop {
            visited.push(next.clone());
            let own = all.need(&next)?;
            let Some(object) = own.value().as_object() else {
                return Err(own.refuse("it must have entries of names"));
            };
            of.chain.push(object);
            let Some(parent) = own.get("inherits_from")? else { return Ok(of) };
            next = parent.text()?.into();
            if visited.contains(&next) {
                visited.push(next);
                return Err(
                    parent.refuse(format!("configurations inherit in a circle: {}", visited.join(", ")))
                );
            }
            if visited.len() >= MOST_INHERITED {
                return Err(parent
                    .refuse(format!("more than {MOST_INHERITED} configurations inherit from each other")));
            }
        }
    }

    /// The configuration whose labels another one takes, by its name, which is part of names of folders.
    ///
    /// # Errors
    /// Returns an error if it is none of the configurations, or its name leads to another folder.
    pub(super) fn previous(&self, of: &Configuration<'_>) -> Result<Option<String>, NnUnetError> {
        let Some(entry) = of.get("previous_stage") else { return Ok(None) };
        let name = entry.text()?;
        let mut parts = Path::new(name).components();
        let is_plain =
            matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name);
        let all = self.root().need("configurations")?;
        let is_there = all.value().as_object().is_some_and(|all| all.contains_key(name));
        match is_plain && is_there {
            true => Ok(Some(name.into())),
            false => Err(entry.refuse("it must be the name of one of the configurations, and of a folder")),
        }
    }
}

/// A configuration: its own entries and behind them those that it inherits.
pub(super) struct Configuration<'a> {
    path: &'a Path,
    pub(super) name: String,
    chain: Vec<&'a Map<String, Value>>,
}

impl<'a> Configuration<'a> {
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// The keys that lead to an entry.
    pub(super) fn key(&self, name: &str) -> String {
        format!("configurations.{}.{name}", self.name)
    }

    /// An entry, unless it is null. The entry of a configuration precedes the entries of the configurations that it inherits.
    pub(super) fn get(&self, name: &str) -> Option<Entry<'a>> {
        let value = self.chain.iter().find_map(|own| own.get(name)).filter(|value| !value.is_null())?;
        Some(Entry::new(self.path, self.key(name), value))
    }

    pub(super) fn need(&self, name: &str) -> Result<Entry<'a>, NnUnetError> {
        let missing = || NnUnetError::Missing { path: self.path.into(), key: self.key(name) };
        self.get(name).ok_or_else(missing)
    }

    /// The name of something of which only some are known.
    pub(super) fn known(
        &self,
        key: &str,
        what: &'static str,
        known: &[&str],
    ) -> Result<&'a str, NnUnetError> {
        one_of(&self.need(key)?, what, known)
    }
}

/// The text of an entry, if it is one of those that are known.
pub(super) fn one_of<'a>(
    entry: &Entry<'a>,
    what: &'static str,
    known: &[&str],
) -> Result<&'a str, NnUnetError> {
    let name = entry.text()?;
    if known.contains(&name) {
        return Ok(name);
    }
    let known = known.join(", ");
    Err(NnUnetError::Unknown { path: entry.path().into(), what, name: name.into(), known })
}
