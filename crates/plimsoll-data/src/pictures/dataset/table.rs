//! Data sets that a table lists: a CSV file with a column of images and one or more of labels.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};
use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes};
use serde::{Deserialize, Serialize};

use super::labels::{Label, Seen};
use super::{DatasetError, ImageCase, ImageDataset, Split, reserve};

/// The longest table that is read: some millions of images fit.
const LONGEST: Bytes = Bytes::mib(256);

/// The names of a table's columns, and the folder of its images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSettings {
    /// The column of images: names, or paths in the folder.
    pub image: String,
    /// The columns of labels.
    pub label: LabelSource,
    /// The source of groups: cases of a patient stay together.
    #[serde(default)]
    pub group: Option<GroupSource>,
    /// The column with `train`, `val` or `test`.
    #[serde(default)]
    pub split: Option<String>,
    /// The folder of the images, relative to the folder of the table. Empty for the same folder.
    #[serde(default)]
    pub folder: PathBuf,
    /// Is appended to names that lack it, as `.jpeg`.
    #[serde(default)]
    pub ending: String,
    /// The classes, in order. Empty for all that occur; whole numbers are then in their order, without gaps.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Leaves lines without a label out, which are an error otherwise.
    #[serde(default)]
    pub skip_unlabelled: bool,
}

/// The columns of labels in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelSource {
    /// One label in this column.
    One(String),
    /// Any number of labels in one column.
    Several {
        /// The column.
        column: String,
        /// The separator of labels, as `;`.
        separator: String,
    },
    /// One column for each class, which is its name, with 0 or 1.
    Columns(Vec<String>),
}

/// The source of the group of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupSource {
    /// A column.
    Column(String),
    /// The name of the image up to this text: with `_`, 10_left and 10_right are of group 10.
    NameUpTo(String),
}

/// A line with its labels not yet numbered.
struct Row {
    name: String,
    labels: Vec<Label>,
    group: Option<String>,
    split: Option<Split>,
}

impl ImageDataset {
    /// Lists the images of a CSV file with a header. Whether the images are there is left to [`inspect`](super::inspect).
    ///
    /// # Errors
    /// If the table cannot be read, lacks a column, has cells that are not understood, lists an image twice or one outside of its
    /// folder, or the memory is not available.
    pub fn from_table(
        path: impl AsRef<Path>,
        settings: &TableSettings,
        budget: &Budget,
    ) -> Result<ImageDataset, DatasetError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new("")).join(&settings.folder);
        // Lines are counted first, so that memory is reserved before it is used.
        let (length, count) = count(path)?;
        // Each name is in its case, in the path together with the folder and the ending, and in the index below; the parser
        // holds a line, which may be all of the file, twice.
        let own = (folder.as_os_str().len() + settings.ending.len()) as u64;
        let text = length.0.saturating_mul(6).saturating_add(own.saturating_mul(2 * count as u64));
        let memory = reserve(budget, count.saturating_mul(2), text).map_err(DatasetError::memory(path))?;
        let mut table = Table::open(path, settings)?;
        let mut seen = Seen::default();
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        let (mut rows, mut skipped) = (Vec::with_capacity(count), 0);
        while let Some((line, row)) = table.next()? {
            if row.labels.is_empty() && !settings.label.may_be_none() {
                skipped += 1;
                continue;
            }
            if let Some(first) = lines.insert(row.name.clone(), line) {
                return Err(DatasetError::Twice { path: path.into(), line, first, name: row.name });
            }
            if settings.classes.is_empty() {
                row.labels.iter().try_for_each(|label| seen.add(line, label.clone(), path))?;
            }
            rows.push(row);
        }
        drop(lines);
        if rows.is_empty() {
            return Err(DatasetError::NoCases { path: path.into() });
        }
        let classes = match &settings.label {
            LabelSource::Columns(columns) => columns.clone(),
            _ if settings.classes.is_empty() => seen.classes(path)?,
            _ => settings.classes.clone(),
        };
        let numbers: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
        let cases = rows.into_iter().map(|row| {
            let mut labels: Vec<u32> =
                row.labels.iter().filter_map(|label| numbers.get(&*label.name()).copied()).collect();
            labels.sort_unstable();
            labels.dedup();
            let file = if row.name.ends_with(&settings.ending) {
                folder.join(&row.name)
            } else {
                folder.join(row.name.clone() + &settings.ending)
            };
            ImageCase { name: row.name, path: file, labels, group: row.group, split: row.split }
        });
        let cases: Vec<ImageCase> = cases.collect();
        let mut warnings = Vec::new();
        if skipped > 0 {
            warnings.push(format!("{skipped} rows of {} have no label and are left out", path.display()));
        }
        let multi_label = !matches!(settings.label, LabelSource::One(_));
        Ok(ImageDataset { classes, multi_label, cases, warnings, memory: vec![memory] })
    }
}

