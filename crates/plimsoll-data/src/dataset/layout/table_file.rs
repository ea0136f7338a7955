//! A file with a table of paths: its header and its rows.

use std::io::Read;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use plimsoll_disk::File;

use crate::dataset::DatasetError;
use crate::dataset::json::read_bounded;
use crate::dataset::layout::words;
use crate::dataset::names::{enumerated, name_ending};
use crate::dataset::series::is_series;
use crate::pictures::separator;

/// A table as it is stored.
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<StringRecord>,
}

impl Table {
    pub(crate) fn read(file: &Path) -> Result<Table, DatasetError> {
        Table::parse(file, &read_bounded(file)?, usize::MAX)
    }

    /// Parses the header and at most `lines` lines below it.
    fn parse(file: &Path, bytes: &[u8], lines: usize) -> Result<Table, DatasetError> {
        let is_tsv = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("tsv"));
        let separator = if is_tsv { b'\t' } else { separator(bytes) };
        let mut reader = ReaderBuilder::new().delimiter(separator).from_reader(bytes);
        let wrong = |problem: csv::Error| DatasetError::Layout {
            path: file.into(),
            problem: format!("it is not a table: {problem}"),
            hint: "the first row has the names of columns, and each other row as many cells".into(),
        };
        let header = reader.headers().map_err(wrong)?.iter().map(|name| name.trim().to_string()).collect();
        let rows = reader.records().take(lines).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Table { header, rows })
    }

    pub(crate) fn column(&self, file: &Path, name: &str) -> Result<usize, DatasetError> {
        self.header.iter().position(|found| found == name).ok_or_else(|| DatasetError::Layout {
            path: file.into(),
            problem: format!(
                "it has no column `{name}`; its columns are: {}",
                enumerated(self.header.iter().map(String::as_str))
            ),
            hint:
                "name its columns in plimsoll.toml: under [data], images = \"image\" and labels = \"label\""
                    .into(),
        })
    }

    /// Returns `true` if a column has paths of images in its first line: names of files, or folders of slices
    /// below the table's folder.
    pub(crate) fn has_images(&self, file: &Path, column: usize) -> bool {
        let first = self.rows.first().and_then(|row| row.get(column)).map(str::trim);
        let is_folder =
            |cell: &str| !cell.is_empty() && is_series(&file.with_file_name(cell)).unwrap_or(false);
        first.is_some_and(|cell| name_ending(cell).is_some() || is_folder(cell))
    }
}

/// The length of the beginning of a table that is searched for its header and its first line.
const BEGINNING: u64 = 64 << 10;

/// Returns `true` if a table has label maps in a column; otherwise it may be one of images with classes. Its beginning alone is read.
pub(crate) fn has_volumes(file: &Path) -> bool {
    let mut beginning = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    let read = File::open(file).and_then(|open| open.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok()
        && Table::parse(file, &beginning, 1).is_ok_and(|stored| {
            let is_label = |(column, name): (usize, &String)| {
                words::is_of_labels(name) && stored.has_images(file, column)
            };
            stored.header.iter().enumerate().any(is_label)
        })
}
