//! BIDS, the Brain Imaging Data Structure: `sub-01/[ses-02/]anat/sub-01_ses-02_T1w.nii.gz`, and label maps among the derivatives,
//! `derivatives/manual/sub-01/…_dseg.nii.gz`, with the names of their values in a `dseg.tsv`.
//!
//! Specification: <https://bids-specification.readthedocs.io/en/stable/derivatives/imaging.html#segmentations>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::dataset::files::file_name;
use crate::dataset::json::read_bounded;
use crate::dataset::layout::place::{images_in, list, stem};
use crate::dataset::layout::{FoundData, Layout, Place, channels, usual_ending};
use crate::dataset::{Case, ChannelFile, DatasetError, LayoutName, Names, Reading};

/// What the names of segmentations end in, the usual first.
const SEGMENTATIONS: [&str; 4] = ["dseg", "mask", "seg", "label"];

/// How deep folders are below that of a subject: a session, a modality, and one more of some derivatives.
const DEPTH: usize = 3;

/// The images below a folder of subjects, by subject and session.
type Subjects = BTreeMap<String, Vec<PathBuf>>;

pub(crate) fn read(place: &Place<'_>) -> Result<FoundData, DatasetError> {
    place.expect_unused(LayoutName::Bids, &["case"])?;
    let data = &place.options.data;
    let images = subjects(&place.folder)?;
    let derivatives = place.folder.join("derivatives");
    let mut label_maps = Subjects::new();
    let mut tables = Vec::new();
    if derivatives.is_dir() {
        let pipelines = list(&derivatives)?.into_iter().filter(|path| path.is_dir());
        for folder in std::iter::once(derivatives.clone()).chain(pipelines) {
            for (subject, paths) in subjects(&folder)? {
                label_maps.entry(subject).or_default().extend(paths);
            }
            tables.extend(list(&folder)?.into_iter().filter(|path| file_name(path).ends_with("dseg.tsv")));
        }
    }
    let all: BTreeSet<String> = label_maps.values().flatten().map(|path| suffix(path)).collect();
    let label = match &data.labels {
        Some(label) => label.clone(),
        None => match SEGMENTATIONS.iter().find(|suffix| all.contains(**suffix)) {
            Some(suffix) => (*suffix).to_string(),
            None => {
                let problem = format!(
                    "no label maps are among its derivatives: there is no {}/…/sub-*_dseg.nii.gz",
                    derivatives.display()
                );
                let hint = "put them there, or say what their names end in in plimsoll.toml: under [data], labels = \"desc-lesion_mask\"";
                return Err(place.fault(problem, hint));
            }
        },
    };
    label_maps.values_mut().for_each(|paths| paths.retain(|path| stem(path).ends_with(&format!("_{label}"))));
    let names = match &data.images {
        Some(names) => Names::list(names).to_vec(),
        None => common_suffixes(place, &images, &label_maps)?,
    };
    let mut warnings = Vec::new();
    let (mut cases, mut test_cases) = (Vec::new(), Vec::new());
    for (id, paths) in images {
        let of_case = label_maps.remove(&id);
        let found = only(place, &id, &label, of_case.as_deref().unwrap_or(&[]))?;
        let mut files = Vec::new();
        let mut missing = None;
        for (channel, name) in names.iter().enumerate() {
            match only(place, &id, name, &paths)? {
                Some(path) => files.push(ChannelFile { path, index: 0 }),
                None => missing = Some((channel, name.clone())),
            }
        }
        match (missing, found) {
            (None, label) => {
                let list = if label.is_some() { &mut cases } else { &mut test_cases };
                list.push(Case { id, images: files, label, reading: Reading::default() });
            }
            (Some((channel, name)), Some(_)) => {
                let path = place.folder.join(&id).join(format!("…_{name}…"));
                return Err(DatasetError::MissingChannel { case: id, channel, name, path, others: 0 });
            }
            // Neither trained on nor predicted.
            (Some((_, name)), None) => {
                warnings.push(format!("{id} is left out: it has neither {name} nor a label map"))
            }
        }
    }
    for path in label_maps.into_values().flatten() {
        warnings.push(format!("{} is left out: there is no image for it", path.display()));
    }
    if let Some(first) = test_cases.first() {
        let (count, first) = (test_cases.len(), &first.id);
        warnings.push(format!("{count} subjects have no label map, like {first}: they are not trained on"));
    }
    if cases.is_empty() {
        let problem = format!("no subject has both images and a label map that ends in _{label}");
        return Err(place.fault(problem, "check the names: sub-01_T1w.nii.gz has sub-01_…_dseg.nii.gz"));
    }
    Ok(FoundData {
        folder: place.folder.clone(),
        name: place.name(),
        channels: channels(place, &names)?,
        unit: None,
        labels: None,
        value_names: value_names(&tables)?,
        folds: BTreeMap::new(),
        file_ending: usual_ending(&cases, &mut warnings),
        layout: Layout::Bids { labels: label },
        cases,
        test_cases,
        warnings,
    })
}

