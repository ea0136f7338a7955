//! Tables of scores, and the subset of CSV (RFC 4180) that they need.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::Summary;

impl Summary {
    /// Writes a row per case and class, with a column per score; undefined scores are left empty.
    ///
    /// # Errors
    /// If writing to `to` fails.
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

/// A field, quoted if necessary.
pub(crate) fn quoted(field: &str) -> Cow<'_, str> {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
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
    fn fields_round_trip() {
        for field in ["a", "", "a,b", "say \"no\"", "\"", "ä, \"\",\" b"] {
            let line = format!("{},{},x", quoted(field), quoted(field));
            assert_eq!(fields(&line).unwrap(), [field, field, "x"], "{line}");
        }
        assert_eq!(fields("a, b ,c").unwrap(), ["a", "b", "c"]);
        for broken in ["\"a", "a\"b", "\"a\"b,c"] {
            assert_eq!(fields(broken), None, "{broken}");
        }
    }
}