impl LabelSource {
    /// Returns `true` if a case may have no label at all.
    fn may_be_none(&self) -> bool {
        !matches!(self, LabelSource::One(_))
    }
}

fn reader(path: &Path) -> Result<(csv::Reader<BufReader<File>>, Bytes), DatasetError> {
    let failed = |source| DatasetError::io(path, source);
    let mut file = File::open(path).map_err(failed)?;
    let found = Bytes(file.len().map_err(failed)?);
    if found > LONGEST {
        return Err(DatasetError::TooLong { path: path.into(), found, most: LONGEST });
    }
    let mut start = [0; LONGEST_HEADER];
    let length = read_up_to(&mut file, &mut start).and_then(|length| file.rewind().map(|()| length));
    let separator = separator(start.get(..length.map_err(failed)?).unwrap_or(&start));
    let mut reader = ReaderBuilder::new();
    Ok((reader.trim(Trim::All).delimiter(separator).from_reader(BufReader::new(file)), found))
}

/// The most bytes of a header that are searched for what separates its cells.
const LONGEST_HEADER: usize = 4096;

/// Reads until a buffer is full or a file ends; how many bytes it has read.
fn read_up_to(file: &mut File, to: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while let Some(rest) = to.get_mut(found..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            count => found += count,
        }
    }
    Ok(found)
}

/// The separator of a table's cells: of comma, semicolon, which spreadsheets write where numbers have commas,
/// and tab the one that occurs most often in its first line outside of quotes; the comma among equals.
pub fn separator(text: &[u8]) -> u8 {
    let (mut counts, mut is_quoted) = ([0_usize; 3], false);
    for byte in text.iter().take_while(|byte| **byte != b'\n') {
        match byte {
            b'"' => is_quoted = !is_quoted,
            byte if !is_quoted => {
                SEPARATORS
                    .iter()
                    .zip(&mut counts)
                    .filter(|(own, _)| *own == byte)
                    .for_each(|(_, count)| *count += 1);
            }
            _ => {}
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let found = SEPARATORS.iter().zip(counts).find(|(_, count)| *count == most);
    found.map_or(b',', |(separator, _)| *separator)
}

/// The separators of cells, the usual one first.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

fn csv_error(path: &Path, error: csv::Error) -> DatasetError {
    let problem = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => DatasetError::io(path, source),
        _ => DatasetError::Csv { path: path.into(), problem },
    }
}

/// Returns the length of a table and the most lines that it can have below the header. Only the ends of lines are counted: the parser
/// would keep a whole line, which may be the whole file, before anything is reserved.
fn count(path: &Path) -> Result<(Bytes, usize), DatasetError> {
    let failed = |source| DatasetError::io(path, source);
    let (reader, length) = reader(path)?;
    let mut file = reader.into_inner();
    // The last line may have no end, and the first is the header.
    let (mut count, mut after_return) = (0, false);
    loop {
        let bytes = file.fill_buf().map_err(failed)?;
        if bytes.is_empty() {
            return Ok((length, count));
        }
        for byte in bytes {
            count += usize::from(*byte == b'\r' || *byte == b'\n' && !after_return);
            after_return = *byte == b'\r';
        }
        let read = bytes.len();
        file.consume(read);
    }
}

/// A table that is being read.
struct Table<'a> {
    path: &'a Path,
    settings: &'a TableSettings,
    reader: csv::Reader<BufReader<File>>,
    record: StringRecord,
    image: usize,
    /// One, or more where each class has a column.
    labels: Vec<usize>,
    group: Option<usize>,
    split: Option<usize>,
}

