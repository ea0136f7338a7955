//! A folder for each case, with an image for each channel and a label map that are told apart by the ends of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::dataset::layout::location::images_in;
use crate::dataset::layout::{DataLocation, FoundData, Layout, channels, usual_ending, words};
use crate::dataset::names::{enumerated, file_name};
use crate::dataset::series::{DICOM, is_series};
use crate::dataset::{Case, ChannelFile, DatasetError, LayoutName, Names, Reading};
use crate::files_memory::FilesMemory;

/// The files of a case by the part of their names beside the name of the case: `t1c`, `flair`, `seg`.
type Roles = BTreeMap<String, PathBuf>;

pub(crate) fn read(place: &DataLocation<'_>) -> Result<FoundData, DatasetError> {
    place.expect_unused(LayoutName::Cases, &["case"])?;
    let mut warnings = Vec::new();
    let mut found: Vec<(String, Roles)> = Vec::new();
    for folder in &place.folders {
        let id = file_name(folder);
        let mut files = images_in(folder)?;
        if is_series(folder)? {
            // Its slices are one image, beside which its label map may lie.
            files.retain(|(_, path)| !file_name(path).to_ascii_lowercase().ends_with(DICOM));
            files.push((id.clone(), folder.clone()));
        }
        let roles = roles(place, &id, files)?;
        match roles.is_empty() {
            true => warnings.push(format!("{} is left out: it has no images", folder.display())),
            false => found.push((id, roles)),
        }
    }
    let all: BTreeSet<&str> = found.iter().flat_map(|(_, roles)| roles.keys().map(String::as_str)).collect();
    let listed = || enumerated(all.iter().copied());
    let data = &place.options.data;
    let hint = "name them in plimsoll.toml: under [data], images = [\"t1\", \"t2\"] and labels = \"seg\", which are the ends of names";
    let label = match &data.labels {
        Some(label) => label.clone(),
        None => match all.iter().filter(|role| words::is_of_labels(role)).collect::<Vec<_>>()[..] {
            [one] => one.to_string(),
            [] => {
                return Err(
                    place.fault(format!("no file is named like a label map; there are: {}", listed()), hint)
                );
            }
            _ => {
                return Err(place.fault(
                    format!("several files are named like label maps; there are: {}", listed()),
                    hint,
                ));
            }
        },
    };
    let images: Vec<String> = match &data.images {
        Some(names) => Names::list(names).to_vec(),
        None => all.iter().filter(|role| **role != label).map(|role| role.to_string()).collect(),
    };
    let mut cases = Vec::new();
    for (id, mut roles) in found {
        let folder = place.folder.join(&id);
        let mut of_case = Vec::new();
        for (channel, name) in images.iter().enumerate() {
            let Some(path) = roles.remove(name) else {
                let (path, name) = (folder.join(format!("…{name}…")), name.clone());
                return Err(DatasetError::MissingChannel { case: id, channel, name, path, others: 0 });
            };
            of_case.push(ChannelFile { path, index: 0 });
        }
        let Some(path) = roles.remove(&label) else {
            return Err(DatasetError::NoPartner { case: id, folder, others: 0 });
        };
        cases.push(Case { id, images: of_case, label: Some(path), reading: Reading::default() });
    }
    if cases.is_empty() || images.is_empty() {
        return Err(place.unknown());
    }
    Ok(FoundData {
        folder: place.folder.clone(),
        name: place.name(),
        channels: channels(place, &images)?,
        unit: None,
        labels: None,
        segments: None,
        folds: BTreeMap::new(),
        file_ending: usual_ending(&cases, &mut warnings),
        layout: Layout::Cases { images, labels: label },
        cases,
        test_cases: Vec::new(),
        warnings,
        memory: FilesMemory::default(),
    })
}

/// The roles of files: their names without the name of their case, which they may begin with.
fn roles(place: &DataLocation<'_>, id: &str, files: Vec<(String, PathBuf)>) -> Result<Roles, DatasetError> {
    let mut roles = Roles::new();
    for (stem, path) in files {
        let rest = stem.strip_prefix(id).map(|rest| rest.trim_start_matches(words::SEPARATORS));
        let role = match rest {
            // The file that has the name of the case alone is its image.
            Some("") => "image",
            Some(rest) => rest,
            None => &stem,
        };
        if let Some(other) = roles.insert(role.to_string(), path.clone()) {
            let problem = format!(
                "case {id} has {} and {}, which are named alike",
                file_name(&other),
                file_name(&path)
            );
            return Err(place.fault(problem, "leave one of the two out"));
        }
    }
    Ok(roles)
}
