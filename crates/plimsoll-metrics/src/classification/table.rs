//! The input table: cases with their labels and the probability of each class.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};

use super::fields::{fields, quoted};
use crate::csv::text_of;

/// The length limit of a line, in bytes.
const LONGEST_LINE: u64 = 1 << 20;
/// The name of a column with the class that is predicted; it and what is behind it are passed over.
const PREDICTED: &str = "predicted";
/// The holder of a table's memory in reports.
const HOLDER: &str = "table of cases";
/// The tolerance of the sum of a case's probabilities, which are often rounded.
const ROUNDING: f64 = 0.01;

/// The separator of the labels of a case.
const BETWEEN: char = '|';

/// The number of classes that a case may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labelling {
    /// One: its probabilities sum to 1.
    OneClass,
    /// Any, each by itself: their names with `|` between them, or none.
    SeveralLabels,
}

/// The classes that cases are of.
#[derive(Debug)]
pub(crate) enum Labels {
    /// By their numbers.
    One(Mapped<u32>),
    /// `[case][class]`, 1 for those that it is of.
    Several(Mapped<u8>),
}

/// Cases with their labels and the probability of each class.
#[derive(Debug)]
pub struct Table {
    classes: Vec<String>,
    labels: Labels,
    /// `[case][class]`
    probabilities: Mapped<f64>,
}

/// A table with the names of its cases.
#[derive(Debug)]
pub struct NamedTable {
    /// Labels and probabilities.
    pub(crate) table: Table,
    /// The name of each case.
    pub(crate) names: Vec<String>,
    /// The reservation of the names, or `None` if the caller has it.
    _memory: Option<Reservation>,
}

impl NamedTable {
    /// A table whose cases have these names, in order.
    ///
    /// # Errors
    /// Returns an error if there are not as many names as cases.
    pub fn new(table: Table, names: Vec<String>) -> Result<NamedTable, TableError> {
        if names.len() != table.cases() {
            return Err(TableError::Names { names: names.len(), cases: table.cases() });
        }
        Ok(NamedTable { table, names, _memory: None })
    }
}

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The table.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Something is wrong with a line.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// There are no cases.
    #[error("{} has no cases", path.display())]
    Empty {
        /// The table.
        path: PathBuf,
    },
    /// The budget has no room for the table.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// Cases of one class and of several are in one table.
    #[error("the cases of a table must all have one class, or all have any number of labels")]
    Labelling,
    /// The numbers of names and cases do not match.
    #[error("there are {names} names for {cases} cases")]
    Names {
        /// The number of names.
        names: usize,
        /// The number of cases.
        cases: usize,
    },
    /// There is no such class.
    #[error("there is no class {class}: the classes are numbered from 0 to {}", classes.saturating_sub(1))]
    NoClass {
        /// The requested class.
        class: usize,
        /// The number of classes.
        classes: usize,
    },
    /// The numbers of labels and probabilities do not match.
    #[error("{labels} labels and {probabilities} probabilities do not form a table of {classes} classes")]
    Shape {
        /// The number of labels.
        labels: usize,
        /// The number of probabilities.
        probabilities: usize,
        /// The number of classes.
        classes: usize,
    },
}

impl TableError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            TableError::Line { .. } | TableError::Empty { .. } => Some(
                "the first row is `case,label,` and the names of the classes; each other row has a case, its class, and the probability \
                 of each class, which sum to 1; ‹several_labels›, where a case has any number of them"
                    .into(),
            ),
            TableError::Memory(error) => Some(error.remedy()),
            TableError::Io { .. }
            | TableError::Labelling
            | TableError::Names { .. }
            | TableError::NoClass { .. }
            | TableError::Shape { .. } => None,
        }
    }
}

