//! Reading the fields of a record one by one, so that an error names the field that has a fault.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// A field of a record that is missing, or has another content than a prediction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The place of the field, like `cases[2].windows`.
    pub(super) field: String,
    /// The fault of it.
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(field: &str, reason: impl ToString) -> Fault {
        Fault { field: field.into(), reason: reason.to_string() }
    }

    pub(super) fn missing(field: &str) -> Fault {
        Fault::new(field, "is missing")
    }

    /// The fault of a field inside of another one.
    pub(super) fn within(mut self, outer: &str) -> Fault {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// Takes a field out of an object.
pub(super) fn take<T: DeserializeOwned>(object: &mut Object, name: &str) -> Result<T, Fault> {
    let value = object.remove(name).ok_or_else(|| Fault::missing(name))?;
    serde_json::from_value(value).map_err(|why| Fault::new(name, format!("has a fault: {why}")))
}

/// Takes a field out of an object; `None` if the object has no such field.
pub(super) fn take_if_there<T: DeserializeOwned>(
    object: &mut Object,
    name: &str,
) -> Result<Option<T>, Fault> {
    match object.contains_key(name) {
        true => take(object, name).map(Some),
        false => Ok(None),
    }
}

/// Takes a list of objects out of an object.
pub(super) fn take_list<T>(
    object: &mut Object,
    name: &str,
    read: impl Fn(Object) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let list: Vec<Value> = take(object, name)?;
    let read = |(place, value)| {
        let place = format!("{name}[{place}]");
        match value {
            Value::Object(entry) => read(entry).map_err(|fault| fault.within(&place)),
            _ => Err(Fault::new(&place, "is no object")),
        }
    };
    list.into_iter().enumerate().map(read).collect()
}

/// Checks that a field of an object can be read as a type.
pub(super) fn expect<'a, T: Deserialize<'a>>(object: &'a Object, name: &str) -> Result<T, Fault> {
    let value = object.get(name).ok_or_else(|| Fault::missing(name))?;
    T::deserialize(value).map_err(|why| Fault::new(name, format!("has a fault: {why}")))
}
