//! The name of the argument of a job that has a value of a wrong type.

use serde_json::Error;

use super::arguments::without_place;

/// Types of Rust in messages of serde, and how Python names them.
const TYPES: [(&str, &str); 6] = [
    ("expected usize", "expected a whole number from 0"),
    ("expected u64", "expected a whole number from 0"),
    ("expected u32", "expected a whole number from 0"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected f64", "expected a number"),
    ("expected a boolean", "expected True or False"),
];

/// Words an error of arguments, with the name of the argument, which serde leaves out where a value has a wrong type.
pub(super) fn message(arguments: &str, error: &Error) -> String {
    let mut text = without_place(error);
    for (rust, python) in TYPES {
        text = text.replace(rust, python);
    }
    let is_named =
        ["unknown field", "missing field", "duplicate field"].iter().any(|how| text.starts_with(how));
    // The arguments are written on one line.
    match key_before(arguments, error.column()).filter(|_| !is_named && error.line() == 1) {
        Some(key) if !text.starts_with(&key) => format!("{key} is invalid: {text}"),
        _ => text,
    }
}

/// The key whose value contains or precedes a column of a JSON text, counted in bytes from 1; `None` if there is none.
fn key_before(text: &str, column: usize) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut key, mut at) = (None, 0);
    while at < column.min(bytes.len()) {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let start = at;
        at += 1;
        while at < bytes.len() && bytes[at] != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        at += 1;
        // Python's `json.dumps` writes a space behind the colon, and none before it.
        if bytes.get(at) == Some(&b':') {
            key = text.get(start..at);
        }
    }
    serde_json::from_str(key?).ok()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only errors are of interest")]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        first: String,
        count: usize,
        machine: Machine,
        sizes: [usize; 2],
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only errors are of interest")]
    struct Machine {
        threads: Option<u64>,
        warm: bool,
    }

    fn error(count: &str, machine: &str, sizes: &str) -> String {
        let text =
            format!(r#"{{"first": "a\": b\\", "count": {count}, "machine": {machine}, "sizes": {sizes}}}"#);
        message(&text, &serde_json::from_str::<Arguments>(&text).unwrap_err())
    }

    #[test]
    fn a_value_of_a_wrong_type_is_named_by_its_innermost_key() {
        let machine = r#"{"threads": 2, "warm": true}"#;
        assert_eq!(
            error("\"two\"", machine, "[1, 2]"),
            "count is invalid: invalid type: string \"two\", expected a whole number from 0"
        );
        assert!(error("-1", machine, "[1, 2]").starts_with("count is invalid: invalid value"));
        let found = error("1", r#"{"threads": "count", "warm": true}"#, "[1, 2]");
        assert!(found.starts_with("threads is invalid: invalid type: string \"count\""), "{found}");
        let found = error("1", r#"{"threads": null, "warm": "no"}"#, "[1, 2]");
        assert!(found.starts_with("warm is invalid") && found.ends_with("expected True or False"), "{found}");
        assert!(error("1", machine, "[1, 2.5]").starts_with("sizes is invalid"));
    }

    #[test]
    fn messages_that_name_a_key_stay() {
        let text = r#"{"first": "", "odd": 1}"#;
        let found = message(text, &serde_json::from_str::<Arguments>(text).unwrap_err());
        assert!(found.starts_with("unknown field `odd`"), "{found}");
        let text = r#"{"first": ""}"#;
        let found = message(text, &serde_json::from_str::<Arguments>(text).unwrap_err());
        assert!(found.starts_with("missing field `count`"), "{found}");
    }
}
