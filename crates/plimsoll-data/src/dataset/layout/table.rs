//! A table with a line for each case and columns of paths: an image for each channel, and a label map.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use csv::StringRecord;

use crate::dataset::layout::table_file::Table;
use crate::dataset::layout::{DataLocation, FoundData, Layout, channels, usual_ending, words};
use crate::dataset::names::{enumerated, stem};
use crate::dataset::{Case, ChannelFile, DatasetError, Names, Reading, is_case_name};
use crate::files_memory::FilesMemory;

/// Columns that name cases.
const NAMES: [&str; 8] = ["case", "case_id", "id", "name", "patient", "patient_id", "subject", "subject_id"];

pub(crate) fn read(place: &DataLocation<'_>) -> Result<FoundData, DatasetError> {
    let Some(file) = &place.file else {
        let hint = "name the table itself: plimsoll inspect FOLDER/cases.csv";
        return Err(place.fault("`data.layout` is table, but this is a folder".into(), hint));
    };
    let stored = Table::read(file)?;
    let data = &place.options.data;
    let hint =
        "name its columns in plimsoll.toml: under [data], images = [\"t1\", \"t2\"] and labels = \"label\"";
    let with_images: Vec<usize> =
        (0..stored.header.len()).filter(|column| stored.has_images(file, *column)).collect();
    let label = match &data.labels {
        Some(name) => stored.column(file, name)?,
        None => {
            let is_label = |column: &&usize| words::is_of_labels(&stored.header[**column]);
            match with_images.iter().filter(is_label).collect::<Vec<_>>()[..] {
                [one] => *one,
                _ => {
                    let problem = format!(
                        "the column of label maps is ambiguous; its columns are: {}",
                        enumerated(stored.header.iter().map(String::as_str))
                    );
                    return Err(place.fault(problem, hint));
                }
            }
        }
    };
    let images: Vec<usize> = match &data.images {
        Some(names) => {
            Names::list(names).iter().map(|name| stored.column(file, name)).collect::<Result<_, _>>()?
        }
        None => with_images.into_iter().filter(|column| *column != label).collect(),
    };
    if images.is_empty() {
        let problem = format!(
            "no column has paths of images; its columns are: {}",
            enumerated(stored.header.iter().map(String::as_str))
        );
        return Err(place.fault(problem, hint));
    }
    let id = match &data.case {
        Some(name) => Some(stored.column(file, name)?),
        None => stored.header.iter().position(|name| NAMES.contains(&&*name.to_lowercase())),
    };
    let columns = Columns { header: &stored.header, images: &images, label, case: id };
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for (number, row) in stored.rows.iter().enumerate() {
        let case = case(place, file, number + 2, row, &columns)?;
        if let Some(other) = cases.insert(case.id.clone(), case) {
            return Err(DatasetError::DuplicateCase { path: file.clone(), case: other.id });
        }
    }
    let cases: Vec<Case> = cases.into_values().collect();
    if cases.is_empty() {
        return Err(place.fault("it has no rows below its header".into(), "write a row for each case"));
    }
    let names: Vec<String> = images.iter().map(|column| stored.header[*column].clone()).collect();
    let mut warnings = Vec::new();
    Ok(FoundData {
        folder: place.folder.clone(),
        name: stem_of_table(file),
        channels: channels(place, &names)?,
        unit: None,
        labels: None,
        segments: None,
        folds: BTreeMap::new(),
        file_ending: usual_ending(&cases, &mut warnings),
        layout: Layout::Table { file: file.clone(), images: names, labels: stored.header[label].clone() },
        cases,
        test_cases: Vec::new(),
        warnings,
        memory: FilesMemory::default(),
    })
}

fn stem_of_table(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// The columns of a table that describe a case.
struct Columns<'a> {
    /// The names of all columns.
    header: &'a [String],
    /// The column of each channel's image.
    images: &'a [usize],
    label: usize,
    /// The column of the case's name; if `None`, its first image names it.
    case: Option<usize>,
}

/// The case of a line.
fn case(
    place: &DataLocation<'_>,
    file: &Path,
    line: usize,
    row: &StringRecord,
    columns: &Columns<'_>,
) -> Result<Case, DatasetError> {
    let Columns { header, images, label, case: id } = *columns;
    let cell = |column: usize| row.get(column).unwrap_or("").trim();
    let path = |column: usize| -> Result<PathBuf, DatasetError> {
        let listed = cell(column);
        if listed.is_empty() {
            let problem = format!("line {line} has nothing in column `{}`", header[column]);
            return Err(place.fault(problem, "complete the row, or leave it out"));
        }
        let path = place.path(file, listed)?;
        match path.exists() {
            true => Ok(path),
            false => Err(place.fault(
                format!("line {line}, column `{}`: {} is missing", header[column], path.display()),
                "correct the path, which is relative to the table, or leave the row out",
            )),
        }
    };
    let images: Vec<PathBuf> = images.iter().map(|column| path(*column)).collect::<Result<_, _>>()?;
    let name = id.map_or_else(|| stem(&images[0]), |column| cell(column).to_string());
    if !is_case_name(&name) {
        let problem = format!("line {line}: {name:?} cannot be the name of a case");
        return Err(place.fault(problem, "names of cases are names of files: not empty, without slashes"));
    }
    let images = images.into_iter().map(|path| ChannelFile { path, index: 0 }).collect();
    Ok(Case { id: name, images, label: Some(path(label)?), reading: Reading::default() })
}