impl Table {
    /// A table of labels (numbers of classes) and probabilities, `[case][class]`.
    ///
    /// # Errors
    /// Returns an error if their numbers do not match, a label is out of range, there are no cases, or the memory is not available.
    pub fn new(
        classes: Vec<String>,
        labels: &[u32],
        probabilities: &[f64],
        budget: &Budget,
    ) -> Result<Table, TableError> {
        let fits = probabilities.len() == labels.len() * classes.len();
        if labels.is_empty() || !fits || labels.iter().any(|label| *label as usize >= classes.len()) {
            let (labels, probabilities) = (labels.len(), probabilities.len());
            return Err(TableError::Shape { labels, probabilities, classes: classes.len() });
        }
        let mut numbers = Mapped::zeroed(budget, HOLDER, labels.len())?;
        numbers.copy_from_slice(labels);
        let mut stored = Mapped::zeroed(budget, HOLDER, probabilities.len())?;
        stored.copy_from_slice(probabilities);
        Ok(Table { classes, labels: Labels::One(numbers), probabilities: stored })
    }

    /// Reads a CSV file: a header `case,label,` and the names of two classes or more, then a line per case with its
    /// name, the name of its class (of its classes, where it may have several), and the probability of each class in the order of the
    /// header. A column `predicted`, as
    /// predictions have it, and all that stand behind it are passed over.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, a line is invalid, or the memory is not available.
    pub fn read(path: &Path, labelling: Labelling, budget: &Budget) -> Result<Table, TableError> {
        Table::read_each(path, labelling, budget, |_| Ok(|_: &str| {}))
    }

    /// The same, with the names of its cases.
    ///
    /// # Errors
    /// Returns the errors of [`Table::read`].
    pub fn read_named(path: &Path, labelling: Labelling, budget: &Budget) -> Result<NamedTable, TableError> {
        let io = |source| TableError::Io { path: path.into(), source };
        let length = plimsoll_disk::metadata(path).map_err(io)?.len();
        let (mut names, mut memory) = (Vec::new(), None);
        let table = Table::read_each(path, labelling, budget, |cases| {
            let bytes = cases.saturating_mul(size_of::<String>()).saturating_add(length as usize);
            memory = Some(budget.reserve("names of cases", Bytes::from_len(bytes)).map_err(MapError::from)?);
            names.reserve_exact(cases);
            Ok(|name: &str| names.push(name.to_string()))
        })?;
        Ok(NamedTable { table, names, _memory: memory })
    }

    /// The same, and passes the name of each case, in order, to what is made once their number is known.
    fn read_each<F: FnMut(&str)>(
        path: &Path,
        labelling: Labelling,
        budget: &Budget,
        begin: impl FnOnce(usize) -> Result<F, TableError>,
    ) -> Result<Table, TableError> {
        // Cases are counted in a first pass, so that memory is reserved before it is used.
        let mut lines = Lines::open(path)?;
        let classes = lines.header()?;
        let mut cases = 0usize;
        while lines.next()?.is_some() {
            cases += 1;
        }
        if cases == 0 {
            return Err(TableError::Empty { path: path.into() });
        }
        let mut named = begin(cases)?;
        let mut table = Table::empty(classes, labelling, cases, budget)?;
        let mut lines = Lines::open(path)?;
        lines.header()?;
        let count = table.classes.len();
        let numbers: BTreeMap<&str, u32> = table.classes.iter().map(String::as_str).zip(0..).collect();
        for (case, row) in table.probabilities.chunks_exact_mut(count).enumerate() {
            let Some(line) = lines.next()? else { break };
            let parsed = parse(&line, row, lines.columns).and_then(|(name, label)| {
                match &mut table.labels {
                    Labels::One(labels) => labels[case] = one_class(&label, &numbers, row)?,
                    Labels::Several(labels) => {
                        several_classes(&label, &numbers, &mut labels[case * count..][..count])?;
                    }
                }
                named(&name);
                Ok(())
            });
            parsed.map_err(|problem| lines.error(problem))?;
        }
        Ok(table)
    }

    /// Returns a table of `cases` cases without labels and probabilities.
    fn empty(
        classes: Vec<String>,
        labelling: Labelling,
        cases: usize,
        budget: &Budget,
    ) -> Result<Table, TableError> {
        let all = cases.saturating_mul(classes.len());
        let probabilities = Mapped::zeroed(budget, HOLDER, all)?;
        let labels = match labelling {
            Labelling::OneClass => Labels::One(Mapped::zeroed(budget, HOLDER, cases)?),
            Labelling::SeveralLabels => Labels::Several(Mapped::zeroed(budget, HOLDER, all)?),
        };
        Ok(Table { classes, labels, probabilities })
    }

