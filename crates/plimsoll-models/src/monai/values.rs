//! Values of a bundle's configuration, with its references followed.
//!
//! In bundles a text that begins with `@` refers to another entry, and one that begins with `$` is Python. References are followed; of
//! Python, only literals are read. Everything else is refused, and the error quotes it.

use std::cell::Cell;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::MonaiError;

/// The deepest nesting of values and references, more than any real configuration has.
const MOST_DEPTH: usize = 24;
/// The most bytes of JSON that references may repeat: a few lines could otherwise refer to each other until they fill any memory.
pub(super) const MOST_REPEATED: usize = 16 << 10;
/// The cost of a non-empty object beside its entries: it allocates room for eleven at once.
const OBJECT: usize = 5;

/// A configuration.
pub(super) struct Values<'a> {
    pub(super) path: &'a Path,
    pub(super) root: &'a Map<String, Value>,
    /// The remaining bytes for values that are made of it.
    left: Cell<usize>,
}

impl<'a> Values<'a> {
    /// The values of a file of `length` bytes, which together may have as many bytes and a little more.
    pub(super) fn new(path: &'a Path, root: &'a Map<String, Value>, length: usize) -> Values<'a> {
        Values { path, root, left: Cell::new(length.saturating_add(MOST_REPEATED)) }
    }

    /// The value of a key at the top, with its references followed; `None` without such a key.
    pub(super) fn get(&self, key: &str) -> Result<Option<Value>, MonaiError> {
        self.root.get(key).map(|value| self.resolved(value, key, MOST_DEPTH)).transpose()
    }

    /// The value of a key, which must be there.
    pub(super) fn need(&self, key: &str) -> Result<Value, MonaiError> {
        self.get(key)?.ok_or_else(|| self.refuse(format!("there is no `{key}`")))
    }

    pub(super) fn refuse(&self, why: String) -> MonaiError {
        MonaiError::refuse(self.path, why)
    }

    /// Counts bytes of a value that is made.
    fn count(&self, bytes: usize, key: &str) -> Result<(), MonaiError> {
        let left = self.left.get().checked_sub(bytes);
        let too_many = || self.refuse(format!("`{key}` has too many or too long values"));
        self.left.set(left.ok_or_else(too_many)?);
        Ok(())
    }

    /// Returns `true` if a component is disabled, by MONAI's rules for truth.
    fn is_disabled(&self, value: &Value, key: &str, depth: usize) -> Result<bool, MonaiError> {
        let Some(said) = value.get(DISABLED) else { return Ok(false) };
        match self.resolved(said, &format!("{key}.{DISABLED}"), depth)? {
            Value::Bool(is_disabled) => Ok(is_disabled),
            Value::String(text) => Ok(text.trim().eq_ignore_ascii_case("true")),
            Value::Null => Ok(false),
            _ => Err(self.refuse(format!("`{key}.{DISABLED}` is not true or false"))),
        }
    }

    fn resolved(&self, value: &Value, key: &str, depth: usize) -> Result<Value, MonaiError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.refuse(format!("`{key}` refers to itself, or is nested too deep")));
        };
        self.count(1 + value.as_str().map_or(0, str::len), key)?;
        match value {
            Value::String(text) => match (text.strip_prefix('@'), text.strip_prefix('$')) {
                (Some(place), _) => {
                    let found = self.at(place);
                    let found = found.ok_or_else(|| {
                        self.refuse(format!("`{key}` refers to `{text}`, which does not exist"))
                    })?;
                    self.resolved(found, key, depth)
                }
                (_, Some(python)) => literal(python).ok_or_else(|| {
                    self.refuse(format!("`{key}` is the expression `{text}`, which is not executed"))
                }),
                _ if text.starts_with('%') => {
                    Err(self.refuse(format!("`{key}` is the macro `{text}`, which is not expanded")))
                }
                _ => Ok(value.clone()),
            },
            Value::Array(items) => {
                let mut resolved = Vec::new();
                for (place, item) in items.iter().enumerate() {
                    let key = format!("{key}[{place}]");
                    if !self.is_disabled(item, &key, depth)? {
                        resolved.push(self.resolved(item, &key, depth)?);
                    }
                }
                Ok(Value::Array(resolved))
            }
            // MONAI has nothing in the place of a component that is disabled, and its arguments may be what cannot be read.
            Value::Object(_) if self.is_disabled(value, key, depth)? => Ok(Value::Null),
            Value::Object(entries) => {
                self.count(if entries.is_empty() { 0 } else { OBJECT }, key)?;
                // Entries that are not evaluated are not read: folders, devices, handlers.
                let entry = |(name, value): (&String, &Value)| {
                    self.count(1 + name.len(), key)?;
                    let value = match NOT_EVALUATED.contains(&name.as_str()) {
                        true => Value::Null,
                        false => self.resolved(value, &format!("{key}.{name}"), depth)?,
                    };
                    Ok((name.clone(), value))
                };
                let said = entries.iter().filter(|(name, _)| *name != DISABLED);
                said.map(entry).collect::<Result<_, _>>().map(Value::Object)
            }
            _ => Ok(value.clone()),
        }
    }

    /// The value at a path like `preprocessing::transforms::2` or `preprocessing#transforms#2`.
    fn at(&self, place: &str) -> Option<&Value> {
        let place = place.replace("::", "#");
        let mut parts = place.split('#');
        let first = self.root.get(parts.next()?)?;
        parts.try_fold(first, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            Value::Object(entries) => entries.get(part),
            _ => None,
        })
    }
}

