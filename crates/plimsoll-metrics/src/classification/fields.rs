//! The fields of a line of a table of cases.
//!
//! The `csv` crate reads an unclosed quote as a cell that extends to the end of the file, joins text behind a closing quote to the cell, and
//! reads a line of any length into memory. A damaged table of probabilities must be an error that names its line, so this format has its
//! own strict parser, and a writer that preserves the spaces around a text, which the parser otherwise trims.

use std::borrow::Cow;

use crate::csv::cell_of;

/// Returns a text as a field, marked by [`cell_of`] and quoted if necessary.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let cell = cell_of(text);
    // The parser trims fields that are not quoted.
    if cell.contains([',', '"', '\n', '\r']) || cell.trim() != cell {
        format!("\"{}\"", cell.replace('"', "\"\"")).into()
    } else {
        cell
    }
}

/// Returns the fields of a line, or `None` if a quote is not closed or is inside a field.
pub(super) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let (field, behind): (Cow<'_, str>, &str) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, behind) = rest.split_at(end);
                if field.contains('"') {
                    return None;
                }
                (field.trim().into(), behind)
            }
            Some(inner) => {
                let mut from = 0;
                // The closing quote is the first that is not doubled.
                let end = loop {
                    let at = from + inner.get(from..)?.find('"')?;
                    if !inner[at + 1..].starts_with('"') {
                        break at;
                    }
                    from = at + 2;
                };
                (inner[..end].replace("\"\"", "\"").into(), &inner[end + 1..])
            }
        };
        found.push(field);
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Some(found),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csv::text_of;

    #[test]
    fn marked_texts_are_read_back_from_a_line() {
        for text in [
            "=1+1", "+a", "-a", "@SUM(A1)", "\t=1", "\r=1", "-1+1", "=\"a\",b", "-", "-inf", "'=1", "''@",
            "'-1",
        ] {
            let line = format!("{},x", quoted(text));
            let found = fields(&line).unwrap();
            assert_eq!((text_of(&found[0]), &*found[1]), (text, "x"), "{line:?}");
        }
    }

    #[test]
    fn fields_round_trip() {
        for field in ["a", "", "a,b", "say \"no\"", "\"", "ä, \"\",\" b", " a "] {
            let line = format!("{},{},x", quoted(field), quoted(field));
            assert_eq!(fields(&line).unwrap(), [field, field, "x"], "{line}");
        }
        assert_eq!(fields("a, b ,c").unwrap(), ["a", "b", "c"]);
        for broken in ["\"a", "a\"b", "\"a\"b,c"] {
            assert_eq!(fields(broken), None, "{broken}");
        }
    }
}
