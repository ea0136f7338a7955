//! Tables of scores, and the subset of CSV (RFC 4180) that they need.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::Summary;

impl Summary {
    /// Writes a row per case and class, with a column per score; undefined scores are left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        let metrics = self.metrics();
        write!(to, "case,class")?;
        for metric in &metrics {
            write!(to, ",{}", metric.name())?;
        }
        writeln!(to)?;
        for case in &self.metric_per_case {
            let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy();
            for (class, scores) in &case.metrics {
                write!(to, "{},{class}", quoted(&name))?;
                for metric in &metrics {
                    write!(to, ",{}", number(scores.get(*metric)))?;
                }
                writeln!(to)?;
            }
        }
        Ok(())
    }
}

/// The shortest decimal that parses to the same number; empty for `None`.
pub(crate) fn number(score: Option<f64>) -> String {
    score.map(|score| score.to_string()).unwrap_or_default()
}

/// The mark before a text that a spreadsheet would take for a formula.
const MARK: char = '\'';

/// A text as a cell of a table. Spreadsheets run a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return, so such a text
/// gets an apostrophe before it, by which they know a text; numbers get none. [`text_of`] returns the text.
pub fn cell_of(text: &str) -> Cow<'_, str> {
    match is_marked_or_formula(text) && !is_number(text) {
        true => format!("{MARK}{text}").into(),
        false => text.into(),
    }
}

/// The text of a cell that [`cell_of`] wrote.
pub fn text_of(cell: &str) -> &str {
    // What only looks like a marked text was never marked.
    cell.strip_prefix(MARK).filter(|text| is_marked_or_formula(text)).unwrap_or(cell)
}

/// Returns `true` if a spreadsheet would run a text, or the text behind its marks.
fn is_marked_or_formula(text: &str) -> bool {
    text.trim_start_matches(MARK).starts_with(['=', '+', '-', '@', '\t', '\r'])
}

fn is_number(text: &str) -> bool {
    let has_only = text.chars().all(|character| character.is_ascii_digit() || "+-.eE".contains(character));
    has_only && text.parse::<f64>().is_ok()
}

/// A text as a field, marked and quoted if necessary.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let cell = cell_of(text);
    // Space around a field that is not quoted is not part of it.
    if cell.contains([',', '"', '\n', '\r']) || cell.trim() != cell {
        format!("\"{}\"", cell.replace('"', "\"\"")).into()
    } else {
        cell
    }
}

/// The fields of a line; `None` if a quote is unclosed or inside of a field.
pub(crate) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
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

    #[test]
    fn no_text_is_a_formula_and_every_text_is_read_back() {
        let formulas = [
            "=1+1", "+a", "-a", "@SUM(A1)", "\t=1", "\r=1", "-1+1", "=\"a\",b", "-", "-inf", "'=1", "''@",
            "'-1",
        ];
        for text in formulas {
            let cell = cell_of(text);
            assert!(cell.starts_with('\'') && cell.len() == text.len() + 1, "{text:?}: {cell:?}");
            assert_eq!(text_of(&cell), text);
            let line = format!("{},x", quoted(text));
            let found = fields(&line).unwrap();
            assert_eq!((text_of(&found[0]), &*found[1]), (text, "x"), "{line:?}");
        }
        for text in ["-0.5", "+3", "-1e-7", "a=1", "'", "'a", "case-1", "", "1", "\"=1\""] {
            assert_eq!(cell_of(text), text);
            assert_eq!(text_of(text), text);
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