    /// A table of cases of other tables, each by its table and its place there; all have these classes and this labelling.
    pub(crate) fn gathered(
        classes: &[String],
        labelling: Labelling,
        cases: &[(&Table, usize)],
        budget: &Budget,
    ) -> Result<Table, TableError> {
        let mut table = Table::empty(classes.to_vec(), labelling, cases.len(), budget)?;
        let count = classes.len();
        for (to, (from, place)) in cases.iter().enumerate() {
            let row = &from.probabilities[place * count..][..count];
            table.probabilities[to * count..][..count].copy_from_slice(row);
            match (&mut table.labels, &from.labels) {
                (Labels::One(labels), Labels::One(known)) => labels[to] = known[*place],
                (Labels::Several(labels), _) => {
                    for class in 0..count {
                        labels[to * count + class] = u8::from(from.is_of(*place, class));
                    }
                }
                (Labels::One(_), Labels::Several(_)) => return Err(TableError::Labelling),
            }
        }
        Ok(table)
    }

    /// The mean of what two tables say of the same cases, in the same order, of the same classes and with the same labels.
    pub(crate) fn mean(tables: [&Table; 2], budget: &Budget) -> Result<Table, TableError> {
        let [first, second] = tables;
        let places: Vec<(&Table, usize)> = (0..first.cases()).map(|case| (first, case)).collect();
        let mut mean = Table::gathered(&first.classes, first.labelling(), &places, budget)?;
        for (to, other) in mean.probabilities.iter_mut().zip(second.probabilities.iter()) {
            *to = f64::midpoint(*to, *other);
        }
        Ok(mean)
    }

    /// Writes the table of cases with these names, as [`read`](Table::read) takes it. Probabilities have seven decimals: the mean of two that
    /// have six is exact.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write(&self, names: &[String], to: &mut dyn Write) -> io::Result<()> {
        write!(to, "case,label")?;
        for class in &self.classes {
            write!(to, ",{}", quoted(class))?;
        }
        writeln!(to)?;
        for (case, (name, row)) in names.iter().zip(self.rows()).enumerate() {
            write!(to, "{},{}", quoted(name), quoted(&self.label(case)))?;
            for probability in row {
                write!(to, ",{probability:.7}")?;
            }
            writeln!(to)?;
        }
        Ok(())
    }

    /// The number of classes that a case may have.
    pub fn labelling(&self) -> Labelling {
        match self.labels {
            Labels::One(_) => Labelling::OneClass,
            Labels::Several(_) => Labelling::SeveralLabels,
        }
    }

    /// The names of the classes that a case is of, with `|` between them.
    pub(crate) fn label(&self, case: usize) -> String {
        let of = (0..self.classes.len()).filter(|class| self.is_of(case, *class));
        let names: Vec<&str> = of.map(|class| self.classes[class].as_str()).collect();
        names.join(&BETWEEN.to_string())
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The number of cases.
    pub fn cases(&self) -> usize {
        self.probabilities.len() / self.classes.len()
    }

    /// Returns `true` if a case is of a class.
    pub fn is_of(&self, case: usize, class: usize) -> bool {
        match &self.labels {
            Labels::One(labels) => labels[case] as usize == class,
            Labels::Several(labels) => labels[case * self.classes.len() + class] == 1,
        }
    }

    /// The classes that cases are of.
    pub(crate) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The probabilities of each case.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.probabilities.chunks_exact(self.classes.len().max(1))
    }

    /// The probability of a class in a case.
    pub(crate) fn probability(&self, case: usize, class: usize) -> f64 {
        self.probabilities[case * self.classes.len() + class]
    }

    /// The probabilities of a class, case by case.
    pub(crate) fn column(&self, class: usize) -> impl Iterator<Item = f64> {
        self.rows().map(move |row| row[class])
    }
}