impl<'a> Table<'a> {
    fn open(path: &'a Path, settings: &'a TableSettings) -> Result<Table<'a>, DatasetError> {
        let (mut reader, _) = reader(path)?;
        let header = reader.headers().map_err(|error| csv_error(path, error))?.clone();
        let column = |name: &String| {
            // Excel writes a byte order mark before the first name.
            let at = header.iter().position(|found| found.trim_start_matches('\u{feff}') == name);
            at.ok_or_else(|| {
                let found = header.iter().collect::<Vec<_>>().join(", ");
                DatasetError::NoColumn { path: path.into(), column: name.clone(), found }
            })
        };
        let labels = match &settings.label {
            LabelSource::One(name) | LabelSource::Several { column: name, .. } => vec![column(name)?],
            LabelSource::Columns(names) => names.iter().map(column).collect::<Result<_, _>>()?,
        };
        let group = match &settings.group {
            Some(GroupSource::Column(name)) => Some(column(name)?),
            _ => None,
        };
        let split = settings.split.as_ref().map(column).transpose()?;
        Ok(Table {
            image: column(&settings.image)?,
            path,
            settings,
            reader,
            record: StringRecord::new(),
            labels,
            group,
            split,
        })
    }

    /// The next line and its number.
    fn next(&mut self) -> Result<Option<(u64, Row)>, DatasetError> {
        let read = self.reader.read_record(&mut self.record);
        if !read.map_err(|error| csv_error(self.path, error))? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        // The reader refuses lines that are not as long as the header, of which these are places.
        let cell = |at: usize| &self.record[at];
        let wrong = |column: &str, problem: String| DatasetError::Cell {
            path: self.path.into(),
            line,
            column: column.into(),
            problem,
        };
        let settings = self.settings;
        let name = cell(self.image);
        let parts = || Path::new(name).components();
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if name.is_empty() || name.contains('\0') || !parts().all(is_inside) {
            return Err(wrong(
                &settings.image,
                format!("{name:?} is not a path inside the folder of images"),
            ));
        }
        let labels = self.read_labels(&cell, &wrong)?;
        let group = match &settings.group {
            Some(GroupSource::Column(_)) => self.group.map(cell).map(str::to_string),
            Some(GroupSource::NameUpTo(text)) => {
                let file = Path::new(name).file_name().map(|file| file.to_string_lossy().into_owned());
                file.map(|file| {
                    file.split_once(text.as_str()).map_or(file.clone(), |(before, _)| before.into())
                })
            }
            None => None,
        };
        let split = match (self.split.map(cell), &settings.split) {
            (Some(text), Some(column)) if !text.is_empty() => Some(
                Split::named(text)
                    .ok_or_else(|| wrong(column, format!("`{text}` is not train, val or test")))?,
            ),
            _ => None,
        };
        // A group without a name is no group.
        let group = group.filter(|group| !group.is_empty());
        Ok(Some((line, Row { name: name.into(), labels, group, split })))
    }

    fn read_labels<'c>(
        &self,
        cell: &impl Fn(usize) -> &'c str,
        wrong: &impl Fn(&str, String) -> DatasetError,
    ) -> Result<Vec<Label>, DatasetError> {
        let settings = self.settings;
        let known = |column: &str, text: &str| {
            let label = Label::parse(text);
            let is_known = settings.classes.is_empty() || settings.classes.contains(&label.name());
            let problem = || format!("the label `{text}` is not one of {}", settings.classes.join(", "));
            if is_known { Ok(label) } else { Err(wrong(column, problem())) }
        };
        match &settings.label {
            LabelSource::One(column) => match cell(self.labels[0]) {
                "" if settings.skip_unlabelled => Ok(Vec::new()),
                "" => Err(wrong(column, "there is no label".into())),
                text => Ok(vec![known(column, text)?]),
            },
            LabelSource::Several { column, separator } => {
                let text = cell(self.labels[0]);
                let parts = text.split(separator.as_str()).map(str::trim).filter(|part| !part.is_empty());
                parts.map(|part| known(column, part)).collect()
            }
            LabelSource::Columns(columns) => {
                let mut labels = Vec::new();
                for (column, at) in columns.iter().zip(&self.labels) {
                    match Label::parse(cell(*at)) {
                        Label::Number(0) => {}
                        Label::Number(1) => labels.push(Label::Word(column.clone())),
                        other => return Err(wrong(column, format!("`{}` is neither 0 nor 1", other.name()))),
                    }
                }
                Ok(labels)
            }
        }
    }
}
