//! The output of commands: tables or JSON.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_disk::atomic;
use plimsoll_report::text::in_line;
pub use plimsoll_report::text::or_dash;
use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// A table with a header; columns are as wide as they need to be, numbers to the right.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
        Table { rows: vec![columns.into_iter().map(String::from).collect()] }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| in_line(&cell)).collect());
    }

    /// Prints it, indented by two.
    pub fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (cell, width) in row.iter().zip(&widths) {
                let fill = " ".repeat(width - cell.chars().count());
                let number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '<');
                line = if number { format!("{line} {fill}{cell} ") } else { format!("{line} {cell}{fill} ") };
            }
            println!("{}", line.trim_end());
        }
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Outcome {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Writes a file, whole or not at all.
pub fn write(path: &Path, to: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
    atomic::write(path, to).map_err(|error| Failure::at_path(path, &error))
}

/// Writes JSON as people read it.
pub fn write_json(file: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, value)?;
    file.write_all(b"\n")
}