/// Parses the probabilities of a case into `row`, and returns its name and its label.
fn parse(line: &str, row: &mut [f64], columns: usize) -> Result<(String, String), String> {
    let mut fields = fields(line).ok_or("a quote is not closed")?;
    fields.truncate(columns);
    let [name, label, probabilities @ ..] = &fields[..] else {
        return Err(format!("{} fields instead of {}", fields.len(), row.len() + 2));
    };
    if probabilities.len() != row.len() {
        return Err(format!("{} fields instead of {}", fields.len(), row.len() + 2));
    }
    for (to, text) in row.iter_mut().zip(probabilities) {
        *to = text
            .parse()
            .ok()
            .filter(|probability| (0.0..=1.0).contains(probability))
            .ok_or_else(|| format!("`{text}` is not a probability from 0 to 1"))?;
    }
    Ok((text_of(name).into(), text_of(label).into()))
}

/// The number of a class.
fn number(classes: &BTreeMap<&str, u32>, label: &str) -> Result<u32, String> {
    let number = classes.get(label).copied();
    number.ok_or_else(|| format!("the label `{label}` is not one of the classes in the header"))
}

/// The number of the class of a case with these probabilities.
fn one_class(label: &str, classes: &BTreeMap<&str, u32>, row: &[f64]) -> Result<u32, String> {
    let sum: f64 = row.iter().sum();
    if (sum - 1.0).abs() > ROUNDING {
        return Err(format!("the probabilities sum to {sum}, not 1"));
    }
    number(classes, label)
}

/// Sets the classes of a case with any number of labels.
fn several_classes(text: &str, classes: &BTreeMap<&str, u32>, labels: &mut [u8]) -> Result<(), String> {
    for label in text.split(BETWEEN).filter(|label| !label.is_empty()) {
        labels[number(classes, label)? as usize] = 1;
    }
    Ok(())
}

/// The non-empty lines of a table.
struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    at: u64,
    /// The number of columns that are read: the columns up to `predicted`, or all.
    columns: usize,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines, TableError> {
        let file = File::open(path).map_err(|source| TableError::Io { path: path.into(), source })?;
        Ok(Lines { path: path.into(), reader: BufReader::new(file), at: 0, columns: usize::MAX })
    }

    fn error(&self, problem: impl Into<String>) -> TableError {
        TableError::Line { path: self.path.clone(), line: self.at, problem: problem.into() }
    }

    fn next(&mut self) -> Result<Option<String>, TableError> {
        loop {
            self.at += 1;
            let mut bytes = Vec::new();
            let read = self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            read.map_err(|source| TableError::Io { path: self.path.clone(), source })?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() as u64 == LONGEST_LINE && bytes.last() != Some(&b'\n') {
                return Err(self.error(format!("is longer than {LONGEST_LINE} bytes")));
            }
            let text = String::from_utf8(bytes).map_err(|_| self.error("is not UTF-8"))?;
            let text = text.trim_end_matches(['\n', '\r']);
            let text = if self.at == 1 { text.trim_start_matches('\u{feff}') } else { text };
            if !text.trim().is_empty() {
                return Ok(Some(text.into()));
            }
        }
    }

    fn header(&mut self) -> Result<Vec<String>, TableError> {
        let line = self.next()?.unwrap_or_default();
        let found = fields(&line).ok_or_else(|| self.error("a quote is not closed"))?;
        let classes = match &found[..] {
            [case, label, rest @ ..] if case == "case" && label == "label" && rest.len() > 1 => {
                match rest.iter().skip(2).position(|name| name == PREDICTED) {
                    Some(at) => {
                        self.columns = at + 4;
                        &rest[..at + 2]
                    }
                    None => rest,
                }
            }
            _ => {
                return Err(
                    self.error("is not a header of `case,label,` and the names of at least two classes")
                );
            }
        };
        let classes: Vec<String> = classes.iter().map(|class| text_of(class).into()).collect();
        let distinct: std::collections::BTreeSet<&String> = classes.iter().collect();
        if distinct.len() < classes.len() {
            return Err(self.error("two classes have the same name"));
        }
        Ok(classes)
    }
}