/// The argument with which a component is left out.
const DISABLED: &str = "_disabled_";

/// Arguments that say where something is put or what it runs on, which is decided elsewhere here; and what a transform inverts, of which
/// there is but one.
const NOT_EVALUATED: [&str; 15] = [
    "output_dir",
    "output_postfix",
    "output_ext",
    "output_dtype",
    "resample",
    "squeeze_end_dims",
    "separate_folder",
    "meta_keys",
    "orig_meta_keys",
    "orig_keys",
    "meta_key_postfix",
    "transform",
    "device",
    "sw_device",
    "print_log",
];

/// A literal of Python: a number, a truth value, `None`, or a list of such.
fn literal(text: &str) -> Option<Value> {
    let text = text.trim();
    match text {
        "True" => return Some(Value::Bool(true)),
        "False" => return Some(Value::Bool(false)),
        "None" => return Some(Value::Null),
        _ => {}
    }
    // A list of numbers, or a tuple.
    let is_number = |character: char| character.is_ascii_digit() || "+-.eE, ".contains(character);
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.or_else(|| text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')));
    let number = |text: &str| serde_json::from_str::<serde_json::Number>(text.trim()).ok().map(Value::Number);
    match inside {
        Some(inside) if inside.chars().all(is_number) => {
            inside.split(',').map(number).collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        Some(_) => None,
        None => number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Value, String> {
        let root: Map<String, Value> = serde_json::from_str(text).unwrap();
        let values = Values::new(Path::new("inference.json"), &root, text.len());
        values.need("a").map_err(|error| error.to_string())
    }

    #[test]
    fn references_are_followed_and_literals_read() {
        let text = r#"{"a": {"x": "@b", "y": ["@c::1", "$(1.5, 2)", "$True"], "device": "$torch.device('cuda')"},
                       "b": "@c#0", "c": [7, {"z": "$None"}]}"#;
        let expected = serde_json::json!({"x": 7, "y": [{"z": null}, [1.5, 2], true], "device": null});
        assert_eq!(values(text), Ok(expected));
    }

    #[test]
    fn python_macros_and_endless_references_are_refused_with_what_stands_there() {
        for (text, says) in [
            (r#"{"a": "$__import__('os').system('x')"}"#, "$__import__"),
            (r#"{"a": {"b": ["$monai.x()"]}}"#, "`a.b[0]` is the expression `$monai.x()`"),
            (r#"{"a": "%other.json::b"}"#, "the macro"),
            (r#"{"a": "@b", "b": "@a"}"#, "refers to itself"),
            (r#"{"a": "@b::c::7", "b": {"c": [1]}}"#, "which does not exist"),
        ] {
            let error = values(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        // Ten references to ten references, and so on.
        let mut text = String::from(r#"{"a": "@l0", "#);
        for level in 0..9 {
            let next = format!("\"@l{}\"", level + 1);
            text.push_str(&format!("\"l{level}\": [{}], ", vec![next; 10].join(",")));
        }
        text.push_str(r#""l9": 1}"#);
        assert!(values(&text).unwrap_err().contains("too many or too long values"));
    }

    #[test]
    fn texts_and_names_that_references_repeat_count_with_all_their_bytes() {
        let long = "x".repeat(4096);
        let thrice = |what: &str| format!(r#"{{"a": ["@b", "@b", "@b"], "b": {what}}}"#);
        let often = |what: &str| format!(r#"{{"a": [{}], "b": {what}}}"#, ["\"@b\""; 12].join(","));
        for what in [format!("\"{long}\""), format!(r#"{{"{long}": 1}}"#)] {
            assert!(values(&thrice(&what)).is_ok());
            assert!(values(&often(&what)).unwrap_err().contains("too long values"));
        }
    }

    #[test]
    fn what_is_disabled_is_left_out_whatever_its_arguments_are() {
        let text = r#"{"a": [{"_target_": "X", "_disabled_": true, "x": "$os.remove('x')"},
                              {"_target_": "Y", "_disabled_": "@no", "y": 1},
                              {"_target_": "Z", "_disabled_": "$True", "z": "@nowhere"},
                              {"_target_": "U", "_disabled_": " True"}], "no": false}"#;
        assert_eq!(values(text), Ok(serde_json::json!([{"_target_": "Y", "y": 1}])));
        let error = values(r#"{"a": [{"_disabled_": [1]}]}"#).unwrap_err();
        assert!(error.contains("`a[0]._disabled_` is not true or false"), "{error}");
    }
}
