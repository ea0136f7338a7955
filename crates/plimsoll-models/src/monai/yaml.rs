//! Configurations in YAML, as values of JSON.
//!
//! MONAI reads them with PyYAML, so that plain scalars have the types of YAML 1.1 as PyYAML resolves them: `yes` is true, `010` is 8, and
//! `1e-3` is a text because it has no point. Aliases and tags are refused: an alias can make a short file fill any memory, and a tag can name
//! a class of Python.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::{Map, Number, Value};

/// The deepest nesting that is read, as of JSON.
const MOST_DEPTH: usize = 128;

/// Reads the one document of a text, which must be a mapping.
///
/// # Errors
/// Returns an error if the text is not YAML, has aliases, tags, duplicate or nested keys or a second document, is nested too deep, or is
/// no mapping. The message names the line.
pub(super) fn read(text: &str) -> Result<Map<String, Value>, String> {
    let mut events = Events { parser: Parser::new_from_str(text) };
    let mut root = None;
    loop {
        match events.next()? {
            (Event::StreamEnd, _) => break,
            (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
            (_, span) if root.is_some() => return Err(at(span, "there is a second document")),
            (event, span) => root = Some(events.value(event, span, MOST_DEPTH)?),
        }
    }
    match root {
        Some(Value::Object(entries)) => Ok(entries),
        Some(_) => Err("the document is not a mapping of names to values".into()),
        None => Err("there is no document".into()),
    }
}

/// A message about a line.
fn at(span: Span, why: impl std::fmt::Display) -> String {
    format!("line {}: {why}", span.start.line())
}

struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        let wrong =
            |error: ScanError| format!("line {}: {}", error.marker().line(), error.info().replace('\n', " "));
        self.parser.next_event().ok_or("the text ends within a value")?.map_err(wrong)
    }

    /// The value that begins with an event.
    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value, String> {
        let depth = depth.checked_sub(1).ok_or_else(|| at(span, "values are nested too deeply"))?;
        match event {
            Event::Scalar(text, style, _, None) => match style {
                ScalarStyle::Plain => plain(&text).map_err(|why| at(span, why)),
                _ => Ok(Value::String(text.into_owned())),
            },
            Event::SequenceStart(_, None) => self.sequence(depth),
            Event::MappingStart(_, None) => self.mapping(depth),
            Event::Scalar(.., Some(tag))
            | Event::SequenceStart(_, Some(tag))
            | Event::MappingStart(_, Some(tag)) => Err(at(span, format!("the tag `{tag}` is not supported"))),
            Event::Alias(_) => {
                Err(at(span, "aliases are not supported; repeat the value, or refer to it with `@`"))
            }
            _ => Err(at(span, "a value is missing")),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, span) => items.push(self.value(event, span, depth)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let mut entries = Map::new();
        loop {
            let (key, span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Object(entries)),
                (Event::Scalar(key, _, _, None), span) => (key.into_owned(), span),
                (Event::Alias(_), span) => {
                    return Err(at(span, "aliases are not supported; repeat the name"));
                }
                (_, span) => return Err(at(span, "a name must be a text")),
            };
            if key == "<<" {
                return Err(at(span, "merging mappings with `<<` is not supported; repeat the entries"));
            }
            if entries.contains_key(&key) {
                return Err(at(span, format!("`{key}` appears twice")));
            }
            let (event, span) = self.next()?;
            let value = self.value(event, span, depth)?;
            entries.insert(key, value);
        }
    }
}

/// A scalar without quotes, by the rules of PyYAML.
fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        _ => {}
    }
    let too_large = || format!("the number `{text}` is too large");
    if let Some(number) = integer(text) {
        return number.map(|number| Value::Number(number.into())).ok_or_else(too_large);
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    let is_of_digits = |letter: char| letter.is_ascii_digit() || ":._".contains(letter);
    if unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.contains(':')
        && unsigned.chars().all(is_of_digits)
    {
        return Err(format!("`{text}` is a base-60 number; write it in decimals, or in quotes"));
    }
    if [".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"].contains(&unsigned) {
        return Err(format!("`{text}` is not a finite number"));
    }
    if is_float(text) {
        let number = text.replace('_', "").parse().ok().and_then(Number::from_f64);
        return number.map(Value::Number).ok_or_else(too_large);
    }
    Ok(Value::String(text.into()))
}

