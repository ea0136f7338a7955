//! What commands print: tables for people, JSON for machines.

use serde::Serialize;

use crate::failure::Outcome;

/// A table with a header; columns are as wide as they need to be, numbers to the right.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(columns: [&str; N]) -> Table {
        Table { rows: vec![columns.map(String::from).to_vec()] }
    }

    /// Appends a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
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
