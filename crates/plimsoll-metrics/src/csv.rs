//! Cells of tables that spreadsheets open, and rows of scores.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::Summary;

/// A table in CSV (RFC 4180) that is written cell by cell. Undefined numbers are empty cells.
pub(crate) struct TableWriter<'a> {
    writer: csv::Writer<&'a mut dyn Write>,
}

impl<'a> TableWriter<'a> {
    /// Writes the names of the columns.
    pub(crate) fn new<'b>(
        to: &'a mut dyn Write,
        columns: impl IntoIterator<Item = &'b str>,
    ) -> io::Result<TableWriter<'a>> {
        let mut writer = csv::Writer::from_writer(to);
        writer.write_record(columns)?;
        Ok(TableWriter { writer })
    }

    /// Adds a text as a cell that no spreadsheet runs.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        Ok(self.writer.write_field(&*cell_of(text))?)
    }

    /// Adds a number as the shortest decimal that parses to the same number, or an empty cell.
    pub(crate) fn number(&mut self, number: Option<f64>) -> io::Result<()> {
        Ok(self.writer.write_field(number.map(|number| number.to_string()).unwrap_or_default())?)
    }

    /// Adds a count.
    pub(crate) fn count(&mut self, count: impl ToString) -> io::Result<()> {
        Ok(self.writer.write_field(count.to_string())?)
    }

    /// Ends the row. All rows must have as many cells as there are columns.
    pub(crate) fn end_row(&mut self) -> io::Result<()> {
        Ok(self.writer.write_record(None::<&[u8]>)?)
    }

    /// Writes all that is buffered.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Summary {
    /// Writes a row for each case and class, with a column for each score; undefined scores are left empty.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write_csv(&self, to: &mut dyn Write) -> io::Result<()> {
        let metrics = self.metrics();
        let scores = metrics.iter().map(|metric| metric.name());
        let mut table = TableWriter::new(to, ["case", "class"].into_iter().chain(scores))?;
        for case in &self.metric_per_case {
            let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy();
            for (class, scores) in &case.metrics {
                table.text(&name)?;
                table.count(class)?;
                for metric in &metrics {
                    table.number(scores.get(*metric))?;
                }
                table.end_row()?;
            }
        }
        table.finish()
    }
}

/// The mark before a text that a spreadsheet would treat as a formula.
const MARK: char = '\'';

/// Returns a text as a cell of a table. Spreadsheets run a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return, so such a
/// text is marked with an apostrophe, which makes them treat it as text. Numbers are not marked. [`text_of`] removes the mark.
pub fn cell_of(text: &str) -> Cow<'_, str> {
    match is_marked_or_formula(text) && !is_number(text) {
        true => format!("{MARK}{text}").into(),
        false => text.into(),
    }
}

/// Returns the text of a cell that [`cell_of`] wrote.
pub fn text_of(cell: &str) -> &str {
    // An apostrophe before any other text belongs to the text.
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
        }
        for text in ["-0.5", "+3", "-1e-7", "a=1", "'", "'a", "case-1", "", "1", "\"=1\""] {
            assert_eq!(cell_of(text), text);
            assert_eq!(text_of(text), text);
        }
    }
}
