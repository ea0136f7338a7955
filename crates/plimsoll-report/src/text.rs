//! Text of files from elsewhere, as terminals and pages may show it.

use std::borrow::Cow;
use std::fmt::Write;

/// A text without characters that a terminal obeys: control characters but ends of lines and tabs, and those that change the direction of
/// writing, are written as JSON writes them, `\u001b`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_obeyed(character) {
            true => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            }
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// A text as a part of a line: as [`escaped`], with ends of lines and tabs.
pub fn in_line(text: &str) -> String {
    escaped(&text.replace('\n', "\\n").replace('\t', "\\t")).into_owned()
}

/// A value as tables show it, a dash where there is none.
pub fn or_dash(value: Option<impl std::fmt::Display>) -> String {
    value.map_or("–".into(), |value| value.to_string())
}

fn is_obeyed(character: char) -> bool {
    let turns_direction =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // XML has no place for either, and a viewer refuses a whole drawing with one in it.
    let is_no_character = matches!(character, '\u{fffe}' | '\u{ffff}');
    (character.is_control() && !matches!(character, '\n' | '\t')) || turns_direction || is_no_character
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_written_as_json_writes_them() {
        assert!(matches!(escaped("läsion 1\tµm\n"), Cow::Borrowed(_)));
        let hostile = "a\u{1b}[2J\u{7}b\r\u{9b}\u{7f}\u{202e}c";
        assert_eq!(escaped(hostile), "a\\u001b[2J\\u0007b\\u000d\\u009b\\u007f\\u202ec");
        let json = format!("\"{}\"", escaped("\u{7f}\u{9b}"));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "\u{7f}\u{9b}");
        assert_eq!(in_line("a\nerror: b\t\u{1b}"), "a\\nerror: b\\t\\u001b");
    }
}
