//! Text to tokens.

use super::ParseError;

/// A word (name, opcode with its modifiers, directive, number), a string, or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    /// Counted from 1.
    pub line: usize,
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Returns `true` if `word` is all of the first word.
fn is_word(rest: &str, word: &str) -> bool {
    rest.strip_prefix(word).is_some_and(|rest| rest.starts_with(char::is_whitespace))
}

/// The tokens of `text`. Comments, and the lines `.loc` and `.file`, which carry no meaning for a program, are left out.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        let rest = text.get(at..).unwrap_or("");
        let length = if byte == b'\n' {
            line += 1;
            1
        } else if byte.is_ascii_whitespace() {
            1
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            line += rest.as_bytes().iter().take(length).filter(|&&byte| byte == b'\n').count();
            length
        } else if [".loc", ".file"].iter().any(|word| is_word(rest, word)) {
            rest.find('\n').unwrap_or(rest.len())
        } else if byte == b'"' {
            let end = rest.get(1..).and_then(|rest| rest.find('"'));
            let length =
                end.map(|end| end + 2).ok_or_else(|| ParseError::at(line, "a string without an end"))?;
            tokens.push(Token { text: rest.get(..length).unwrap_or(""), line });
            length
        } else if in_word(byte) {
            let mut length = 0;
            loop {
                let next = rest.as_bytes().get(length).copied();
                // `shared::cta` is one word, the colon of a label is none of it.
                if next.is_some_and(in_word) {
                    length += 1;
                } else if rest.get(length..).is_some_and(|rest| rest.starts_with("::")) {
                    length += 2;
                } else {
                    break;
                }
            }
            tokens.push(Token { text: rest.get(..length).unwrap_or(""), line });
            length
        } else if byte.is_ascii_punctuation() {
            tokens.push(Token { text: rest.get(..1).unwrap_or(""), line });
            1
        } else {
            return Err(ParseError::at(line, "a character that PTX does not have"));
        };
        at += length;
    }
    Ok(tokens)
}

/// The bits of a number: an integer of base 2, 8, 10 or 16, or a float as its bits (`0f3F800000`, `0d…`).
pub(crate) fn number(word: &str) -> Option<u64> {
    let digits = word.strip_suffix(['U', 'u']).filter(|_| !word.starts_with("0f")).unwrap_or(word);
    let prefixed = |prefixes: [&str; 2]| {
        prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix)).filter(|rest| !rest.is_empty())
    };
    if let Some(bits) = prefixed(["0f", "0F"]) {
        return u32::from_str_radix(bits, 16).ok().map(u64::from);
    }
    if let Some(bits) = prefixed(["0d", "0D"]).or_else(|| prefixed(["0x", "0X"])) {
        return u64::from_str_radix(bits, 16).ok();
    }
    if let Some(bits) = prefixed(["0b", "0B"]) {
        return u64::from_str_radix(bits, 2).ok();
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => digits.parse().ok(),
    }
}