/// The images below the folders of subjects.
fn subjects(folder: &Path) -> Result<Subjects, DatasetError> {
    let mut found = Subjects::new();
    for path in list(folder)?.into_iter().filter(|path| file_name(path).starts_with("sub-") && path.is_dir())
    {
        below(&path, DEPTH, &mut |image| {
            let subject = subject(&image);
            if !subject.is_empty() {
                found.entry(subject).or_default().push(image);
            }
        })?;
    }
    Ok(found)
}

fn below(folder: &Path, depth: usize, see: &mut dyn FnMut(PathBuf)) -> Result<(), DatasetError> {
    images_in(folder)?.into_iter().for_each(|(_, path)| see(path));
    if depth > 0 {
        for path in list(folder)?.into_iter().filter(|path| path.is_dir()) {
            below(&path, depth - 1, see)?;
        }
    }
    Ok(())
}

/// `sub-01` or `sub-01_ses-02`, of a name that begins with it.
fn subject(path: &Path) -> String {
    let name = stem(path);
    let parts: Vec<&str> =
        name.split('_').take_while(|part| part.starts_with("sub-") || part.starts_with("ses-")).collect();
    parts.join("_")
}

/// What a name ends in after its last entity: `T1w`, `dseg`.
fn suffix(path: &Path) -> String {
    let name = stem(path);
    name.rsplit('_').next().unwrap_or(&name).to_string()
}

/// The suffixes of images that all subjects with label maps have.
fn common_suffixes(
    place: &Place<'_>,
    images: &Subjects,
    label_maps: &Subjects,
) -> Result<Vec<String>, DatasetError> {
    let mut common: Option<BTreeSet<String>> = None;
    for (_, paths) in
        images.iter().filter(|(id, _)| label_maps.get(*id).is_some_and(|paths| !paths.is_empty()))
    {
        let of_subject: BTreeSet<String> = paths.iter().map(|path| suffix(path)).collect();
        common = Some(match common {
            Some(common) => common.intersection(&of_subject).cloned().collect(),
            None => of_subject,
        });
    }
    match common {
        Some(common) if !common.is_empty() => Ok(common.into_iter().collect()),
        _ => Err(place.fault(
            "no image is there for all subjects with label maps".into(),
            "say which images are meant in plimsoll.toml: under [data], images = [\"T1w\", \"FLAIR\"]",
        )),
    }
}

/// The one file of a subject whose name ends so; none if there is none.
fn only(place: &Place<'_>, id: &str, end: &str, paths: &[PathBuf]) -> Result<Option<PathBuf>, DatasetError> {
    let found: Vec<&PathBuf> = paths.iter().filter(|path| stem(path).ends_with(&format!("_{end}"))).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [one, other, ..] => Err(place.fault(
            format!("{id} has {} and {}, which both end in _{end}", one.display(), other.display()),
            "say more of the end of the name that is meant in plimsoll.toml: under [data], labels = \"desc-manual_dseg\" or \
             images = \"run-01_T1w\"",
        )),
    }
}

/// The names of values, where a table of them is there.
fn value_names(tables: &[PathBuf]) -> Result<BTreeMap<u8, String>, DatasetError> {
    let mut names = BTreeMap::new();
    for table in tables {
        let text = String::from_utf8_lossy(&read_bounded(table)?).into_owned();
        let mut lines = text.lines().map(|line| line.split('\t').map(str::trim).collect::<Vec<_>>());
        let Some(header) = lines.next() else { continue };
        let column = |name: &str| header.iter().position(|found| *found == name);
        let Some((index, name)) = column("index").zip(column("name")) else { continue };
        for line in lines {
            let value = line.get(index).and_then(|value| value.parse().ok());
            if let Some((value, name)) = value.zip(line.get(name)) {
                names.insert(value, (*name).to_string());
            }
        }
    }
    Ok(names)
}