/// Parses an integer: decimal, or with `0b`, `0x` or a leading 0 (octal). The outer option is `None` if the text is no integer, the inner
/// if it is too large.
fn integer(text: &str) -> Option<Option<i64>> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match digits {
        "0" => return Some(Some(0)),
        _ if digits.starts_with("0b") => (2, &digits[2..]),
        _ if digits.starts_with("0x") => (16, &digits[2..]),
        _ if digits.starts_with('0') => (8, &digits[1..]),
        _ if digits.starts_with('_') => return None,
        _ => (10, digits),
    };
    let is_one = !digits.is_empty() && digits.chars().all(|digit| digit == '_' || digit.is_digit(base));
    is_one.then(|| {
        let sign = if is_negative { "-" } else { "" };
        i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), base).ok()
    })
}

/// Returns `true` if a text has a point behind a digit, or before one if there is no sign, and an exponent only with a sign.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let are_digits = |digits: &str| digits.chars().all(|digit| digit == '_' || digit.is_ascii_digit());
    let begins = |digits: &str| digits.starts_with(|first: char| first.is_ascii_digit());
    let has_mantissa = mantissa.split_once('.').is_some_and(|(before, behind)| {
        are_digits(before)
            && are_digits(behind)
            && (begins(before) || (unsigned == text && before.is_empty() && begins(behind)))
    });
    let has_exponent = exponent.is_none_or(|exponent| {
        exponent
            .strip_prefix(['+', '-'])
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit()))
    });
    has_mantissa && has_exponent
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values agree with `yaml.safe_load` of PyYAML 6.0.
    #[test]
    fn plain_scalars_have_the_types_that_pyyaml_gives_them() {
        for (text, value) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("y", json!("y")),
            ("~", json!(null)),
            ("", json!(null)),
            ("12", json!(12)),
            ("-1_000", json!(-1000)),
            ("010", json!(8)),
            ("08", json!("08")),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("0o17", json!("0o17")),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("1.0e-3", json!(0.001)),
            ("1e-3", json!("1e-3")),
            ("1.0e3", json!("1.0e3")),
            ("1.e+3", json!(1000.0)),
            ("-.5", json!("-.5")),
            ("+1.5", json!(1.5)),
            ("1__0", json!(10)),
            ("-08", json!("-08")),
            ("0b", json!("0b")),
            ("preprocessing::0", json!("preprocessing::0")),
            ("-57.0", json!(-57.0)),
            ("@bundle_root", json!("@bundle_root")),
            ("'12'", json!("12")),
            ("\"yes\"", json!("yes")),
        ] {
            // An `@` may not begin a plain scalar.
            let text = if text.starts_with('@') { format!("'{text}'") } else { text.to_string() };
            assert_eq!(read(&format!("a: {text}\n")).map(|root| root["a"].clone()), Ok(value), "{text}");
        }
    }

    #[test]
    fn blocks_flows_comments_and_long_texts_are_read() {
        let text = "# a comment\na:\n- b: 1\n  c: [x, 'y z', {d: no}]\n- |\n  two\n  lines\n- >-\n  one\n  line\n0: zero\n...\n";
        let expected = json!({"a": [{"b": 1, "c": ["x", "y z", {"d": false}]}, "two\nlines\n", "one line"], "0": "zero"});
        assert_eq!(read(text).map(Value::Object), Ok(expected));
    }

    #[test]
    fn aliases_tags_and_what_json_cannot_hold_are_refused_with_their_line() {
        for (text, says) in [
            ("a: &x [1]\nb: *x\n", "line 2: aliases are not supported"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", "line 3: merging mappings"),
            ("a: !!python/object/apply:os.system ['x']\n", "line 1: the tag `"),
            ("a: !!str 1\n", "the tag `"),
            ("a: 1\na: 2\n", "line 2: `a` appears twice"),
            ("? [a, b]\n: 1\n", "a name must be a text"),
            ("a: .inf\n", "not a finite number"),
            ("a: 1:30\n", "base-60"),
            ("a: 99999999999999999999\n", "too large"),
            ("a: 1\n---\nb: 2\n", "a second document"),
            ("- a\n", "not a mapping"),
            ("", "there is no document"),
            ("a: [1\n", "line "),
            ("a: 1\n b: 2\n", "line "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        // Nested deeper than any stack, in each style.
        for deep in ["[".repeat(100_000), format!("a: {}", "{a: ".repeat(50_000)), "- ".repeat(50_000)] {
            assert!(read(&deep).is_err());
        }
        // Ten aliases of ten aliases, and so on.
        let mut bomb = String::from("a0: &a0 [x]\n");
        for level in 1..10 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        assert!(read(&bomb).unwrap_err().contains("aliases"));
    }
}
