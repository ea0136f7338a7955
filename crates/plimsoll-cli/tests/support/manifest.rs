//! A reader of simple YAML, and the faults of a manifest by the schema of its resource.

use serde_json::{Map, Value};

/// Reads mappings in blocks, with lists of one line each, and values as JSON or as plain text.
pub fn read(yaml: &str) -> Value {
    let lines: Vec<&str> =
        yaml.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')).collect();
    block(&mut lines.as_slice(), 0)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn scalar(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

/// Reads the lines that are indented by as much as the next.
fn block(lines: &mut &[&str], least: usize) -> Value {
    let depth = lines.first().map_or(least, |line| indent(line));
    let (mut map, mut list) = (Map::new(), Vec::new());
    while let Some((line, rest)) = lines.split_first() {
        if indent(line) < depth {
            break;
        }
        assert_eq!(indent(line), depth, "{line}");
        *lines = rest;
        if let Some(item) = line.trim().strip_prefix("- ") {
            list.push(scalar(item));
            continue;
        }
        let (key, value) = line.trim().split_once(':').unwrap();
        let is_deeper = lines.first().is_some_and(|next| indent(next) > depth);
        let value = match value.trim() {
            "" if is_deeper => block(lines, depth + 1),
            text => scalar(text),
        };
        assert!(map.insert(key.into(), value).is_none(), "{key} stands twice");
    }
    if list.is_empty() { Value::Object(map) } else { Value::Array(list) }
}

/// The pattern of quantities, such as `544Mi`, in definitions of resources.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The rules in CEL that can be checked.
const RULES: [&str; 4] = [
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "size(self.metadata.name) <= 63",
    "self >= 1",
    // Of changes; a manifest that is new has none.
    "self == oldSelf",
];

/// Returns the faults of a manifest by a schema, which has only words that are known here.
pub fn faults(value: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(value, schema, "", &mut faults);
    faults
}

fn check(value: &Value, schema: &Value, path: &str, faults: &mut Vec<String>) {
    assert!(schema["left_out"].is_null(), "{path}: the schema of a field that a manifest has is left out");
    let is_number_or_text = schema["x-kubernetes-int-or-string"] == true;
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        None if is_number_or_text => value.is_i64() || value.is_string(),
        other => panic!("{path}: a type that is not known, {other:?}"),
    };
    if !is_of_type {
        faults.push(format!("{path} is no {}: {value}", schema["type"].as_str().unwrap_or("number or text")));
        return;
    }
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value[name].is_null() {
            faults.push(format!("{path} has no {name}"));
        }
    }
    if let Some(fields) = value.as_object() {
        for (name, field) in fields {
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (of_field @ Value::Object(_), _) | (Value::Null, of_field @ Value::Object(_)) => {
                    check(field, of_field, &below(name), faults);
                }
                // The contents of metadata are another schema's.
                (Value::Null, _) if path == "metadata" => {}
                _ => faults.push(format!("{} is unknown", below(name))),
            }
        }
    }
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], &format!("{path}[{place}]"), faults);
    }
    let most = |key: &str, found: Option<usize>| {
        found.zip(schema[key].as_u64()).is_some_and(|(found, most)| found as u64 > most)
    };
    if most("maxLength", value.as_str().map(str::len)) || most("maxItems", value.as_array().map(Vec::len)) {
        faults.push(format!("{path} is too long"));
    }
    if let Some(least) =
        schema["minimum"].as_i64().filter(|least| value.as_i64().is_some_and(|found| found < *least))
    {
        faults.push(format!("{path} is below {least}"));
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
        assert_eq!(pattern, QUANTITY, "{path}: a pattern that is not known");
        if !is_quantity(text) {
            faults.push(format!("{path} is no quantity: {text}"));
        }
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        rules(value, rule["rule"].as_str().unwrap(), path, faults);
    }
}

/// Checks a quantity without fractions, signs and exponents, which no manifest of ours has.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let is_unit =
        unit.is_empty() || "n u m k M G T P E Ki Mi Gi Ti Pi Ei".split(' ').any(|known| known == unit);
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) && is_unit
}

fn rules(value: &Value, rule: &str, path: &str, faults: &mut Vec<String>) {
    let place = RULES.iter().position(|known| *known == rule);
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let is_kept = match place {
        Some(0) => {
            let is_inner =
                |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
            name.starts_with(|letter: char| letter.is_ascii_lowercase())
                && !name.ends_with('-')
                && name.bytes().all(is_inner)
        }
        Some(1) => name.len() <= 63,
        Some(2) => value.as_i64().is_some_and(|number| number >= 1),
        Some(_) => true,
        None => panic!("{path}: a rule that is not known, {rule}"),
    };
    if !is_kept {
        let (path, value) =
            if place < Some(2) { ("metadata.name", name.into()) } else { (path, value.to_string()) };
        faults.push(format!("{path} is {value}"));
    }
}
