//! Text in pictures.

/// Text as it stands in XML, which has no control characters: they are written as JSON writes them, `\u001b`.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ if character.is_control() => escaped.extend(format!("\\u{:04x}", u32::from(character)).chars()),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_of_xml() {
        assert_eq!(escaped("<a & \"b\">\u{1b}[2J\n"), "&lt;a &amp; &quot;b&quot;&gt;\\u001b[2J\\u000a");
    }
}
